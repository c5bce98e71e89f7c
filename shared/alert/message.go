package alert

import (
	"fmt"
	"time"
)

// A Message is what people read: words, a place to look at and a command to type. It holds no mail
// content, no address and no token.
type Message struct {
	Title string
	Lines []string
	Link  string // empty where there is no place to look at
	Typed string // a command; empty where there is none
}

// Message puts into words what is to be told. project is where the letters are, for the link.
func (a Alert) Message(need Need, fresh int, c Counted, project string) Message {
	if !a.Letters {
		return Message{Title: a.Title, Lines: a.Lines}
	}
	from := a.Lane
	if from == "" {
		from = a.Consumer
	}
	m := Message{Typed: "go run ./scripts/mailyard dlq list --fingerprint " + a.Fingerprint}
	if a.Topic != "" { // of a letter that could not be read nobody knows it
		m.Link = "https://console.cloud.google.com/cloudpubsub/subscription/detail/" + a.Topic + "-dead-letter-inspect?project=" + project + "&tab=messages"
	}
	switch need {
	case Reminder:
		m.Title = fmt.Sprintf("Still open: %s of %s (%s)", letters(c.Open), from, a.Code)
	default:
		m.Title = fmt.Sprintf("%s of %s (%s)", letters(fresh), from, a.Code)
	}
	m.Lines = append(m.Lines, fmt.Sprintf("Open: %d, the oldest for %s.", c.Open, duration(c.At.Sub(c.Oldest))))
	if a.GivenUp {
		m.Lines = append(m.Lines, "Redriven by itself as often as it may be, and dead again: it now waits for you.")
	} else if a.HealsItself {
		m.Lines = append(m.Lines, "It will be redriven by itself, when what it needs is up again.")
	}
	return m
}

func letters(n int) string {
	if n == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", n)
}

// duration is a length of time in its two largest units at most.
func duration(d time.Duration) string {
	days := int(d / (24 * time.Hour))
	hours := int(d/time.Hour) % 24
	minutes := int(d/time.Minute) % 60
	switch {
	case days > 0:
		return fmt.Sprintf("%d d %d h", days, hours)
	case hours > 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min", minutes)
	}
	return "less than a minute"
}
