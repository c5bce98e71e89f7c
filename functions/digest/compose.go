package digest

import (
	"bytes"
	_ "embed"
	"fmt"
	htmltemplate "html/template"
	"strconv"
	"sync"
	texttemplate "text/template"
	"time"

	gomail "github.com/wneessen/go-mail"

	"mailyard.internal/mailyard/shared/mailing"
)

// A Composer builds a digest's mail.
//
// What others wrote, as senders and subjects, stands in the bodies alone and never in a header; in the
// HTML it is escaped, and keeps its direction to itself.
type Composer struct {
	from string
	link func(subscriber string) (string, error)
	now  func() time.Time
}

// NewComposer returns what builds mails from that address. link gives a subscriber's link to unsubscribe.
func NewComposer(from string, link func(subscriber string) (string, error), now func() time.Time) *Composer {
	return &Composer{from, link, now}
}

var (
	//go:embed digest.txt
	digestText string
	//go:embed digest.html
	digestHTML string

	// Parsed on first use: every function is in one program, and only this one has mails.
	textBody = sync.OnceValue(func() *texttemplate.Template {
		return texttemplate.Must(texttemplate.New("text").Funcs(wording).Parse(digestText))
	})
	htmlBody = sync.OnceValue(func() *htmltemplate.Template {
		return htmltemplate.Must(htmltemplate.New("html").Funcs(wording).Parse(digestHTML))
	})
	wording = map[string]any{"counted": counted}
)

// counted is a number with its noun.
func counted(n int, noun, plural string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + plural
}

type body struct {
	mailing.Payload
	Title, Unsubscribe, Since, Until string
}

// Compose gives the whole message. A subscriber's address that no mail can go to is an errBadMail.
func (c *Composer) Compose(m mailing.Mailing, s mailing.Subscriber) ([]byte, error) {
	link, err := c.link(s.ID)
	if err != nil {
		return nil, fmt.Errorf("%w: sign the link of subscriber %s: %w", errBadMail, s.ID, err)
	}
	const moment = "Monday, 2 January 2006 15:04 MST"
	p := m.Payload
	b := body{
		Payload: p, Unsubscribe: link, Title: titles[m.Frequency],
		Since: p.Since.In(s.Zone()).Format(moment), Until: p.Until.In(s.Zone()).Format(moment),
	}
	var text, html bytes.Buffer
	if err := textBody().Execute(&text, b); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadMail, err)
	}
	if err := htmlBody().Execute(&html, b); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadMail, err)
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if msg.FromFormat("Mailyard", c.from) != nil || msg.To(s.Email) != nil { // its error would repeat the address
		return nil, fmt.Errorf("%w: no mail can go to the address of subscriber %s", errBadMail, s.ID)
	}
	msg.Subject(fmt.Sprintf("%s: %d new, %d unread", b.Title, p.New, p.Unread))
	msg.SetDateWithValue(c.now())
	msg.SetGenHeader("List-Unsubscribe", "<"+link+">")
	msg.SetGenHeader("List-Unsubscribe-Post", "List-Unsubscribe=One-Click") // RFC 8058
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader("X-Mailyard-Mailing", m.ID)
	msg.SetBodyString(gomail.TypeTextPlain, text.String())
	msg.AddAlternativeString(gomail.TypeTextHTML, html.String())
	var raw bytes.Buffer
	if _, err := msg.WriteTo(&raw); err != nil {
		return nil, fmt.Errorf("%w: write mailing %s: %w", errBadMail, m.ID, err)
	}
	return raw.Bytes(), nil
}

var titles = map[mailing.Frequency]string{mailing.Daily: "Daily digest", mailing.Weekly: "Weekly digest"}
