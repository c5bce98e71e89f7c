package mailbox_test

import (
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/mail"
)

func TestInStepTo(t *testing.T) {
	t.Parallel()
	resync := func(state mail.ResyncState, baseline mail.HistoryID) mail.Resync {
		return mail.Resync{State: state, Baseline: baseline}
	}
	for name, c := range map[string]struct {
		account mail.Account
		resyncs []mail.Resync
		failed  []mail.HistoryID
		want    mail.HistoryID
	}{
		"no cursor":                {want: 0},
		"no cursor, a failure":     {failed: []mail.HistoryID{7}, want: 0},
		"the cursor":               {account: mail.Account{HistoryID: 100}, want: 100},
		"to be listed again":       {account: mail.Account{HistoryID: 100, RecheckFrom: 90}, want: 90},
		"to be listed from ahead":  {account: mail.Account{HistoryID: 100, RecheckFrom: 110}, want: 100},
		"a resync without listing": {account: mail.Account{HistoryID: 100}, resyncs: []mail.Resync{resync(mail.ResyncListing, 0)}, want: 100},
		"a resync that lists":      {account: mail.Account{HistoryID: 100}, resyncs: []mail.Resync{resync(mail.ResyncListing, 80)}, want: 80},
		"two resyncs":              {account: mail.Account{HistoryID: 100}, resyncs: []mail.Resync{resync(mail.ResyncListing, 80), resync(mail.ResyncMending, 70)}, want: 70},
		"resyncs that ended":       {account: mail.Account{HistoryID: 100}, resyncs: []mail.Resync{resync(mail.ResyncDone, 80), resync(mail.ResyncFailed, 70)}, want: 100},
		"failures":                 {account: mail.Account{HistoryID: 100}, failed: []mail.HistoryID{90, 60, 95}, want: 59},
		"a failure at the cursor":  {account: mail.Account{HistoryID: 100}, failed: []mail.HistoryID{100}, want: 99},
		"a failure past it":        {account: mail.Account{HistoryID: 100}, failed: []mail.HistoryID{200}, want: 100},
		"a failure of who knows":   {account: mail.Account{HistoryID: 100}, failed: []mail.HistoryID{0}, want: 100},
		"the first failure ever":   {account: mail.Account{HistoryID: 100}, failed: []mail.HistoryID{1}, want: 0},
		"the smallest of all": {
			account: mail.Account{HistoryID: mail.MaxHistoryID, RecheckFrom: 50},
			resyncs: []mail.Resync{resync(mail.ResyncMending, 40)}, failed: []mail.HistoryID{31}, want: 30,
		},
	} {
		if got := mailbox.InStepTo(c.account, c.resyncs, c.failed); got != c.want {
			t.Errorf("%s: in step to %d, want %d", name, got, c.want)
		}
	}
}

func TestStandingOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	resyncs := []mail.Resync{
		{ID: "ended", State: mail.ResyncDone, StartedAt: at.Add(-time.Hour)},
		{ID: "later", State: mail.ResyncListing, StartedAt: at.Add(time.Minute)},
		{ID: "first", State: mail.ResyncMending, StartedAt: at, Done: 3, Total: 5},
	}
	s := mailbox.StandingOf(mail.Account{HistoryID: 9}, resyncs, []mail.HistoryID{0, 5})
	if s.InStepTo != 4 || s.Failures != 2 || s.Resync == nil || s.Resync.ID != "first" {
		t.Errorf("standing %+v", s)
	}
	if s := mailbox.StandingOf(mail.Account{}, resyncs[:1], nil); s.Resync != nil {
		t.Errorf("standing %+v", s)
	}
}
