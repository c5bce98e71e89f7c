package ledger

import "time"

// A Held is a dead letter as its -inspect subscription holds it.
type Held struct {
	Handle     string // by which it is acknowledged or given back
	MessageID  string
	Published  time.Time
	Data       []byte
	Attributes map[string]string
}

// Bare reports whether Pub/Sub forwarded the letter itself: it has no autopsy.
func (h Held) Bare() bool {
	return h.Attributes[ForwardedSubscription] != "" && !IsLetter(h.Attributes)
}
