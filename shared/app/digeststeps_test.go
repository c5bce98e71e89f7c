package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/digest"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mailing"
)

// subscribeSome makes so many daily subscribers of one mailbox.
func subscribeSome(t *testing.T, y *apptest.Yard, account string, n int) []mailing.Subscriber {
	t.Helper()
	made := make([]mailing.Subscriber, n)
	for i := range made {
		made[i] = y.Subscribe(mailing.Subscription{Account: account, Email: fmt.Sprintf("s%03d@example.net", i)})
	}
	return made
}

// outcomes is what is left of a run when it is over.
type outcomes struct {
	counts    mailing.Counts
	sent      map[string]int
	sequences map[string]int64
}

func outcomesOf(t *testing.T, y *apptest.Yard, day mailing.Day, subscribers []mailing.Subscriber) outcomes {
	t.Helper()
	o := outcomes{y.Run(day).Counts, y.SentTo(), map[string]int64{}}
	ids := make([]string, len(subscribers))
	for i, s := range subscribers {
		ids[i] = s.ID
	}
	now, err := y.DB.Subscribers(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range now {
		o.sequences[s.Email] = s.Sequence
	}
	return o
}

// Every message twice, at the same time, and every earlier one again and again in any order: it ends as
// if each had come once and in order.
func TestDigestStepsTwiceAndOutOfOrder(t *testing.T) {
	t.Parallel()
	const many = 250
	yard := func() (*apptest.Yard, []mailing.Subscriber) {
		y, account := digestYard(t)
		return y, subscribeSome(t, y, account.ID, many)
	}
	plain, subscribers := yard()
	plain.Start()
	day := plain.Digest(noon(plain))
	plain.FinishRun(day)
	want := outcomesOf(t, plain, day, subscribers)
	if want.counts.Sent != many || len(want.sent) != many {
		t.Fatalf("in order it comes to %+v", want.counts)
	}

	y, subscribers := yard()
	tap := y.Tap(lane.DigestTopic)
	random := rand.New(rand.NewPCG(7, 7))
	day = y.Digest(noon(y))
	var all [][]byte
	deliveries := 0
	deliver := func(messages ...[]byte) {
		var wait sync.WaitGroup
		for _, data := range messages {
			deliveries++
			id := fmt.Sprint(deliveries)
			wait.Go(func() {
				if status := y.Post("DigestSend", apptest.Push{Data: data, MessageID: id, Attempt: 1}); status != http.StatusNoContent && status != http.StatusServiceUnavailable {
					t.Errorf("a step was answered %d", status)
				}
			})
		}
		wait.Wait()
	}
	for rounds := 0; y.Run(day).Open(); rounds++ {
		if rounds > 200 {
			t.Fatalf("the run does not end: %+v", y.Run(day))
		}
		news := y.Pull(tap)
		if len(news) == 0 { // a step was lost between two that took it from each other
			y.Clock.Advance(10 * time.Minute)
			y.Tick()
			continue
		}
		for _, m := range news {
			all = append(all, m.Data)
			batch := [][]byte{m.Data, m.Data}
			for range 3 {
				batch = append(batch, all[random.IntN(len(all))])
			}
			random.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			deliver(batch...)
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	deliver(all...) // long after the run has ended
	got := outcomesOf(t, y, day, subscribers)
	if got.counts != want.counts {
		t.Errorf("the report is %+v, want %+v", got.counts, want.counts)
	}
	for email, n := range got.sent {
		if n != 1 {
			t.Errorf("%s got %d mails", email, n)
		}
	}
	for email, sequence := range want.sequences {
		if got.sequences[email] != sequence || got.sent[email] != 1 {
			t.Errorf("%s is at %d after %d mails", email, got.sequences[email], got.sent[email])
		}
	}
	t.Logf("%d deliveries of %d messages", deliveries, len(all))
}

// A sender that fails in a row is left in peace for a while, and nobody loses more than those mails.
func TestDigestBreaker(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	subscribers := subscribeSome(t, y, account.ID, 60)
	fault, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.send", Status: 503, After: true})
	if err != nil {
		t.Fatal(err)
	}
	y.Start()
	day := y.Digest(noon(y))
	y.Settle()
	run := y.Run(day)
	if calls := len(y.Gmail.Calls("messages.send")); calls != mailing.BreakAfter || !run.PausedUntil.After(y.Clock.Now()) || run.Phase != mailing.Send {
		t.Fatalf("after %d calls the run is %+v", calls, run)
	}
	if log := y.Log.String(); !strings.Contains(log, "are paused until") || !strings.Contains(log, "10 sends failed in a row") {
		t.Errorf("nobody was told: %s", log)
	}
	y.Tick()
	y.Settle()
	if calls := len(y.Gmail.Calls("messages.send")); calls != mailing.BreakAfter {
		t.Errorf("%d calls while the run is paused", calls)
	}
	// One send after the pause decides on the next pause, which is longer.
	y.Clock.Advance(run.PausedUntil.Sub(y.Clock.Now()) + time.Second)
	y.Tick()
	y.Settle()
	again := y.Run(day)
	if calls := len(y.Gmail.Calls("messages.send")); calls != mailing.BreakAfter+1 || again.PausedUntil.Sub(y.Clock.Now()) < 25*time.Minute {
		t.Errorf("after the pause there were %d calls, and the run is paused until %v", calls, again.PausedUntil)
	}
	y.Gmail.RemoveFault(fault)
	y.Clock.Advance(time.Hour)
	y.Tick()
	run = y.FinishRun(day)
	if c := run.Counts; c.Processing != mailing.BreakAfter+1 || c.Sent != len(subscribers)-mailing.BreakAfter-1 || apptest.Accounted(run) != "" {
		t.Errorf("the report is %+v", c)
	}
	for address, n := range y.SentTo() {
		if n != 1 {
			t.Errorf("%s got %d mails", address, n)
		}
	}
}

// What failed is tried by the next two runs, then the next digest's turn comes.
func TestFailedDigestIsTriedAFewTimes(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	s := y.Subscribe(mailing.Subscription{Account: account.ID, Email: "daily@example.com"})
	fault, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.send", Status: 400})
	if err != nil {
		t.Fatal(err)
	}
	y.Start()
	at := noon(y)
	for day := range mailing.MaxAttempts {
		y.Clock.Advance(at.AddDate(0, 0, day).Sub(y.Clock.Now()))
		run := y.FinishRun(y.Digest(at.AddDate(0, 0, day)))
		m, now := y.Mailing(s.ID, 1), y.Subscriber(s.ID)
		spent := day+1 == mailing.MaxAttempts
		if run.Counts.Failed != 1 || run.Counts.Daily != 1 || m.Status != mailing.Failed || m.Error != "bad_request" || m.Attempts != day+1 || (now.Sequence == 2) != spent {
			t.Fatalf("run %d: %+v, %+v, at %d", day, run.Counts, m, now.Sequence)
		}
	}
	y.Gmail.RemoveFault(fault)
	y.Clock.Advance(at.AddDate(0, 0, mailing.MaxAttempts).Sub(y.Clock.Now()))
	y.FinishRun(y.Digest(at.AddDate(0, 0, mailing.MaxAttempts)))
	m := y.Mailing(s.ID, 2)
	if m.Status != mailing.Done || m.Payload.Until.Sub(m.Payload.Since) < 24*time.Hour || y.SentTo()["daily@example.com"] != 1 {
		t.Errorf("the next digest is %+v", m)
	}
}

// What is throttled is tried again within the step.
func TestThrottledDigestIsTriedWithinTheStep(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	s := y.Subscribe(mailing.Subscription{Account: account.ID, Email: "daily@example.com"})
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.send", Status: 429, Times: 2}); err != nil {
		t.Fatal(err)
	}
	y.Start()
	run := y.FinishRun(y.Digest(noon(y)))
	if m := y.Mailing(s.ID, 1); run.Counts.Sent != 1 || run.Counts.Retried != 1 || m.Attempts != 1 || !m.Retried {
		t.Errorf("%+v, %+v", run.Counts, m)
	}
	// A long wait that Gmail asks for pauses the run, and uses up no attempt.
	y.Clock.Advance(24 * time.Hour)
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.send", Status: 429, RetryAfter: time.Hour, Times: 1}); err != nil {
		t.Fatal(err)
	}
	day := y.Digest(noon(y))
	y.Settle()
	if m := y.Mailing(s.ID, 2); m.Status != mailing.Pending || m.Attempts != 0 || !y.Run(day).PausedUntil.After(y.Clock.Now()) {
		t.Errorf("%+v, %+v", m, y.Run(day))
	}
	if run := y.FinishRun(day); run.Counts.Sent != 1 {
		t.Errorf("%+v", run.Counts)
	}
}

// A run that could not send is handed to the next day's: one digest each, not two.
func TestNextRunTakesOver(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	account := y.Link(addMailbox(t, y, "kim@example.com", "refresh"), "refresh", 1)
	subscribers := subscribeSome(t, y, account.ID, 5)
	y.Start()
	at := noon(y)
	first := y.Digest(at) // nobody is linked who may send
	y.Settle()
	if run := y.Run(first); run.Phase != mailing.Send || !run.PausedUntil.After(y.Clock.Now()) {
		t.Fatalf("without a sender the run is %+v", run)
	}
	// Who leaves before it is sent gets nothing, though the mailing is made.
	if _, err := y.DB.ChangeSubscriber(t.Context(), subscribers[0].ID, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		s.DeletedAt = y.Clock.Now()
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	y.LinkDigestSender()
	y.Clock.Advance(24 * time.Hour)
	second := y.Digest(at.AddDate(0, 0, 1))
	run := y.FinishRun(second)
	if c := run.Counts; c.Daily != 4 || c.Sent != 4 || c.Filtered != 1 || apptest.Accounted(run) != "" {
		t.Errorf("the second run says %+v", c)
	}
	if run := y.Run(first); run.Open() || run.HandedTo != second || run.Counts.Left != 5 || apptest.Accounted(run) != "" {
		t.Errorf("the first run says %+v", run)
	}
	if got := y.SentTo(); len(got) != 4 || got[subscribers[1].Email] != 1 {
		t.Errorf("mails went to %v", got)
	}
	if m := y.Mailing(subscribers[1].ID, 1); m.Run != second || m.Attempts != 1 {
		t.Errorf("the mailing is %+v", m)
	}
}

// Who unsubscribes between making and sending gets nothing.
func TestUnsubscribedBeforeSending(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	account := y.Link(addMailbox(t, y, "kim@example.com", "refresh"), "refresh", 1)
	subscribers := subscribeSome(t, y, account.ID, 2)
	y.Start()
	day := y.Digest(noon(y))
	y.Settle()
	if _, err := y.DB.ChangeSubscriber(t.Context(), subscribers[0].ID, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		s.DeletedAt = y.Clock.Now()
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	y.LinkDigestSender()
	y.Clock.Advance(time.Hour)
	y.Tick()
	run := y.FinishRun(day)
	if c := run.Counts; c.Sent != 1 || c.Unsubscribed != 1 || c.Failed != 0 || apptest.Accounted(run) != "" {
		t.Errorf("the report is %+v", c)
	}
	if got := y.SentTo(); got[subscribers[0].Email] != 0 || got[subscribers[1].Email] != 1 {
		t.Errorf("mails went to %v", got)
	}
}

// An operator says what became of mailings of which nobody knows.
func TestResolveMailings(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	subscribers := subscribeSome(t, y, account.ID, 3)
	fault, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.send", Drop: true})
	if err != nil {
		t.Fatal(err)
	}
	y.Start()
	day := y.Digest(noon(y))
	y.FinishRun(day)
	y.Gmail.RemoveFault(fault)
	resolver, err := y.App.DigestResolver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	resolve := func(s mailing.Subscriber, as mailing.ResolvedAs) error {
		_, err := resolver.Resolve(t.Context(), mailing.MailingID(s.ID, 1), mailing.Resolution{Who: "op", As: as, Reason: "looked"})
		return err
	}
	for _, s := range subscribers {
		if m := y.Mailing(s.ID, 1); m.Status != mailing.Processing || m.Error != "no_answer" || y.Subscriber(s.ID).Sequence != 2 {
			t.Fatalf("%+v", m)
		}
	}
	y.Clock.Advance(-y.Clock.Now().Sub(y.Mailing(subscribers[0].ID, 1).ClaimedAt) + time.Minute)
	if err := resolve(subscribers[0], mailing.AsAgain); err != digest.ErrInHand {
		t.Errorf("a mailing that may be being sent was resolved: %v", err)
	}
	if strings.Contains(y.Log.String(), "have been uncertain for an hour") {
		t.Error("people were told too early")
	}
	y.Clock.Advance(time.Hour)
	y.Tick()
	y.Tick()
	if n := strings.Count(y.Log.String(), "3 digests have been uncertain for an hour"); n != 1 {
		t.Errorf("people were told %d times: %s", n, y.Log)
	}
	for i, as := range []mailing.ResolvedAs{mailing.AsSent, mailing.AsFailed, mailing.AsAgain} {
		if err := resolve(subscribers[i], as); err != nil {
			t.Errorf("%s: %v", as, err)
		}
	}
	if err := resolve(subscribers[0], mailing.AsAgain); err != digest.ErrNotUncertain {
		t.Errorf("what was sent is to be sent again: %v", err)
	}
	run := y.FinishRun(day)
	if c := run.Counts; c.Sent != 2 || c.Failed != 1 || c.Processing != 0 || apptest.Accounted(run) != "" {
		t.Errorf("the report is %+v", c)
	}
	if got := y.SentTo(); len(got) != 1 || got[subscribers[2].Email] != 1 {
		t.Errorf("mails went to %v", got)
	}
	m := y.Mailing(subscribers[2].ID, 1)
	if r := m.Resolutions; len(r) != 1 || r[0].Who != "op" || r[0].As != mailing.AsAgain || r[0].Reason != "looked" || r[0].At.IsZero() {
		t.Errorf("the record is %+v", r)
	}
	if y.Subscriber(subscribers[2].ID).Sequence != 2 {
		t.Error("sending again has moved the subscriber once more")
	}
}

// A sender keeps its pace, and what a process before it has claimed counts.
func TestDigestPace(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	subscribeSome(t, y, account.ID, 12)
	const pace = 40 * time.Millisecond
	instance := y.Instance(app.WithDigestPace(pace, time.Millisecond))
	day := y.Digest(noon(y))
	free := time.Now().Add(600 * time.Millisecond)
	step := func() {
		t.Helper()
		data, err := y.Run(day).At().Encode()
		if err != nil {
			t.Fatal(err)
		}
		body := y.Body(apptest.Push{Data: data, MessageID: "1", Attempt: 1})
		if status := y.PostTo(instance, "DigestSend", body, nil); status != http.StatusNoContent {
			t.Fatalf("a step was answered %d: %s", status, y.Log)
		}
	}
	for y.Run(day).Phase == mailing.Generate {
		step()
	}
	read := y.Run(day)
	become := read
	become.PaceUntil = free // as one leaves it that was killed
	if saved, err := y.DB.SaveRun(t.Context(), read, become); err != nil || !saved {
		t.Fatal(saved, err)
	}
	step()
	sent := y.Gmail.Sent()
	if len(sent) != 12 || sent[0].At.Before(free) {
		t.Fatalf("%d mails, the first %v after the moment from which it may", len(sent), sent[0].At.Sub(free))
	}
	// The first mail may be late on its way, which brings the second one nearer to it, and no other.
	if took := sent[11].At.Sub(sent[0].At); took < 9*pace {
		t.Errorf("12 mails took %v, want %v", took, 11*pace)
	}
	if until := y.Run(day).PaceUntil; until.Before(free.Add(11 * pace)) {
		t.Errorf("the record says that the sender is free at %v, %v after it may begin", until, until.Sub(free))
	}
}
