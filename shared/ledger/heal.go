package ledger

import "time"

// pauses are how long a letter waits before each of the redrives that it is given by itself, each counted
// from its death. They grow from a blip of minutes to an outage over a week-end.
var pauses = []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 72 * time.Hour}

// nextHeal is when a letter that died at that moment is redriven by itself: zero where its cause was no
// dependency's, where the ledger does not hold its data, and after the last time.
func (e Entry) nextHeal(died time.Time) time.Time {
	if !e.Code.IsDependency() || e.DataOmitted || e.Heals >= len(pauses) {
		return time.Time{}
	}
	return died.Add(pauses[e.Heals])
}

// HealClaimed claims the letter for a redrive by itself, which counts also where it comes to nothing:
// so even a letter that cannot be published is tried a few times only.
func (e Entry) HealClaimed(c Claim) Entry {
	e = e.Claimed(c)
	e.Heals++
	e.HealAt = e.nextHeal(c.At)
	return e
}

// HealsItself reports whether the letter still is redriven by itself.
func (e Entry) HealsItself() bool { return !e.HealAt.IsZero() }

// GivenUp reports whether the letter was redriven by itself as often as it may be, and is dead again.
func (e Entry) GivenUp() bool {
	return e.State == Dead && e.Heals >= len(pauses) && e.Code.IsDependency()
}

// RedriveClaimed claims the letter for an operator's redrive, after which it may be redriven by itself
// as often again.
func (e Entry) RedriveClaimed(c Claim) Entry {
	e = e.Claimed(c)
	e.Heals = 0
	return e
}
