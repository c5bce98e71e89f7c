package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/fault"
)

var (
	errPlain  = errors.New("something")
	permanent = fault.Permanent(fault.NotPermitted, errPlain)
	other     = fault.Permanent(fault.AccountGone, errPlain)
	transient = fault.Transient(fault.GmailUnavailable, errPlain)
)

func TestKindAndCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		err       error
		permanent bool
		code      fault.Code
	}{
		{"no error", nil, false, fault.Unknown},
		{"nobody has classified it", errPlain, false, fault.Unknown},
		{"permanent", permanent, true, fault.NotPermitted},
		{"transient", transient, false, fault.GmailUnavailable},
		{"throttled", fault.ThrottledUntil(fault.Throttled, time.Unix(9, 0), errPlain), false, fault.Throttled},
		{"too early", fault.Wait(fault.NotFoundYet, errPlain), false, fault.NotFoundYet},
		{"wrapped", fmt.Errorf("fetch: %w", permanent), true, fault.NotPermitted},
		{"wrapped twice", fmt.Errorf("a: %w", fmt.Errorf("b: %w", transient)), false, fault.GmailUnavailable},
		{"about an account", fault.About("a1", permanent), true, fault.NotPermitted},
		{"wrapped about an account", fmt.Errorf("list: %w", fault.About("a1", transient)), false, fault.GmailUnavailable},
		{"the outer says so", fault.Transient(fault.Conflict, permanent), false, fault.Conflict},
		{"the outer says so, permanent", fault.Permanent(fault.BadRequest, transient), true, fault.BadRequest},
		{"a deadline", context.DeadlineExceeded, false, fault.Timeout},
		{"a wrapped cancellation", fmt.Errorf("get: %w", context.Canceled), false, fault.Timeout},
		{"a classified deadline", fault.Transient(fault.FirestoreUnavailable, context.DeadlineExceeded), false, fault.FirestoreUnavailable},

		{"joined, all permanent", errors.Join(permanent, other), true, fault.NotPermitted},
		{"joined, one transient", errors.Join(permanent, transient), false, fault.GmailUnavailable},
		{"joined, one unknown", errors.Join(permanent, errPlain), false, fault.Unknown},
		{"joined, both transient", errors.Join(fault.Transient(fault.Conflict, errPlain), transient), false, fault.Conflict},
		{"joined, a deadline first", errors.Join(context.DeadlineExceeded, fault.Permanent(fault.NotFound, errPlain)), false, fault.Timeout},
		{"joined, then wrapped", fmt.Errorf("ingest: %w", errors.Join(permanent, transient)), false, fault.GmailUnavailable},
		{"joined, then about an account", fault.About("a1", errors.Join(permanent, errPlain)), false, fault.Unknown},
		{"joined, all permanent, then wrapped", fmt.Errorf("ingest: %w", errors.Join(other, permanent)), true, fault.AccountGone},
		{"joined within joined", errors.Join(permanent, fmt.Errorf("a: %w", errors.Join(other, transient))), false, fault.GmailUnavailable},
		{"joined by two verbs", fmt.Errorf("%w, and then %w", permanent, transient), false, fault.GmailUnavailable},
		{"joined about accounts", errors.Join(fault.About("a1", permanent), fault.About("a2", transient)), false, fault.GmailUnavailable},
		{"joined inside what is classified", fault.Permanent(fault.Malformed, errors.Join(transient, errPlain)), true, fault.Malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := fault.IsPermanent(c.err); got != c.permanent {
				t.Errorf("permanent is %t", got)
			}
			if got := fault.CodeOf(c.err); got != c.code {
				t.Errorf("the code is %s, want %s", got, c.code)
			}
		})
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	if !fault.Is(fmt.Errorf("a: %w", fault.About("a1", permanent)), fault.NotPermitted) {
		t.Error("a wrapped cause is not found")
	}
	if fault.Is(permanent, fault.NotFound) || fault.Is(errPlain, fault.Unknown) || fault.Is(nil, fault.Unknown) {
		t.Error("a cause is found that is not there")
	}
	if !errors.Is(fault.About("a1", transient), errPlain) {
		t.Error("what was classified hides what it was made of")
	}
}

func TestAbout(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("list: %w", fault.About("a1", transient))
	if got := fault.AccountOf(err); got != "a1" {
		t.Errorf("the account is %q", got)
	}
	if got := err.Error(); got != "list: account a1: something" {
		t.Errorf("the error reads %q", got)
	}
	if fault.About("a1", nil) != nil {
		t.Error("no error is about an account")
	}
	if fault.AccountOf(transient) != "" || fault.AccountOf(nil) != "" {
		t.Error("an account from nowhere")
	}
}

func TestWaitAndRetryAt(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	early, throttled := fault.Wait(fault.NotFoundYet, errPlain), fault.ThrottledUntil(fault.Throttled, at, errPlain)
	if !fault.IsWaiting(fmt.Errorf("fetch: %w", early)) || fault.IsWaiting(transient) || fault.IsWaiting(throttled) || fault.IsWaiting(nil) {
		t.Error("only what comes too early waits")
	}
	if got, ok := fault.RetryAt(fault.About("a1", throttled)); !ok || !got.Equal(at) {
		t.Errorf("retry at %v, %t", got, ok)
	}
	if _, ok := fault.RetryAt(early); ok {
		t.Error("a moment that Gmail did not name")
	}
	if _, ok := fault.RetryAt(fault.ThrottledUntil(fault.Throttled, time.Time{}, errPlain)); ok {
		t.Error("the zero moment counts as one")
	}
}
