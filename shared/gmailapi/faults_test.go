package gmailapi

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/api/googleapi"

	"mailyard.internal/mailyard/shared/fault"
)

// Whose quota is used up, and until when, as Gmail says it: by the reason, by the limit named in the
// text, by the header, by the moment in the text.
func TestThrottlingByReasonAndText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := &Client{now: func() time.Time { return now }}
	limit := func(name string) string {
		return "Quota exceeded for quota metric 'Queries' and limit '" + name + "' of service 'gmail.googleapis.com' for consumer 'project_number:1'."
	}
	for name, test := range map[string]struct {
		status                  int
		reason, message, header string
		want                    fault.Code
		in                      time.Duration // 0: no moment is named
	}{
		"a user's rate":             {403, "userRateLimitExceeded", "User Rate Limit Exceeded", "", fault.Throttled, 0},
		"a rate":                    {403, "rateLimitExceeded", "Rate Limit Exceeded", "300", fault.Throttled, 5 * time.Minute},
		"a limit of each user":      {403, "rateLimitExceeded", limit("Queries per minute per user"), "", fault.Throttled, 0},
		"a limit of the project":    {403, "rateLimitExceeded", limit("Queries per minute"), "60", fault.ProjectThrottled, time.Minute},
		"the same with 429":         {429, "rateLimitExceeded", limit("Queries per minute"), "", fault.ProjectThrottled, 0},
		"a day's quota":             {403, "dailyLimitExceeded", "Daily Limit Exceeded", "", fault.ProjectThrottled, 0},
		"too many at once":          {429, "rateLimitExceeded", "Too many concurrent requests for user.", "", fault.Throttled, 0},
		"a moment in the text":      {429, "userRateLimitExceeded", "User-rate limit exceeded.  Retry after 2026-11-30T12:07:00.000Z", "", fault.Throttled, 7 * time.Minute},
		"a moment in the header":    {429, "", "", "Mon, 30 Nov 2026 12:03:00 GMT", fault.Throttled, 3 * time.Minute},
		"a moment that is over":     {429, "", "Retry after 2026-11-30T11:00:00Z", "", fault.Throttled, 0},
		"a moment too far off":      {429, "", "Retry after 2027-11-30T11:00:00Z", "", fault.Throttled, 0},
		"no throttling: permission": {403, "insufficientPermissions", "Insufficient Permission", "60", fault.NotPermitted, 0},
	} {
		header := http.Header{}
		if test.header != "" {
			header.Set("Retry-After", test.header)
		}
		err := c.classify(&googleapi.Error{
			Code: test.status, Message: test.message, Header: header,
			Errors: []googleapi.ErrorItem{{Reason: test.reason}},
		}, fault.NotFound)
		at, named := fault.RetryAt(err)
		if fault.CodeOf(err) != test.want || named != (test.in != 0) || named && at.Sub(now) != test.in {
			t.Errorf("%s: %s in %v, want %s in %v", name, fault.CodeOf(err), at.Sub(now), test.want, test.in)
		}
	}
}
