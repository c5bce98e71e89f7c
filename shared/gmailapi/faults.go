package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/googleapi"

	"mailyard.internal/mailyard/shared/fault"
)

// The reasons by which Gmail throttles. A 403 with any other reason is not throttling.
var (
	userThrottling    = map[string]bool{"userRateLimitExceeded": true, "rateLimitExceeded": true}
	projectThrottling = map[string]bool{"dailyLimitExceeded": true, "quotaExceeded": true}
)

// classify says what an error of Gmail means. notFound is the cause of a 404, which depends on what
// was asked for; the error's text cannot tell.
func (c *Client) classify(err error, notFound fault.Code) error {
	if err == nil {
		return nil
	}
	var known *fault.Error
	if errors.As(err, &known) {
		return err // of the token, or of the store: the transport has passed it on
	}
	var answer *googleapi.Error
	if !errors.As(err, &answer) {
		if errors.Is(err, context.Canceled) {
			return fault.Transient(fault.Timeout, err)
		}
		return fault.Transient(fault.GmailUnavailable, err)
	}
	brief := fmt.Errorf("got %d %s from Gmail", answer.Code, reason(answer))
	switch {
	case answer.Code == http.StatusNotFound:
		return fault.Permanent(notFound, brief)
	case answer.Code == http.StatusTooManyRequests, answer.Code == http.StatusForbidden && throttles(answer):
		code := fault.Throttled
		if isProjectWide(answer) {
			code = fault.ProjectThrottled
		}
		return fault.ThrottledUntil(code, retryAt(answer, c.now()), brief)
	case answer.Code == http.StatusForbidden:
		return fault.Permanent(fault.NotPermitted, brief)
	case answer.Code == http.StatusBadRequest:
		return fault.Permanent(fault.BadRequest, brief)
	}
	return fault.Transient(fault.GmailUnavailable, brief)
}

func reason(answer *googleapi.Error) string {
	if len(answer.Errors) > 0 {
		return answer.Errors[0].Reason
	}
	return ""
}

// A limit that Google's quota service counts stands in the text alone, with the same reason for all:
// "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user' of service …".
var namedLimit = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)quota exceeded for quota metric .* and limit '([^']*)' of service`)
})

// isProjectWide reports whether it is the whole project's quota that is used up, and not one user's.
func isProjectWide(answer *googleapi.Error) bool {
	if projectThrottling[reason(answer)] {
		return true
	}
	limit := namedLimit().FindStringSubmatch(answer.Message)
	return limit != nil && !strings.Contains(strings.ToLower(limit[1]), "per user")
}

func throttles(answer *googleapi.Error) bool {
	return userThrottling[reason(answer)] || projectThrottling[reason(answer)]
}

var namedMoment = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)retry after (\d{4}-\d\d-\d\dT[0-9:.]+Z)`)
})

// retryAt is the moment Gmail names: in the Retry-After header, or only in the error's text ("User-rate
// limit exceeded.  Retry after 2026-11-30T12:00:00.000Z"). It is zero where Gmail names none.
func retryAt(answer *googleapi.Error, now time.Time) time.Time {
	const longest = 24 * time.Hour // a moment further off is not believed
	at := time.Time{}
	header := answer.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 {
		at = now.Add(time.Duration(seconds) * time.Second)
	} else if date, err := http.ParseTime(header); err == nil {
		at = date
	} else if named := namedMoment().FindStringSubmatch(answer.Message); named != nil {
		at, _ = time.Parse(time.RFC3339Nano, named[1])
	}
	if !at.After(now) || at.After(now.Add(longest)) {
		return time.Time{}
	}
	return at
}
