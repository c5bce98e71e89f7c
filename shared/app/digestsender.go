package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"mailyard.internal/mailyard/functions/digest"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/gmailapi"
	"mailyard.internal/mailyard/shared/mail"
)

// A digestSender sends as the mailbox of MAILYARD_DIGEST_SENDER. Where several accounts hold it, those
// that may not send are passed over: who links the mailbox to read it need not have granted more.
type digestSender struct {
	address  string
	accounts *firestoredb.DB
	gmail    *gmailapi.Client

	mu     sync.Mutex
	usable []string // account ids
}

// Ready finds the accounts that may send.
func (s *digestSender) Ready(ctx context.Context) error {
	accounts, err := s.accounts.AccountsOf(ctx, mail.NormalizeAddress(s.address))
	if err != nil {
		return err
	}
	var usable []string
	for _, a := range accounts {
		if a.Callable() {
			usable = append(usable, a.ID)
		}
	}
	if len(usable) == 0 {
		return digest.ErrNoSender
	}
	slices.SortFunc(usable, cmp.Compare[string])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usable = usable
	return nil
}

// Send makes one attempt to send a whole message: one more with the next account only where Gmail has
// refused the one before.
func (s *digestSender) Send(ctx context.Context, raw []byte) error {
	for {
		account, others := s.first()
		err := s.gmail.Send(ctx, account, raw)
		var failure *gmailapi.SendError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &failure):
			return err
		}
		call := &digest.CallError{Status: failure.Status, Reason: failure.Reason, Connected: failure.Connected, GrantLost: failure.GrantLost, Err: err}
		if !others || !call.SenderRefused() {
			return call
		}
		s.passOver(account)
	}
}

func (s *digestSender) first() (account string, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.usable) == 0 {
		return "", false
	}
	return s.usable[0], len(s.usable) > 1
}

func (s *digestSender) passOver(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usable = slices.DeleteFunc(s.usable, func(id string) bool { return id == account })
}
