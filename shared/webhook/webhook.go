// Package webhook posts alerts to a chat: Discord, Slack or Google Chat, each in its own format.
//
// A post is made once. That the chat is down, slow or wants to be left alone is an error, which says
// until when; whoever calls keeps the alert and tries again.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/alert"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
)

// timeout bounds one post.
const timeout = 5 * time.Second

// A Webhook posts to one chat.
type Webhook struct {
	url    string
	format format
	client *http.Client
	now    func() time.Time
}

// New returns the webhook of the configuration, or nil where there is none.
func New(c config.Config, now func() time.Time) (*Webhook, error) {
	if c.AlertWebhook == "" {
		return nil, nil
	}
	f, ok := formats[c.AlertKind]
	if !ok {
		return nil, fmt.Errorf("there is no format for alerts of the kind %q", c.AlertKind)
	}
	return &Webhook{c.AlertWebhook, f, &http.Client{
		Timeout: timeout,
		// The URL is a secret, and only the known hosts may have the alert.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, now}, nil
}

// Post sends a message. A [fault.Throttled] error says from when on the chat may be called again.
func (w *Webhook) Post(ctx context.Context, m alert.Message) error {
	body, err := json.Marshal(w.format(m))
	if err != nil {
		return fmt.Errorf("encode an alert: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("post an alert: the webhook's URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	response, err := w.client.Do(request)
	if err != nil {
		// The error of net/http holds the URL, and that is a secret.
		return fault.Transient(fault.Unknown, errors.New("post an alert: the webhook does not answer"))
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
	switch {
	case response.StatusCode >= 200 && response.StatusCode < 300:
		return nil
	case response.StatusCode == http.StatusTooManyRequests:
		return fault.ThrottledUntil(fault.Throttled, w.now().Add(retryAfter(response.Header, w.now())),
			errors.New("post an alert: the webhook wants to be called less often"))
	}
	return fault.Transient(fault.Unknown, fmt.Errorf("post an alert: the webhook answers %d; check MAILYARD_ALERT_WEBHOOK", response.StatusCode))
}

// retryAfter reads Retry-After: seconds, of which Discord gives fractions, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const longest = time.Hour
	value := strings.TrimSpace(h.Get("Retry-After"))
	wait := time.Minute
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 {
		wait = time.Duration(min(seconds, longest.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), longest)
}
