package gmailsim

import (
	"slices"
	"time"
)

// A SentMail is a mail that was sent by messages.send, whether or not the caller got the answer.
type SentMail struct {
	At   time.Time
	From string   // the mailbox
	To   []string // bare addresses
	Raw  []byte   // as it came
}

func (s *Sim) hasSent(m SentMail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m)
}

// Sent returns what was sent since the start or the last ForgetSent, in order.
func (s *Sim) Sent() []SentMail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// ForgetSent starts the record of what was sent again from nothing.
func (s *Sim) ForgetSent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil
}
