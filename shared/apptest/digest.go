package apptest

import (
	"fmt"
	"net/http"
	"time"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mailing"
)

// LinkDigestSender links the mailbox that sends the digests.
func (y *Yard) LinkDigestSender() *gmailsim.Mailbox {
	y.t.Helper()
	box, err := y.Gmail.AddMailbox(DigestSender, "digest-sender")
	y.must(err, "add the sender's mailbox")
	y.Link(box, "digest-sender", 1)
	return box
}

// Subscribe makes a subscriber who was there before any run that begins from now on.
func (y *Yard) Subscribe(s mailing.Subscription) mailing.Subscriber {
	y.t.Helper()
	wanted, err := s.Check()
	y.must(err, "check the subscription")
	made, err := y.DB.ChangeSubscriber(y.t.Context(), wanted.ID, func(read mailing.Subscriber) (mailing.Subscriber, bool) {
		return read.Renewed(wanted, y.Clock.Now().Add(-24*time.Hour)), true
	})
	y.must(err, "save the subscriber")
	return made
}

// Subscriber reads a subscriber.
func (y *Yard) Subscriber(id string) mailing.Subscriber {
	y.t.Helper()
	s, found, err := y.DB.Subscriber(y.t.Context(), id)
	y.must(err, "read the subscriber")
	if !found {
		y.t.Fatalf("there is no subscriber %s", id)
	}
	return s
}

// Mailing reads a subscriber's mailing of a number.
func (y *Yard) Mailing(subscriber string, sequence int64) mailing.Mailing {
	y.t.Helper()
	m, found, err := y.DB.Mailing(y.t.Context(), mailing.MailingID(subscriber, sequence))
	y.must(err, "read the mailing")
	if !found {
		y.t.Fatalf("there is no mailing %d of %s", sequence, subscriber)
	}
	return m
}

// Run reads the run of a day.
func (y *Yard) Run(day mailing.Day) mailing.Run {
	y.t.Helper()
	r, found, err := y.DB.Run(y.t.Context(), day)
	y.must(err, "read the run")
	if !found {
		y.t.Fatalf("there is no run of %s", day)
	}
	return r
}

// Digest calls Digest as a schedule does that is for that moment, and returns its day in UTC.
func (y *Yard) Digest(at time.Time) mailing.Day {
	y.t.Helper()
	header := http.Header{"X-Cloudscheduler-Scheduletime": {at.UTC().Format(time.RFC3339)}}
	if status := y.PostBody("Digest", nil, header); status != http.StatusNoContent {
		y.t.Fatalf("Digest answered %d; the log says %s", status, y.Log)
	}
	return mailing.DayOf(at, time.UTC)
}

// FinishRun has a run go on, by tick after tick, until it is done.
func (y *Yard) FinishRun(day mailing.Day) mailing.Run {
	y.t.Helper()
	for range 50 {
		y.Settle()
		r := y.Run(day)
		if !r.Open() {
			return r
		}
		y.Clock.Advance(10 * time.Minute)
		y.Tick()
	}
	y.t.Fatalf("the run of %s does not end: %+v; the log says %s", day, y.Run(day), y.Log)
	return mailing.Run{}
}

// SentTo counts the mails that were sent to each address.
func (y *Yard) SentTo() map[string]int {
	counts := map[string]int{}
	for _, m := range y.Gmail.Sent() {
		for _, to := range m.To {
			counts[to]++
		}
	}
	return counts
}

// Accounted is empty where a run's report accounts for everybody, and says what it does not otherwise.
func Accounted(r mailing.Run) string {
	if wrong := r.Counts.Differences(); len(wrong) > 0 {
		return fmt.Sprintf("%v in %+v", wrong, r.Counts)
	}
	return ""
}
