// Package fault says of an error what is to be done about it: whether a retry can help, and under
// which code people and metrics know it.
//
// An error's kind is decided once, where the error arises: in the adapter that knows the answer it
// got. What nobody has classified is transient, since a retry loses nothing.
package fault

import (
	"context"
	"errors"
	"time"
)

// A Code names a cause, for the ledger, the log and the metrics.
type Code string

// The permanent causes: no number of retries mends them.
const (
	Malformed    Code = "malformed"     // the input cannot be read
	AccountGone  Code = "account_gone"  // no such account
	NotPermitted Code = "not_permitted" // Gmail refuses this call for good, as for a missing scope
	BadRequest   Code = "bad_request"   // Gmail cannot make sense of this call
)

// The transient causes: the same call may work later.
const (
	GmailUnavailable     Code = "gmail_unavailable"
	TokenUnavailable     Code = "token_unavailable"
	KeyUnavailable       Code = "key_unavailable" // Cloud KMS does not unwrap the keyset
	FirestoreUnavailable Code = "firestore_unavailable"
	PubSubUnavailable    Code = "pubsub_unavailable"
	Throttled            Code = "throttled"         // the mailbox's quota is used up
	ProjectThrottled     Code = "project_throttled" // the whole project's is
	Conflict             Code = "conflict"          // others kept writing the same document
	NotFoundYet          Code = "not_found_yet"     // a new message that Gmail does not show yet
	Timeout              Code = "timeout"
	Panicked             Code = "panicked"
	Unknown              Code = "unknown"
)

// IsDependency reports whether the code says that something which Mailyard needs was down, or did not
// answer: it mends itself, and then the same event can be applied.
func (c Code) IsDependency() bool {
	switch c {
	case GmailUnavailable, TokenUnavailable, KeyUnavailable, FirestoreUnavailable, PubSubUnavailable,
		Throttled, ProjectThrottled, Timeout:
		return true
	}
	return false
}

// The causes that a handler has an answer to and does not pass on.
const (
	NotFound       Code = "not_found"       // Gmail has no such message
	HistoryExpired Code = "history_expired" // Gmail no longer lists from that cursor
	ReauthRequired Code = "reauth_required" // the grant is revoked
	CodeSpent      Code = "code_spent"      // a consent's code was used before, or is too old
	NotLasting     Code = "not_lasting"     // a consent came without a refresh token
)

// An Error is an error whose cause is known.
type Error struct {
	Code      Code
	Permanent bool
	// Waiting marks what is no failure but comes too early: it is delivered again, and not counted.
	Waiting bool
	// Unlinked marks what no longer matters: the account's owner has taken it away. It is acknowledged,
	// and leaves nothing behind.
	Unlinked bool
	// RetryAt is when Gmail said to call again; zero where it said nothing.
	RetryAt time.Time
	Err     error
}

// Error returns the underlying error's text, which may hold what must not be logged: see [Text].
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// Permanent marks an error that no retry mends.
func Permanent(code Code, err error) error { return &Error{Code: code, Permanent: true, Err: err} }

// Transient marks an error that a retry may mend.
func Transient(code Code, err error) error { return &Error{Code: code, Err: err} }

// Wait marks what comes too early: it is to be delivered again, which is not counted as a failure.
func Wait(code Code, err error) error { return &Error{Code: code, Waiting: true, Err: err} }

// Unlinked marks an error about an account that was unlinked: an AccountGone that nobody has to see.
func Unlinked(err error) error {
	return &Error{Code: AccountGone, Permanent: true, Unlinked: true, Err: err}
}

// IsUnlinked reports whether [Unlinked] marked the error.
func IsUnlinked(err error) bool {
	var fault *Error
	return errors.As(err, &fault) && fault.Unlinked
}

// ThrottledUntil marks an error by which Gmail asks for patience.
func ThrottledUntil(code Code, at time.Time, err error) error {
	return &Error{Code: code, RetryAt: at, Err: err}
}

// Is reports whether the error has that cause.
func Is(err error, code Code) bool {
	var fault *Error
	return errors.As(err, &fault) && fault.Code == code
}

// RetryAt returns the moment before which Gmail wants no call, where the error names one.
func RetryAt(err error) (time.Time, bool) {
	var fault *Error
	if errors.As(err, &fault) && !fault.RetryAt.IsZero() {
		return fault.RetryAt, true
	}
	return time.Time{}, false
}

// IsWaiting reports whether [Wait] marked the error.
func IsWaiting(err error) bool {
	var fault *Error
	return errors.As(err, &fault) && fault.Waiting
}

// About ties an error to the account it is about, where the message that failed does not name one.
func About(account string, err error) error {
	if err == nil {
		return nil
	}
	return &aboutAccount{account, err}
}

// AccountOf returns the account that [About] tied the error to, or nothing.
func AccountOf(err error) string {
	var about *aboutAccount
	if errors.As(err, &about) {
		return about.account
	}
	return ""
}

type aboutAccount struct {
	account string
	err     error
}

func (e *aboutAccount) Error() string { return "account " + e.account + ": " + e.err.Error() }
func (e *aboutAccount) Unwrap() error { return e.err }

// IsThrottled reports whether Gmail asks for patience, for a mailbox or for the whole project.
func IsThrottled(err error) bool {
	code := CodeOf(err)
	return code == Throttled || code == ProjectThrottled
}

// RetryAtOr returns the moment before which Gmail wants no call, or another where the error names none.
func RetryAtOr(err error, otherwise time.Time) time.Time {
	if at, named := RetryAt(err); named {
		return at
	}
	return otherwise
}

// IsPermanent reports whether no retry can help. Joined errors are permanent only if all are.
func IsPermanent(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if !IsPermanent(err) {
				return false
			}
		}
		return len(joined.Unwrap()) > 0
	}
	if fault, ok := err.(*Error); ok {
		return fault.Permanent
	}
	if err = errors.Unwrap(err); err != nil {
		return IsPermanent(err)
	}
	return false
}

// CodeOf returns the error's cause; of joined errors, the first that is not permanent.
func CodeOf(err error) Code {
	var fault *Error
	switch err = deciding(err); {
	case errors.As(err, &fault):
		return fault.Code
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout
	}
	return Unknown
}

// deciding follows an error through its wrappings to the one of the joined errors that says whether
// a retry can help.
func deciding(err error) error {
	for next := err; next != nil; next = errors.Unwrap(next) {
		if _, ok := next.(*Error); ok {
			return err
		}
		joined, ok := next.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		for _, one := range joined.Unwrap() {
			if !IsPermanent(one) {
				return deciding(one)
			}
		}
		return err
	}
	return err
}
