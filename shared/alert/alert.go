// Package alert says of what people are told, and when. It does no I/O: each transition is a pure
// function, and a store repeats it until its conditional write succeeds, so that of many functions that
// see the same trouble one tells of it.
//
// Letters of one fingerprint share an alert. The first is told at once, and opens a window of [Window];
// what dies within it is told as one count when it ends, which opens the next. While letters stay open
// people are reminded once a day. Any other alert is told once, and not again for a day.
//
// An alert is recorded before it is sent. Until it was sent it stays due, so that neither a webhook that
// is down nor the end of a process loses it; only a process that ends between the webhook's answer and
// the record makes it come twice.
package alert

import "time"

const (
	// Window is how long further letters of a fingerprint are only counted.
	Window = 10 * time.Minute
	// RemindAfter is how long people are left alone with letters that stay open.
	RemindAfter = 24 * time.Hour
	// sendWithin is how long who claims an alert has for sending it; after that it is due again.
	sendWithin = time.Minute
	// lag is how far a letter's death may lie before the moment at which it is counted.
	lag = time.Minute
	// firstPause and lastPause are between attempts to send, when the webhook does not say.
	firstPause, lastPause = 30 * time.Second, time.Hour
)

// An Alert is what is kept of one cause for telling people.
type Alert struct {
	Key string
	// Letters says whether it is about dead letters; then it is known by their fingerprint and cause.
	Letters bool
	Cause
	// Title and Lines are the words of any other alert.
	Title string
	Lines []string

	Unsent    bool      // something is to be told that nobody was told of yet
	OpenUntil time.Time // further letters are only counted until then
	SentAt    time.Time // zero where nothing was ever sent
	DueAt     time.Time // when somebody must return to it
	Failures  int       // attempts to send in a row that came to nothing
	Since     time.Time // letters that died after this are counted…
	Told      int       // …but for so many of them, which were told already, if they are still dead
	Claim     string    // who sends

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// A Cause is what letters of one alert share.
type Cause struct {
	Fingerprint string
	Consumer    string
	Lane        string // empty where the consumer is no lane's
	Code        string
	Topic       string
	// HealsItself marks letters that are redriven without an operator, GivenUp those that were as often as
	// they may be.
	HealsItself, GivenUp bool
}

// claimed is the alert when somebody sets out to tell of it. claim names who.
func (a Alert) claimed(now time.Time, claim string) Alert {
	a.Unsent, a.Claim, a.DueAt = true, claim, now.Add(sendWithin)
	return a
}

// LetterDied takes a letter into account. It returns true where the letter is to be told at once, by whom
// claim names; where it returns false, it is told with the others of its window, or was told before.
func (a Alert) LetterDied(cause Cause, died, now time.Time, claim string) (Alert, bool) {
	if now.Before(a.OpenUntil) || a.Unsent || died.Before(a.Since) {
		return a, false
	}
	a.Letters, a.Cause = true, cause
	a.OpenUntil = now.Add(Window)
	return a.claimed(now, claim), true
}

// Noticed is an alert about something else than letters. It returns true where it is to be told now: not
// where it was told within the last day, or is being told.
func (a Alert) Noticed(title string, lines []string, now time.Time, claim string) (Alert, bool) {
	if a.Unsent || !a.SentAt.IsZero() && now.Before(a.SentAt.Add(RemindAfter)) {
		return a, false
	}
	a.Title, a.Lines = title, lines
	return a.claimed(now, claim), true
}

// Returned is the alert when somebody returns to it because it is due. Its window is closed, so that a
// letter which dies from now on is told at once, and none falls between count and close.
func (a Alert) Returned(now time.Time, claim string) (Alert, bool) {
	if a.DueAt.After(now) {
		return a, false
	}
	a.OpenUntil = time.Time{}
	a.Claim, a.DueAt = claim, now.Add(sendWithin)
	return a, true
}

// Counted are the letters of an alert as they stand.
type Counted struct {
	Open   int       // dead now
	Since  int       // of these, those that died after the alert's Since…
	Before int       // …and of those, the ones that died before it was last sent
	Oldest time.Time // since when the oldest is dead
	Late   int       // those that died within the last [lag]
	At     time.Time
}

// A Need says what is to be told.
type Need string

// What is to be told.
const (
	Nothing  Need = ""
	First    Need = "first"    // letters where there were none
	More     Need = "more"     // letters since the last time
	Reminder Need = "reminder" // letters that are still open
	Notice   Need = "notice"   // something else than letters
)

// Need says what is to be told of it, and how many letters are new.
func (a Alert) Need(c Counted) (Need, int) {
	fresh := c.Since - min(a.Told, c.Before)
	switch {
	case !a.Letters && a.Unsent:
		return Notice, 0
	case !a.Letters || c.Open == 0:
		return Nothing, 0
	case a.SentAt.IsZero():
		return First, fresh
	case fresh > 0:
		return More, fresh
	case a.GivenUp: // its fingerprint's own alert reminds of it
		return Nothing, 0
	case !c.At.Before(a.SentAt.Add(RemindAfter)):
		return Reminder, 0
	}
	return Nothing, 0
}

// CountAfter is the moment from which [Counted.Late] counts.
func CountAfter(now time.Time) time.Time { return now.Add(-lag) }

// Sent is the alert after people were told.
func (a Alert) Sent(c Counted) Alert {
	a.Unsent, a.Failures, a.Claim = false, 0, ""
	a.SentAt = c.At
	if !a.Letters {
		a.DueAt = c.At.Add(RemindAfter)
		return a
	}
	a.OpenUntil, a.DueAt = c.At.Add(Window), c.At.Add(Window)
	a.Since, a.Told = CountAfter(c.At), c.Late
	return a
}

// Quiet is the alert when there is nothing to tell. It returns false where it is not needed any more.
func (a Alert) Quiet(c Counted) (Alert, bool) {
	a.Unsent, a.Claim, a.OpenUntil = false, "", time.Time{}
	a.DueAt = a.SentAt.Add(RemindAfter)
	needed := a.Letters && !a.GivenUp && c.Open > 0
	if !needed {
		a.DueAt = c.At // to be looked at again, should it not be removed
	}
	return a, needed
}

// Resting reports whether nobody is about to tell of it, and no letter counts on its being told.
func (a Alert) Resting() bool { return a.Claim == "" && !a.Unsent && a.OpenUntil.IsZero() }

// HoldKey is the key of the alert that holds all others back, while its window is open: the webhook wants
// to be called by nobody.
const HoldKey = "hold"

// Held is that alert when the webhook has said until when.
func (a Alert) Held(until time.Time) Alert {
	if until.After(a.OpenUntil) {
		a.OpenUntil, a.DueAt = until, until
	}
	return a
}

// NotSent is the alert after telling came to nothing. retryAt is when the webhook wants to be called
// again; zero where it did not say.
func (a Alert) NotSent(now, retryAt time.Time) Alert {
	pause := min(lastPause, firstPause<<min(a.Failures, 10))
	a.Failures++
	a.Unsent, a.Claim = true, ""
	a.DueAt = now.Add(pause)
	if retryAt.After(a.DueAt) {
		a.DueAt = retryAt
	}
	return a
}
