package digest

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Each row of the classification, and what it must not be taken for.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	rows := map[string]bool{}
	for _, c := range []struct {
		name   string
		err    error
		want   verdict
		reason string
		row    int // of the table; -1 for none
	}{
		{"answered with success", nil, sent, "", -1},
		{"the mail cannot be built", fmt.Errorf("%w: why", errBadMail), hopeless, "bad_address", -1},
		{"the step's time was up before the call", context.DeadlineExceeded, again, "not_called", -1},
		{"an error that nobody has thought of", cause, unknown, "strange_answer", -1},
		{"the grant is lost", &CallError{GrantLost: true, Err: cause}, stopped, "sender_not_permitted", 0},
		{"refused connection", &CallError{Err: cause}, again, "not_connected", 1},
		{"timed out or cut off after the request may have gone out", &CallError{Connected: true, Err: context.DeadlineExceeded}, unknown, "no_answer", 2},
		{"429", &CallError{Status: 429, Connected: true, Err: cause}, again, "throttled", 3},
		{"403 rateLimitExceeded", &CallError{Status: 403, Reason: "rateLimitExceeded", Err: cause}, again, "throttled", 4},
		{"403 userRateLimitExceeded", &CallError{Status: 403, Reason: "userRateLimitExceeded", Err: cause}, again, "throttled", 4},
		{"403 dailyLimitExceeded", &CallError{Status: 403, Reason: "dailyLimitExceeded", Err: cause}, again, "throttled", 4},
		{"403 quotaExceeded", &CallError{Status: 403, Reason: "quotaExceeded", Err: cause}, again, "throttled", 4},
		{"401", &CallError{Status: 401, Err: cause}, stopped, "sender_not_permitted", 5},
		{"403 insufficientPermissions", &CallError{Status: 403, Reason: "insufficientPermissions", Err: cause}, stopped, "sender_not_permitted", 6},
		{"400", &CallError{Status: 400, Err: cause}, hopeless, "bad_request", 7},
		{"404", &CallError{Status: 404, Err: cause}, hopeless, "bad_request", 8},
		{"413", &CallError{Status: 413, Err: cause}, hopeless, "bad_request", 8},
		{"500", &CallError{Status: 500, Err: cause}, unknown, "server_error", 9},
		{"503", &CallError{Status: 503, Err: cause}, unknown, "server_error", 9},
		{"504", &CallError{Status: 504, Err: cause}, unknown, "server_error", 9},
		{"408, which may come after the mail was taken", &CallError{Status: 408, Err: cause}, unknown, "strange_answer", 10},
		{"a redirect", &CallError{Status: 302, Err: cause}, unknown, "strange_answer", 10},
	} {
		got, reason := judge(c.err)
		if got != c.want || string(reason) != c.reason {
			t.Errorf("%s: %d %q, want %d %q", c.name, got, reason, c.want, c.reason)
		}
		var call *CallError
		if !errors.As(c.err, &call) {
			continue
		}
		for i, row := range verdicts {
			if row.fits(call) {
				if i != c.row {
					t.Errorf("%s: fits the row %q", c.name, row.name)
				}
				rows[row.name] = true
				break
			}
		}
	}
	for _, row := range verdicts {
		if !rows[row.name] {
			t.Errorf("no case is of the row %q", row.name)
		}
	}
}
