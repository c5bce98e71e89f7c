package mailbox

import "mailyard.internal/mailyard/shared/mail"

// A Standing is where an account's mirror stands.
type Standing struct {
	Account  mail.Account
	InStepTo mail.HistoryID
	Failures int          // unresolved
	Resync   *mail.Resync // the open one that began first; nil where none is open
}

// StandingOf sums an account up from its resyncs, of which only the open ones count, and from the
// historyId of each of its unresolved failures, 0 where that is not known.
func StandingOf(a mail.Account, resyncs []mail.Resync, failed []mail.HistoryID) Standing {
	s := Standing{Account: a, InStepTo: InStepTo(a, resyncs, failed), Failures: len(failed)}
	for _, r := range resyncs {
		if r.Open() && (s.Resync == nil || r.StartedAt.Before(s.Resync.StartedAt)) {
			s.Resync = &r
		}
	}
	return s
}

// InStepTo is the historyId up to which nothing of the account has failed or is waiting to be listed:
// the smallest of its cursor, the cursor it is to be listed again from, the baseline of each open
// resync, and one less than the historyId of each unresolved failure. What is not known (0) does not
// count, except that an account without a cursor is in step to nothing.
func InStepTo(a mail.Account, resyncs []mail.Resync, failed []mail.HistoryID) mail.HistoryID {
	step := a.HistoryID
	if a.RecheckFrom > 0 {
		step = min(step, a.RecheckFrom)
	}
	for _, r := range resyncs {
		if r.Open() && r.Baseline > 0 {
			step = min(step, r.Baseline)
		}
	}
	for _, id := range failed {
		if id > 0 {
			step = min(step, id-1)
		}
	}
	return step
}
