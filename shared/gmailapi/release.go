package gmailapi

import (
	"context"
	"fmt"

	"google.golang.org/api/googleapi"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

const unitsStop = 50

// Release ends what a link began: it stops the mailbox's watch, 50 quota units, and revokes the grant.
// Both act on the mailbox, whoever else holds it. What has ended already, as with a grant that is lost,
// is no error. The credential stays stored. A delegated mailbox has no grant of its own to revoke.
func (c *Client) Release(ctx context.Context, account string) error {
	credential, err := c.tokens.credentials.Credential(ctx, account)
	if fault.Is(err, fault.ReauthRequired) {
		return nil
	}
	if err != nil {
		return err
	}
	call := c.service.Users.Stop(me)
	_, err = do(ctx, c, account, unitsStop, fault.NotPermitted, call.Context, func(options ...googleapi.CallOption) (struct{}, error) {
		return struct{}{}, call.Do(options...)
	})
	if err != nil && !over(err) {
		return fmt.Errorf("stop the watch of account %s: %w", account, err)
	}
	if credential.Kind != mail.CredentialOAuth {
		return nil
	}
	if credential, err = c.tokens.credentials.Credential(ctx, account); err != nil { // the call may have rotated it
		return err
	}
	secret, err := c.tokens.keyset.Open(credential.Secret, account)
	if err != nil {
		return fault.Transient(fault.TokenUnavailable, err)
	}
	if err := c.consent.revoke(ctx, secret); err != nil {
		return fmt.Errorf("account %s: %w", account, err)
	}
	c.tokens.forget(account)
	return nil
}

// over reports whether Gmail will not take the call whenever it is made.
func over(err error) bool {
	return fault.Is(err, fault.ReauthRequired) || fault.Is(err, fault.NotPermitted) || fault.Is(err, fault.BadRequest)
}
