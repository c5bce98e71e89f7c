package gmailapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"google.golang.org/api/googleapi"

	"mailyard.internal/mailyard/shared/fault"
)

// SendScope is what only the digests' sender needs beside [ReadOnly].
const SendScope = "https://www.googleapis.com/auth/gmail.send"

const (
	unitsSend = 100
	// sendTimeout is longer than other calls': one that is cut off leaves a mail of which nobody knows
	// whether it was sent.
	sendTimeout = 30 * time.Second
	maxAnswer   = 1 << 20 // bytes of an answer
)

// WithSendTimeout sets how long a send may take.
func WithSendTimeout(d time.Duration) Option { return func(c *Client) { c.sendTimeout = d } }

// A SendError is a send that was not answered with success, with all that tells whether the mail went out.
type SendError struct {
	Status    int    // of the answer; 0 where none came
	Reason    string // Gmail's word in it
	Connected bool   // the request had a connection to go out on
	GrantLost bool   // the account's grant is no longer good: nothing was called
	Err       error
}

// Error returns the underlying error's text.
func (e *SendError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *SendError) Unwrap() error { return e.Err }

// Send sends a whole message as the account: 100 quota units. It is one attempt, and nothing below it
// makes another but where the first was certainly refused, as with a token that Gmail does not take. Its
// error is a [SendError]. Throttling closes no gate here: sending and reading are throttled apart, and
// who sends waits by the error's moment.
func (c *Client) Send(ctx context.Context, account string, raw []byte) error {
	if err := c.quotas.take(ctx, account, unitsSend, false); err != nil {
		return &SendError{Err: fmt.Errorf("messages.send of account %s: %w", account, err)}
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, accountKey{}, account), c.sendTimeout)
	defer cancel()
	seen := &witnessed{}
	ctx = context.WithValue(ctx, witnessKey{}, seen)
	err := c.send(ctx, raw)
	if err == nil {
		return nil
	}
	failure := &SendError{Connected: seen.connected, Err: fmt.Errorf("messages.send of account %s: %w", account, c.classify(err, fault.NotFound))}
	var answer *googleapi.Error
	var known *fault.Error
	switch {
	case errors.As(err, &answer):
		failure.Status, failure.Reason = answer.Code, reason(answer)
	case errors.As(err, &known): // of the token: no request of it went out that was not refused
		failure.Connected = false
		if failure.GrantLost = known.Code == fault.ReauthRequired; failure.GrantLost {
			c.tokens.forget(account)
			failure.Err = errors.Join(failure.Err, c.accounts.RequireReauth(context.WithoutCancel(ctx), account))
		}
	}
	return failure
}

// send makes the request by hand: the generated client would repeat some calls.
func (c *Client) send(ctx context.Context, raw []byte) error {
	body, err := json.Marshal(map[string]string{"raw": base64.URLEncoding.EncodeToString(raw)})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint+"gmail/v1/users/me/messages/send", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "mailyard")
	response, err := c.sender.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	err = googleapi.CheckResponse(response)
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // it was taken, however the answer goes on
	return err
}

// newSender is the HTTP client of sends: with the account's token, without redirects, and with a witness.
func newSender(t *tokens) *http.Client {
	return &http.Client{
		Transport:     &transport{t, witness{http.DefaultTransport}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// witnessed is what a send was seen to come to.
type witnessed struct{ connected bool }

type witnessKey struct{}

// A witness notes whether a request had a connection. A request without one has certainly not gone out;
// of one that had, nobody can say how much did.
type witness struct{ base http.RoundTripper }

// RoundTrip makes the request, and forgets what was seen of the one before: that was answered.
func (w witness) RoundTrip(r *http.Request) (*http.Response, error) {
	seen, watched := r.Context().Value(witnessKey{}).(*witnessed)
	if !watched {
		return w.base.RoundTrip(r)
	}
	seen.connected = false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { seen.connected = true }}
	return w.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}
