package content

import (
	"strings"
	"unicode/utf8"

	mailyard "mailyard.internal/mailyard/shared/mail"
)

// A Firestore document holds 1 MiB (1,048,576 bytes), the names of its fields and its own path
// included, and indexes the first 1,500 bytes of a string
// (https://cloud.google.com/firestore/quotas). All limits here are bytes of UTF-8 and follow from
// these two.
const (
	// maxBody is for text, HTML and attachments together. The rest of the document, 124 KiB, is
	// margin: paths are at most 6 KiB, names and times a few hundred bytes.
	maxBody = 900 << 10
	// maxAttachmentsSize is the part of maxBody that the list of attachments may take.
	maxAttachmentsSize = 128 << 10
	// attachmentOverhead is what Firestore counts for an attachment beside its strings: the four
	// field names and one byte for each name and string, and 8 for the size
	// (https://cloud.google.com/firestore/native/docs/storage-size).
	attachmentOverhead = 64
	maxAttachments     = 500

	maxFilename = 255 // what file systems hold
	maxMIMEType = 255 // 127 on each side of the slash (RFC 6838, section 4.2)
	maxPartID   = 512 // 100 levels of a few digits; Gmail's own are far shorter

	// maxLine holds for subject, snippet and sender: no longer than an index sees.
	maxLine = 1500
	// maxRecipients holds for To and for Cc, each. Gmail lets mail out to 500 (2,000 in Workspace)
	// and takes more in; a document has at most 40,000 index entries, of which each recipient is one
	// or two. Together with maxRecipientsSize, also for each, a summary stays below 600 KiB.
	maxRecipients     = 2000
	maxRecipientsSize = 256 << 10
	// maxAddress holds for a mail address alone: 64 before the @, 255 after it
	// (RFC 5321, section 4.5.3.1). Its name shares maxLine with it.
	maxAddress = 320

	// maxHeader is how much of a raw header is looked at: encoded words take several bytes for one.
	maxHeader = 2 * maxRecipientsSize
	// maxParameters is that for what a part's type, disposition and filename say.
	maxParameters = 16 << 10
	// maxRaw is how much of a part's data is decoded: UTF-16 takes two bytes for one of UTF-8.
	// A multiple of three, so that base64 is cut between quanta.
	maxRaw = 2 * maxBody / 3 * 3
	// maxDepth is how deep parts may nest; what is deeper is left out.
	maxDepth = 100
)

// cut returns the longest beginning of s that has at most n bytes and ends between characters.
// It is a copy where it is shorter, so that it does not hold a large s in memory.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// fit cuts text, then HTML, to what the attachments leave of maxBody. Text may take all that HTML
// does not need, and half of it in any case; HTML has the rest.
func fit(b *mailyard.Body) {
	room := maxBody - attachmentsSize(b.Attachments)
	text := cut(b.Text, room-min(len(b.HTML), room/2))
	html := cutHTML(b.HTML, room-len(text))
	b.Truncated = b.Truncated || len(text) < len(b.Text) || len(html) < len(b.HTML)
	b.Text, b.HTML = text, html
}

// cutHTML leaves no half a tag behind, which a browser would join with whatever follows.
func cutHTML(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = cut(s, n)
	if open := strings.LastIndexByte(s, '<'); open > strings.LastIndexByte(s, '>') {
		return s[:open]
	}
	return s
}

func attachmentsSize(list []mailyard.Attachment) int {
	size := 0
	for _, a := range list {
		size += attachmentSize(a)
	}
	return size
}

func attachmentSize(a mailyard.Attachment) int {
	return len(a.Filename) + len(a.MIMEType) + len(a.PartID) + attachmentOverhead
}
