package digest

import (
	"context"
	"errors"
	"net/http"

	"mailyard.internal/mailyard/shared/mailing"
)

// A CallError is a call to send that has not been answered with success, and what is known about it.
type CallError struct {
	// Status is that of the answer; 0 where none came.
	Status int
	// Reason is Gmail's word in the answer, as rateLimitExceeded.
	Reason string
	// Connected says whether the request had a connection to go out on: without one nothing of it did.
	Connected bool
	// GrantLost says that the sender's grant is no longer good, which was known before the call.
	GrantLost bool
	Err       error
}

// Error returns the underlying error's text.
func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *CallError) Unwrap() error { return e.Err }

// A verdict is what the outcome of a call means for the mailing.
type verdict int

const (
	sent     verdict = iota
	again            // certainly not sent, and worth another try
	hopeless         // certainly not sent, and never will be as it is
	stopped          // certainly not sent, and no other mail would be: the sender may not send
	unknown          // nobody can know
)

// throttling has the reasons by which a 403 asks for patience. With any other it is a refusal.
var throttling = map[string]bool{
	"userRateLimitExceeded": true, "rateLimitExceeded": true, "dailyLimitExceeded": true, "quotaExceeded": true,
}

// verdicts is the classification, the first row that fits. A row that says that nothing was sent must be
// certain of it: a mail that is called unsent and was not is a mail twice.
var verdicts = []struct {
	name string
	fits func(*CallError) bool
	is   verdict
	why  mailing.Reason
}{
	{"the grant is lost: no request was made", func(e *CallError) bool { return e.GrantLost }, stopped, "sender_not_permitted"},
	{"no connection: refused, no such host, no TLS, or no token to call with", func(e *CallError) bool { return e.Status == 0 && !e.Connected }, again, "not_connected"},
	{"no answer: timed out, or the connection was lost after the request may have gone out", func(e *CallError) bool { return e.Status == 0 }, unknown, "no_answer"},
	{"429: Gmail counts before it sends", status(http.StatusTooManyRequests), again, "throttled"},
	{"403 by a throttling reason: likewise", func(e *CallError) bool { return e.Status == http.StatusForbidden && throttling[e.Reason] }, again, "throttled"},
	{"401: the token was refused, and so was a fresh one", status(http.StatusUnauthorized), stopped, "sender_not_permitted"},
	{"403 otherwise: the sender may not send, as without the scope gmail.send", status(http.StatusForbidden), stopped, "sender_not_permitted"},
	{"400: Gmail cannot make sense of this mail or its address", status(http.StatusBadRequest), hopeless, "bad_request"},
	{"404 or 413: there is no such thread, or the mail is too large", func(e *CallError) bool {
		return e.Status == http.StatusNotFound || e.Status == http.StatusRequestEntityTooLarge
	}, hopeless, "bad_request"},
	{"5xx: the mail may have been taken before something broke", func(e *CallError) bool { return e.Status >= 500 }, unknown, "server_error"},
	{"any other answer: what nobody has thought of is not certain", func(*CallError) bool { return true }, unknown, "strange_answer"},
}

func status(code int) func(*CallError) bool {
	return func(e *CallError) bool { return e.Status == code }
}

// errBadMail says that a mail could not be built: nothing was called.
var errBadMail = errors.New("the mail cannot be built")

// judge says what the outcome of a call means.
func judge(err error) (verdict, mailing.Reason) {
	var call *CallError
	switch {
	case err == nil:
		return sent, ""
	case errors.Is(err, errBadMail):
		return hopeless, "bad_address"
	case !errors.As(err, &call) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return again, "not_called" // the step's time was up before the call
	case !errors.As(err, &call):
		return unknown, "strange_answer"
	}
	for _, row := range verdicts {
		if row.fits(call) {
			return row.is, row.why
		}
	}
	return unknown, "strange_answer"
}

// SenderRefused reports whether it is the sender that may not send, whatever the mail.
func (e *CallError) SenderRefused() bool {
	v, _ := judge(e)
	return v == stopped
}
