package mailing

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Phase is where a run stands.
type Phase string

// The phases of a run, in their order.
const (
	Generate Phase = "generate"
	Send     Phase = "send"
	Advance  Phase = "advance"
	Report   Phase = "report"
	Finished Phase = "done"
)

// A Run is the mailings of one day. Its record is all that a step needs to go on where the last one
// stopped.
type Run struct {
	Day    Day
	Phase  Phase
	After  string // the phase is past that id
	Counts Counts
	// HandedTo is the later run that takes over what this one has not sent; empty for none.
	HandedTo Day

	// StartedAt is the frozen upper bound too: who subscribes later waits for the next run.
	StartedAt  time.Time
	FinishedAt time.Time

	// InARow counts sends that failed one after the other, and Pauses how often that has paused the run
	// since a send last succeeded.
	InARow, Pauses int
	PausedUntil    time.Time
	// PaceUntil is when the sender's allowance of what has been claimed is used up.
	PaceUntil time.Time

	// Claim names who works on the run now, until DueAt. From DueAt on anybody may go on with it.
	Claim string
	DueAt time.Time

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// Open reports whether the run is still to end.
func (r Run) Open() bool { return r.Phase != Finished }

// Free reports whether nobody works on the run at that moment, and it is not to wait.
func (r Run) Free(at time.Time) bool {
	return (r.Claim == "" || !r.DueAt.After(at)) && !r.PausedUntil.After(at)
}

// Sending reports whether the run may still send something.
func (r Run) Sending() bool { return r.Phase == Generate || r.Phase == Send }

// Closed is the run when a later one takes over what it has not sent.
func (r Run) Closed(by Day, now time.Time) Run {
	r.Phase, r.After, r.HandedTo, r.Claim, r.DueAt, r.PausedUntil = Advance, "", by, "", now, time.Time{}
	return r
}

// Reopened is the run when one of its mailings is to be sent again.
func (r Run) Reopened(now time.Time) Run {
	if r.Sending() {
		return r
	}
	r.Phase, r.After, r.Claim, r.DueAt, r.FinishedAt = Send, "", "", now, time.Time{}
	return r
}

// Paused is the run when too much has failed in a row. Each pause is twice as long as the one before; the
// first send after it decides whether another follows.
func (r Run) Paused(now time.Time) Run {
	pause := firstPause << min(r.Pauses, 4)
	r.Pauses++
	r.InARow = BreakAfter - 1
	r.PausedUntil, r.DueAt = now.Add(pause), now.Add(pause)
	return r
}

// BreakAfter is how many sends may fail in a row before the run is paused.
const BreakAfter = 10

// firstPause is doubled up to sixteen times itself.
const firstPause = 15 * time.Minute

// At is the run's place, as a message names it.
func (r Run) At() Request { return Request{r.Day, r.Phase, r.After} }

// Counts say what became of a run's subscribers.
type Counts struct {
	Read     int
	Filtered int // deleted, too new, not due, or their account is gone
	Daily    int // mailings made
	Weekly   int
	Busy     int // whose last mailing is in an earlier run's hands

	Sent         int
	Failed       int // certainly not sent
	Processing   int // outcome not known
	Unsubscribed int // between making and sending
	Left         int // for a later run
	Retried      int // of all these, for how many more than one call was made
}

// Add is the sum of what two pages of a run counted.
func (c Counts) Add(d Counts) Counts {
	c.Read += d.Read
	c.Filtered += d.Filtered
	c.Daily += d.Daily
	c.Weekly += d.Weekly
	c.Busy += d.Busy
	return c
}

// Differences is a sentence for each sum that does not come out; none where everybody is accounted for.
func (c Counts) Differences() []string {
	var wrong []string
	if accounted := c.Filtered + c.Daily + c.Weekly + c.Busy; accounted != c.Read {
		wrong = append(wrong, fmt.Sprintf("%d subscribers were read, but %d are accounted for", c.Read, accounted))
	}
	if outcomes := c.Sent + c.Failed + c.Processing + c.Unsubscribed + c.Left; outcomes != c.Daily+c.Weekly {
		wrong = append(wrong, fmt.Sprintf("%d mailings were made, but %d have an outcome", c.Daily+c.Weekly, outcomes))
	}
	return wrong
}

// A Request is the data of a message on digest-send: it asks to go on with a run that is at that place.
// One that comes late, or twice, finds the run elsewhere, and nothing to do.
type Request struct {
	Run   Day    `json:"run"`
	Phase Phase  `json:"phase"`
	After string `json:"after"`
}

// Encode gives the request's data.
func (r Request) Encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request for run %s: %w", r.Run, err)
	}
	return data, nil
}

// DecodeRequest reads the data of a message on digest-send.
func DecodeRequest(data []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(data, &r); err != nil {
		return Request{}, fmt.Errorf("not the JSON of a digest's step: %w", err)
	}
	if !r.Run.Valid() {
		return Request{}, errors.New("run is not a date; write it as 2026-11-30")
	}
	switch r.Phase {
	case Generate, Send, Advance, Report:
		return r, nil
	}
	return Request{}, errors.New("phase is none of generate, send, advance, report")
}
