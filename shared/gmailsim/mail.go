package gmailsim

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mail is a message to put into a mailbox. The zero value is a short mail in plain text.
type Mail struct {
	From, To, Cc, Subject string
	Text                  string
	HTML                  string // makes the message multipart/alternative
	// Labels are the message's; nil is INBOX and UNREAD, empty is none. Drafts and sent mail have
	// their own.
	Labels []string
	// ThreadID joins a thread; empty begins one.
	ThreadID string
	// Date is Gmail's internal date; zero is now.
	Date time.Time
	// Headers, if not nil, are the message's headers as they are, in place of those made from the
	// fields above.
	Headers []Header
	// Payload, if not nil, is the message's structure in place of Text and HTML. Where it has
	// headers of its own, they are the message's.
	Payload *Part
	// Raw, if not empty, is a whole RFC 5322 message in place of all the fields above but Labels,
	// ThreadID and Date.
	Raw []byte
	// HiddenFor is how long the message answers 404 to messages.get, as fresh mail sometimes does.
	HiddenFor time.Duration
}

// A Header is one header field, its value as it goes over the wire.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Part is a node of a message. Data is what the transfer encoding hid, in the part's own charset.
// A part with a filename is an attachment, and its data is not in the answer but an attachmentId.
type Part struct {
	MimeType string
	Filename string
	Headers  []Header
	Data     []byte
	Parts    []*Part
}

// content is what a mailbox keeps of a Mail; in a mailbox of 100,000 a plain one must stay small.
type content struct {
	from, to, cc, subject, text, html string
	headers                           []Header
	payload                           *Part
}

func newContent(m Mail) (*content, error) {
	if len(m.Raw) == 0 {
		if m.From == "" {
			m.From = "Sam Sender <sam@example.com>"
		}
		return &content{m.From, m.To, m.Cc, m.Subject, m.Text, m.HTML, m.Headers, m.Payload}, nil
	}
	part, err := parsePart(m.Raw, 0)
	if err != nil {
		return nil, fmt.Errorf("raw message: %w; it must be headers, an empty line and a body", err)
	}
	return &content{
		from: header(part.Headers, "From"), to: header(part.Headers, "To"), cc: header(part.Headers, "Cc"),
		subject: header(part.Headers, "Subject"), payload: part,
	}, nil
}

// resend returns the parsed message as a Mail of its own. Gmail puts its own Message-ID in place of
// the sender's, and so does this.
func (c *content) resend(m Mail, messageID string) Mail {
	root := *c.payload
	root.Headers = slices.DeleteFunc(slices.Clone(root.Headers), func(h Header) bool {
		return strings.EqualFold(h.Name, "Message-ID")
	})
	root.Headers = append(root.Headers, Header{"Message-ID", messageID})
	return Mail{
		From: c.from, To: c.to, Cc: c.cc, Subject: c.subject, Payload: &root,
		ThreadID: m.ThreadID, Date: m.Date, Labels: m.Labels, HiddenFor: m.HiddenFor,
	}
}

func header(headers []Header, name string) string {
	for _, h := range headers {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// recipients returns the bare addresses of To and Cc; what is no address is left out.
func (c *content) recipients() []string {
	var all []string
	for _, list := range []string{c.to, c.cc} {
		addresses, _ := mail.ParseAddressList(list)
		for _, address := range addresses {
			all = append(all, address.Address)
		}
	}
	return all
}

// part builds the message's structure with its headers.
func (c *content) part(id, owner string, date int64) *Part {
	root := Part{MimeType: "text/plain", Data: []byte(c.text)}
	switch {
	case c.payload != nil:
		root = *c.payload
	case c.html != "":
		root = Part{MimeType: "multipart/alternative", Parts: []*Part{
			{MimeType: "text/plain", Data: []byte(c.text), Headers: []Header{{"Content-Type", `text/plain; charset="UTF-8"`}}},
			{MimeType: "text/html", Data: []byte(c.html), Headers: []Header{{"Content-Type", `text/html; charset="UTF-8"`}}},
		}}
	}
	own := root.Headers // of a payload: at least its Content-Type must stay
	switch {
	case c.headers != nil:
		root.Headers = c.headers
	case c.payload == nil || own == nil:
		to := c.to
		if to == "" {
			to = owner
		}
		root.Headers = []Header{
			{"From", c.from}, {"To", to}, {"Subject", c.subject},
			{"Date", time.UnixMilli(date).UTC().Format(time.RFC1123Z)},
			// Gmail puts its own Message-ID in place of the sender's.
			{"Message-ID", "<" + id + "@mail.gmail.com>"},
		}
		if c.cc != "" {
			root.Headers = append(root.Headers, Header{"Cc", c.cc})
		}
	}
	if header(root.Headers, "Content-Type") == "" {
		switch {
		case header(own, "Content-Type") != "":
			root.Headers = append(slices.Clip(root.Headers), Header{"Content-Type", header(own, "Content-Type")})
		case c.payload == nil && c.headers == nil && root.Parts == nil:
			root.Headers = append(slices.Clip(root.Headers), Header{"Content-Type", `text/plain; charset="UTF-8"`})
		}
	}
	return &root
}

type wirePart struct {
	PartID   string      `json:"partId"`
	MimeType string      `json:"mimeType"`
	Filename string      `json:"filename"`
	Headers  []Header    `json:"headers,omitempty"`
	Body     *wireBody   `json:"body,omitempty"`
	Parts    []*wirePart `json:"parts,omitempty"`
}

type wireBody struct {
	AttachmentID string `json:"attachmentId,omitempty"`
	Size         int    `json:"size"`
	Data         string `json:"data,omitempty"`
}

// wire renders a part as Gmail does; partID is its place in the tree, such as 0.1.
func (p *Part) wire(messageID, partID string) *wirePart {
	out := &wirePart{PartID: partID, MimeType: p.MimeType, Filename: p.Filename, Headers: p.Headers}
	if out.MimeType == "" {
		out.MimeType = "text/plain"
		if len(p.Parts) > 0 {
			out.MimeType = "multipart/mixed"
		}
	}
	out.Body = &wireBody{Size: len(p.Data)}
	switch {
	case p.Filename != "":
		out.Body.AttachmentID = "ANGjdJ-" + messageID + "-" + partID
	case len(p.Data) > 0:
		out.Body.Data = base64.URLEncoding.EncodeToString(p.Data)
	}
	for i, child := range p.Parts {
		out.Parts = append(out.Parts, child.wire(messageID, childID(partID, i)))
	}
	return out
}

func childID(parent string, i int) string {
	if parent == "" {
		return strconv.Itoa(i)
	}
	return parent + "." + strconv.Itoa(i)
}

func (p *Part) size() int {
	n := len(p.Data)
	for _, h := range p.Headers {
		n += len(h.Name) + len(h.Value) + 4
	}
	for _, child := range p.Parts {
		n += child.size()
	}
	return n
}

// snippet is the beginning of the first text, with HTML's characters escaped, as Gmail gives it.
func (p *Part) snippet() string {
	if (p.MimeType == "text/plain" || p.MimeType == "") && p.Filename == "" && len(p.Data) > 0 {
		head := string(p.Data[:min(len(p.Data), 1000)])
		runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(head, "")), " "))
		return html.EscapeString(string(runes[:min(len(runes), 200)]))
	}
	for _, child := range p.Parts {
		if text := child.snippet(); text != "" {
			return text
		}
	}
	return ""
}

const maxDepth = 20 // of multiparts in multiparts, in mail that is parsed here

// parsePart reads headers and body. Headers keep their order and repetitions, unfolded.
func parsePart(raw []byte, depth int) (*Part, error) {
	raw = bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
	head, body, _ := bytes.Cut(raw, []byte("\n\n"))
	var headers []Header
	for line := range strings.SplitSeq(string(head), "\n") {
		if (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")) && len(headers) > 0 {
			headers[len(headers)-1].Value += " " + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("a header line has no colon")
		}
		headers = append(headers, Header{name, strings.TrimSpace(value)})
	}
	return buildPart(headers, body, depth)
}

func buildPart(headers []Header, body []byte, depth int) (*Part, error) {
	part := &Part{Headers: headers, MimeType: "text/plain"}
	mimeType, params, err := mime.ParseMediaType(header(headers, "Content-Type"))
	if err == nil {
		part.MimeType = mimeType
	}
	if _, disposition, err := mime.ParseMediaType(header(headers, "Content-Disposition")); err == nil {
		part.Filename = disposition["filename"]
	}
	if part.Filename == "" {
		part.Filename = params["name"]
	}
	if strings.HasPrefix(part.MimeType, "multipart/") && params["boundary"] != "" && depth < maxDepth {
		reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for {
			child, err := reader.NextRawPart()
			if err != nil { // the end, or a message cut off: what came before it counts
				return part, nil
			}
			data, _ := io.ReadAll(child)
			var fields []Header
			for _, name := range slices.Sorted(maps.Keys(child.Header)) {
				for _, value := range child.Header[name] {
					fields = append(fields, Header{name, value})
				}
			}
			sub, err := buildPart(fields, data, depth+1)
			if err != nil {
				return nil, err
			}
			part.Parts = append(part.Parts, sub)
		}
	}
	var reader io.Reader = bytes.NewReader(body)
	switch strings.ToLower(header(headers, "Content-Transfer-Encoding")) {
	case "base64":
		reader = base64.NewDecoder(base64.StdEncoding, reader)
	case "quoted-printable":
		reader = quotedprintable.NewReader(reader)
	}
	if part.Data, err = io.ReadAll(reader); err != nil {
		return nil, fmt.Errorf("the transfer encoding is broken")
	}
	return part, nil
}
