package content

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/api/gmail/v1"

	mailyard "mailyard.internal/mailyard/shared/mail"
)

func bodyOf(payload *gmail.MessagePart, keep bool) mailyard.Body {
	w := walker{keep: keep}
	found := w.walk(payload, 0)
	b := mailyard.Body{
		Text:        joinParts(found.text),
		HTML:        joinParts(found.html),
		Attachments: w.attachments,
		Truncated:   w.truncated,
	}
	fit(&b)
	return b
}

// joinParts puts each part on a line of its own.
func joinParts(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	var out strings.Builder
	for i, part := range parts {
		out.WriteString(part)
		if i < len(parts)-1 && !strings.HasSuffix(part, "\n") {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// A walker goes through the parts of one message.
type walker struct {
	keep        bool
	textSize    int
	htmlSize    int
	attachments []mailyard.Attachment
	listSize    int // of attachments
	truncated   bool
}

// readings are the texts found below a part, in order; none of them is empty.
type readings struct{ text, html []string }

func (w *walker) walk(p *gmail.MessagePart, depth int) readings {
	switch {
	case p == nil:
		return readings{}
	case depth > maxDepth:
		w.truncated = true
		return readings{}
	}
	kind := mediaType(p)
	if isContainer(p, kind) {
		return w.walkParts(p.Parts, kind == "multipart/alternative", depth+1)
	}
	return w.leaf(p, kind)
}

// isContainer goes by the parts that are there. An attached message has parts too, and is a leaf.
func isContainer(p *gmail.MessagePart, kind string) bool {
	if strings.HasPrefix(kind, "message/") {
		return false
	}
	empty := p.Body == nil || p.Body.Data == "" && p.Body.AttachmentId == ""
	return len(p.Parts) > 0 || strings.HasPrefix(kind, "multipart/") && empty
}

// walkParts takes all texts of a mixture. Alternatives come from simple to rich (RFC 2046, section
// 5.1.4): the first text is the simplest, and the last HTML the richest.
func (w *walker) walkParts(parts []*gmail.MessagePart, alternative bool, depth int) readings {
	var all readings
	for _, part := range parts {
		found := w.walk(part, depth)
		if !alternative {
			all.text = append(all.text, found.text...)
			all.html = append(all.html, found.html...)
			continue
		}
		if len(all.text) == 0 {
			all.text = found.text
		}
		if len(found.html) > 0 {
			all.html = found.html
		}
	}
	return all
}

func (w *walker) leaf(p *gmail.MessagePart, kind string) readings {
	name := filename(p)
	isText := (kind == "text/plain" || kind == "text/html") && name == "" && disposition(p) != "attachment"
	switch {
	case !isText:
		w.attach(p, kind, name)
	case p.Body != nil && p.Body.Data == "" && p.Body.AttachmentId != "":
		w.attach(p, kind, name)
		w.truncated = w.truncated || w.keep
	case !w.keep || p.Body == nil:
	case kind == "text/html":
		return readings{html: w.read(p, &w.htmlSize, decodeHTML)}
	default:
		return readings{text: w.read(p, &w.textSize, decode)}
	}
	return readings{}
}

// read decodes a text part. taken is what was read before of its kind: once that alone fills a
// document, more is not decoded, so that memory stays bounded however many parts there are.
func (w *walker) read(p *gmail.MessagePart, taken *int, decode func([]byte, string) string) []string {
	if p.Body.Data == "" {
		return nil
	}
	if *taken > maxBody {
		w.truncated = true
		return nil
	}
	raw, whole := rawData(p.Body.Data)
	w.truncated = w.truncated || !whole
	text := readable(decode(raw, contentType(p).charset()))
	if text == "" {
		return nil
	}
	*taken += len(text)
	return []string{text}
}

// rawData decodes as much of a part's data as is ever needed. A character of UTF-8 that it cuts is
// left out, or the rest would no longer look like UTF-8.
func rawData(data string) (raw []byte, whole bool) {
	if len(data) <= maxRaw/3*4 {
		return fromBase64(data), true
	}
	raw = fromBase64(data[:maxRaw/3*4])
	for i := len(raw) - 1; i >= 0 && i >= len(raw)-utf8.UTFMax; i-- {
		if utf8.RuneStart(raw[i]) {
			if !utf8.FullRune(raw[i:]) {
				raw = raw[:i]
			}
			break
		}
	}
	return raw, false
}

// readable takes out control characters, except those that lay text out, and byte order marks.
func readable(s string) string {
	s = strings.TrimPrefix(s, "\uFEFF")
	if !mayHoldControl(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// mayHoldControl looks at bytes, since most texts have none of these: a control character is below the
// space, 0x7F, or a rune that begins with 0xC2.
func mayHoldControl(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7F || c == 0xC2 {
			return true
		}
	}
	return false
}

func (w *walker) attach(p *gmail.MessagePart, kind, name string) {
	a := mailyard.Attachment{Filename: cut(name, maxFilename), MIMEType: cut(kind, maxMIMEType)}
	if id := clean(p.PartId); len(id) <= maxPartID { // half an id would name another part
		a.PartID = id
	}
	if p.Body != nil {
		a.Size = max(0, p.Body.Size)
	}
	w.truncated = w.truncated || len(a.Filename) < len(name)
	if size := attachmentSize(a); len(w.attachments) < maxAttachments && w.listSize+size <= maxAttachmentsSize {
		w.attachments = append(w.attachments, a)
		w.listSize += size
		return
	}
	w.truncated = true
}
