package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/iamcredentials/v1"
	"google.golang.org/api/option"
)

// An IAM has service accounts sign, by the IAM Credentials API. It is opened on first use, as only who
// reads delegated mailboxes needs it.
type IAM struct {
	options []option.ClientOption

	mu      sync.Mutex
	service *iamcredentials.Service
}

// NewIAM returns an IAM. Without options it has the credentials of whoever runs this, who needs the role
// roles/iam.serviceAccountTokenCreator on the service account.
func NewIAM(options ...option.ClientOption) *IAM { return &IAM{options: options} }

// IAMAt returns an IAM at another URL than Google's that asks nobody who they are, for tests.
func IAMAt(url string) *IAM { return NewIAM(option.WithEndpoint(url), option.WithoutAuthentication()) }

func (i *IAM) open(ctx context.Context) (*iamcredentials.Service, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.service == nil {
		service, err := iamcredentials.NewService(context.WithoutCancel(ctx), i.options...)
		if err != nil {
			return nil, fmt.Errorf("open IAM: %w", err)
		}
		i.service = service
	}
	return i.service, nil
}

// sign is a [signer].
func (i *IAM) sign(ctx context.Context, serviceAccount, claims string) (string, error) {
	service, err := i.open(ctx)
	if err != nil {
		return "", err
	}
	name := "projects/-/serviceAccounts/" + serviceAccount
	answer, err := service.Projects.ServiceAccounts.SignJwt(name, &iamcredentials.SignJwtRequest{Payload: claims}).Context(ctx).Do()
	if err != nil {
		return "", briefly(err)
	}
	return answer.SignedJwt, nil
}

// briefly keeps of an answer what cannot repeat the claims, which hold an address.
func briefly(err error) error {
	var answer *googleapi.Error
	if !errors.As(err, &answer) {
		return err
	}
	advice := ""
	if answer.Code == http.StatusForbidden || answer.Code == http.StatusNotFound {
		advice = "; see that the service account exists, and grant roles/iam.serviceAccountTokenCreator on it"
	}
	return fmt.Errorf("IAM answered %d %s%s", answer.Code, http.StatusText(answer.Code), advice)
}
