package digest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
	"mailyard.internal/mailyard/shared/notice"
)

// An Unsubscriber takes subscribers off the digests, who come with the signed token of a mail and need no
// login.
type Unsubscriber struct {
	tokens tokens
	store  subscriberChanger
	now    func() time.Time
}

// tokens opens those of mails.
type tokens interface {
	OpenUnsubscribe(text string) (subscriber string, err error)
}

// subscriberChanger keeps who gets digests.
type subscriberChanger interface {
	ChangeSubscriber(ctx context.Context, id string, next func(mailing.Subscriber) (mailing.Subscriber, bool)) (mailing.Subscriber, error)
}

// NewUnsubscriber returns an unsubscriber.
func NewUnsubscriber(t tokens, s subscriberChanger, now func() time.Time) *Unsubscriber {
	return &Unsubscriber{t, s, now}
}

// An UnsubscribeOutcome names what became of a visit, for page, log and metrics.
type UnsubscribeOutcome string

// The outcomes of a visit.
const (
	ToConfirm         UnsubscribeOutcome = "to_confirm"
	HasUnsubscribed   UnsubscribeOutcome = "unsubscribed" // also where it was so before
	NoSuchToken       UnsubscribeOutcome = "token_wrong"
	UnsubscribeFailed UnsubscribeOutcome = "failed"
)

// Unsubscribe takes the token's subscriber off, once however often it is called.
func (u *Unsubscriber) Unsubscribe(ctx context.Context, token string) (subscriber string, outcome UnsubscribeOutcome, err error) {
	id, err := u.tokens.OpenUnsubscribe(token)
	if err != nil || !mail.PlainID(id) {
		return "", NoSuchToken, nil
	}
	_, err = u.store.ChangeSubscriber(ctx, id, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		wants := !s.Version.IsZero() && !s.Deleted() // one that is gone with its account wants nothing
		s.DeletedAt = u.now()
		return s, wants
	})
	if err != nil {
		return id, UnsubscribeFailed, fmt.Errorf("unsubscribe %s: %w", id, err)
	}
	return id, HasUnsubscribed, nil
}

// unsubscribeTimeout is below the platform's own.
const unsubscribeTimeout = 20 * time.Second

// UnsubscribePage serves the links of mails. A GET, as programs make that look at links, only shows a
// page; a POST acts, a person's on that page as a mail program's with one click (RFC 8058). It tells each
// visit to report, which must not fail; the token is in nothing that is told or shown.
func UnsubscribePage(u *Unsubscriber, https bool, report func(r *http.Request, subscriber string, outcome UnsubscribeOutcome, err error, took time.Duration)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := u.now()
		var subscriber string
		var outcome UnsubscribeOutcome
		var err error
		token := r.URL.Query().Get(UnsubscribeParameter)
		switch r.Method {
		case http.MethodGet:
			outcome = ToConfirm
			if subscriber, err = u.tokens.OpenUnsubscribe(token); err != nil {
				outcome, err = NoSuchToken, nil
			}
		case http.MethodPost:
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), unsubscribeTimeout)
			defer cancel()
			subscriber, outcome, err = u.Unsubscribe(ctx, token)
		default:
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "only GET and POST are answered here", http.StatusMethodNotAllowed)
			return
		}
		report(r, subscriber, outcome, err, u.now().Sub(began))
		notice.Write(w, https, notices[outcome])
	}
}

// UnsubscribeParameter has the token in a link's query.
const UnsubscribeParameter = "token"
