package mailing

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	"mailyard.internal/mailyard/shared/mail"
)

// A Payload is what one digest tells.
type Payload struct {
	Mailbox      string // its address
	Since, Until time.Time
	Unread       int
	New          int
	// Senders are those of the new messages, who sent most first; Others counts the messages of whoever is
	// not among them.
	Senders     []SenderNews
	Others      int
	DeadLetters int
}

// A SenderNews is what one sender has sent.
type SenderNews struct {
	From     string
	Count    int
	Subjects []string // the newest ones
}

// What a payload holds at most.
const (
	maxSenders  = 10
	maxSubjects = 3  // of a sender
	maxName     = 80 // characters
	maxSubject  = 120
)

// NewsOf groups messages, the newest first, by their sender. total counts all that there are, of which
// the messages may be the newest alone.
func NewsOf(messages []mail.Summary, total int) (senders []SenderNews, others int) {
	bySender := map[string]*SenderNews{}
	var order []*SenderNews
	for _, m := range messages {
		from := Line(m.From, maxName)
		if from == "" {
			from = "(no sender)"
		}
		news := bySender[from]
		if news == nil {
			news = &SenderNews{From: from}
			bySender[from] = news
			order = append(order, news)
		}
		news.Count++
		if len(news.Subjects) < maxSubjects {
			subject := Line(m.Subject, maxSubject)
			if subject == "" {
				subject = "(no subject)"
			}
			news.Subjects = append(news.Subjects, subject)
		}
	}
	slices.SortStableFunc(order, func(a, b *SenderNews) int { return cmp.Compare(b.Count, a.Count) })
	others = max(total, len(messages))
	for _, news := range order[:min(len(order), maxSenders)] {
		senders = append(senders, *news)
		others -= news.Count
	}
	return senders, others
}

// Line is a text that somebody else wrote, fit for one line of at most that many characters: without
// control characters, and without those that turn the direction of what stands around it.
func Line(text string, characters int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), r == '\u2028', r == '\u2029':
			return ' '
		case unicode.IsControl(r), turnsDirection(r), r == '\uFEFF':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	if len(runes) <= characters {
		return text
	}
	return strings.TrimRight(string(runes[:characters-1]), " \u200d") + "…"
}

// turnsDirection has the embeddings, overrides and isolates of Unicode's bidirectional algorithm.
func turnsDirection(r rune) bool {
	return r >= '\u202A' && r <= '\u202E' || r >= '\u2066' && r <= '\u2069'
}
