// Package content turns a Gmail API message (format=full) into what a person would read.
//
// [Of] never fails and never panics: mail owes us nothing, so what can be kept is kept and the rest
// is left out. It is pure: it makes no call, reads no clock and leaves the message as it is.
//
// It promises that every string is valid UTF-8 without control characters (text and HTML keep tabs
// and line ends), that every date is one Firestore can hold, and that summary and body each fit a
// Firestore document (limits.go), cut at a character. What was cut from text, HTML or the list of
// attachments shows as Truncated; a cut of the summary, which only hostile mail needs, does not.
//
// A body's text is its inline text/plain parts in their order, its HTML the inline text/html parts.
// Of alternatives the simplest text and the richest HTML are taken. Every other leaf is an
// attachment, inline pictures and whole messages (message/rfc822) included; what such a message
// holds is not looked into.
//
// Gmail leaves the data of a large part out and gives an attachment id in its place. A text part of
// that kind is listed as an attachment, so that its PartID finds it, and the body is Truncated.
package content

import (
	"html"
	"net/mail"
	"time"

	"google.golang.org/api/gmail/v1"

	mailyard "mailyard.internal/mailyard/shared/mail"
)

// Of returns what a person would read of the message. With keepBody false the body holds its list
// of attachments alone. A nil message, or one without a payload, is an empty one.
func Of(m *gmail.Message, keepBody bool) (mailyard.Summary, mailyard.Body) {
	if m == nil {
		return mailyard.Summary{}, mailyard.Body{}
	}
	return summaryOf(m), bodyOf(m.Payload, keepBody)
}

func summaryOf(m *gmail.Message) mailyard.Summary {
	var h headers
	if m.Payload != nil {
		h = m.Payload.Headers
	}
	return mailyard.Summary{
		From:         senders(h.first("From")),
		To:           recipients(h.joined("To")),
		Cc:           recipients(h.joined("Cc")),
		Subject:      cut(line(h.first("Subject")), maxLine),
		Snippet:      cut(clean(html.UnescapeString(cut(m.Snippet, maxHeader))), maxLine), // Gmail escapes it as HTML
		Date:         dateOf(m.InternalDate, h.first("Date")),
		SizeEstimate: max(0, m.SizeEstimate),
	}
}

// dateOf prefers Gmail's own date, in milliseconds, to the header, which the sender chose.
func dateOf(internalMillis int64, header string) time.Time {
	if t := time.UnixMilli(internalMillis).UTC(); internalMillis != 0 && storable(t) {
		return t
	}
	if t, err := mail.ParseDate(unfold(header)); err == nil && storable(t.UTC()) {
		return t.UTC()
	}
	return time.Time{}
}

// storable reports whether a Firestore timestamp can hold t: years 1 to 9999
// (google.protobuf.Timestamp). Another would fail the whole write.
func storable(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9999 }
