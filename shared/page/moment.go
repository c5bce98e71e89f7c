package page

import (
	"fmt"
	"time"
)

// A Moment is a time as a page shows it: how far it is, and on asking when exactly.
type Moment struct {
	Text    string // as "3 min ago", or "in 2 h"; empty for no time
	ISO     string
	Exactly string
}

// At shows t as it is seen at now. It is told in whole minutes, so that a page does not change for nothing.
func At(now, t time.Time) Moment {
	if t.IsZero() {
		return Moment{}
	}
	text := "just now"
	if d := now.Sub(t); d >= time.Minute {
		text = Length(d) + " ago"
	} else if d <= -time.Minute {
		text = "in " + Length(-d)
	}
	return Moment{text, t.UTC().Format(time.RFC3339), t.UTC().Format("2006-01-02 15:04:05 UTC")}
}

// Length is a length of time in its largest unit.
func Length(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "under a minute"
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
