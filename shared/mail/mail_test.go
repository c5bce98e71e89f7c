package mail_test

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/mail"
)

func TestParseHistoryID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       mail.HistoryID // 0: refused
	}{
		{"the least", "1", 1},
		{"beyond 2^53", "9007199254740993", 9007199254740993},
		{"the greatest that can be kept", "9223372036854775807", mail.MaxHistoryID},
		{"the greatest of 64 bits", "18446744073709551615", math.MaxUint64},
		{"leading zeros", "0099", 99},
		{"one too many", "18446744073709551616", 0},
		{"zero", "0", 0},
		{"nothing", "", 0},
		{"a minus", "-1", 0},
		{"a plus", "+1", 0},
		{"a fraction", "1.0", 0},
		{"an exponent", "1e3", 0},
		{"a space", " 1", 0},
		{"a separator", "1_000", 0},
		{"hexadecimal", "0x10", 0},
		{"other digits", "١٢", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := mail.ParseHistoryID(c.text)
			if got != c.want || (err == nil) != (c.want != 0) {
				t.Errorf("ParseHistoryID(%q) is %d, %v", c.text, got, err)
			}
		})
	}
	if _, err := mail.ParseHistoryID(strings.Repeat("9", 5000)); err == nil || len(err.Error()) > 200 {
		t.Errorf("the error repeats what it was given: %v", err)
	}
}

func TestHistoryIDReadsBackWhatItWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := mail.HistoryID(rapid.Uint64Min(1).Draw(t, "id"))
		if got, err := mail.ParseHistoryID(id.String()); err != nil || got != id {
			t.Fatalf("%d came back as %d, %v", uint64(id), got, err)
		}
	})
}

func TestNormalizeAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, address, want string }{
		{"as it is", "kim@example.com", "kim@example.com"},
		{"letter case", "Kim.Lee@Example.COM", "kim.lee@example.com"},
		{"spaces around", " kim@example.com\n", "kim@example.com"},
		{"dots and tags elsewhere mean something", "k.im+news@example.com", "k.im+news@example.com"},
		{"Gmail's dots", "k.i.m@gmail.com", "kim@gmail.com"},
		{"Gmail's tags", "kim+news+old@gmail.com", "kim@gmail.com"},
		{"googlemail is gmail", "Ann.Lee+x@GoogleMail.com", "annlee@gmail.com"},
		{"a domain that ends like it", "a.b@notgmail.com", "a.b@notgmail.com"},
		{"a Workspace domain below it", "a.b@gmail.com.example", "a.b@gmail.com.example"},
		{"no address", "Kim", "kim"},
		{"nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := mail.NormalizeAddress(c.address); got != c.want {
				t.Errorf("NormalizeAddress(%q) is %q, want %q", c.address, got, c.want)
			}
			if again := mail.NormalizeAddress(c.want); again != c.want {
				t.Errorf("normalized again it is %q", again)
			}
		})
	}
}

func TestAccountID(t *testing.T) {
	t.Parallel()
	id := mail.AccountID("team-7", "ann.lee@gmail.com")
	if !regexp.MustCompile(`^[0-9a-f]{20}$`).MatchString(id) {
		t.Errorf("the id is %q", id)
	}
	if again := mail.AccountID("team-7", "AnnLee+x@googlemail.com"); again != id {
		t.Error("the same mailbox of the same owner has two ids")
	}
	for _, other := range [][2]string{{"team-8", "annlee@gmail.com"}, {"team-7", "annlee@example.com"}, {"", "team-7annlee@gmail.com"}} {
		if mail.AccountID(other[0], other[1]) == id {
			t.Errorf("%q has the id of another account", other)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, address string
		ok            bool
	}{
		{"plain", "kim@example.com", true},
		{"with a tag", "kim+news@example.com", true},
		{"with spaces around", " kim@example.com ", true},
		{"with a name", "Kim <kim@example.com>", false},
		{"in angle brackets", "<kim@example.com>", false},
		{"two", "kim@example.com, lee@example.com", false},
		{"no domain", "kim@", false},
		{"no name", "@example.com", false},
		{"no at", "kim", false},
		{"nothing", "", false},
		{"a header within", "kim@example.com\r\nBcc: lee@example.com", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := mail.CheckAddress(c.address)
			if (err == nil) != c.ok {
				t.Errorf("CheckAddress(%q) is %v", c.address, err)
			}
			if err != nil && strings.Contains(err.Error(), "kim") {
				t.Errorf("the error quotes the address: %v", err)
			}
		})
	}
}

func TestEventCheck(t *testing.T) {
	t.Parallel()
	good := mail.Event{AccountID: "0123456789abcdef0123", MessageID: "18c0ffee", ThreadID: "18c0ffee", Lane: "message-read", HistoryID: 110}
	for _, c := range []struct {
		name string
		edit func(*mail.Event)
		want string // within the error; empty: accepted
	}{
		{"as it should be", func(*mail.Event) {}, ""},
		{"no thread", func(e *mail.Event) { e.ThreadID = "" }, ""},
		{"the greatest id that can be kept", func(e *mail.Event) { e.HistoryID = mail.MaxHistoryID }, ""},
		{"the longest message id", func(e *mail.Event) { e.MessageID = strings.Repeat("m", 128) }, ""},
		{"no account", func(e *mail.Event) { e.AccountID = "" }, "accountId"},
		{"no message", func(e *mail.Event) { e.MessageID = "" }, "messageId"},
		{"no lane", func(e *mail.Event) { e.Lane = "" }, "lane"},
		{"a slash", func(e *mail.Event) { e.MessageID = "a/b" }, "messageId"},
		{"a dot, which parts the id", func(e *mail.Event) { e.AccountID = "a.b" }, "accountId"},
		{"a letter beyond ASCII", func(e *mail.Event) { e.MessageID = "é" }, "messageId"},
		{"too long a message id", func(e *mail.Event) { e.MessageID = strings.Repeat("m", 129) }, "messageId"},
		{"a thread with a space", func(e *mail.Event) { e.ThreadID = "a b" }, "threadId"},
		{"no historyId", func(e *mail.Event) { e.HistoryID = 0 }, "historyId"},
		{"a historyId that cannot be kept", func(e *mail.Event) { e.HistoryID = mail.MaxHistoryID + 1 }, "historyId"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := good
			c.edit(&e)
			switch err := e.Check(); {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, want one about %s", err, c.want)
			}
		})
	}
	if want := "0123456789abcdef0123.message-read.18c0ffee.110"; good.ID() != want {
		t.Errorf("ID is %q, want %q", good.ID(), want)
	}
	later := good
	later.Time, later.Traceparent, later.ThreadID = time.Unix(9, 0), "00-1", "other"
	if later.ID() != good.ID() {
		t.Error("the same change has two ids")
	}
}

func TestFetchGuard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ message, event, want mail.HistoryID }{{7, 5, 5}, {5, 7, 5}, {5, 5, 5}, {0, 7, 7}} {
		if got := mail.FetchGuard(c.message, c.event); got != c.want {
			t.Errorf("FetchGuard(%d, %d) is %d, want %d", c.message, c.event, got, c.want)
		}
	}
}

func TestThreadIsKeptOnceKnown(t *testing.T) {
	t.Parallel()
	m := applyAll(mail.Message{ID: "m"},
		mail.Flag{Field: "unread", HistoryID: 5},
		mail.Flag{Field: "unread", HistoryID: 3, ThreadID: "t"}, // late, and still it knows the thread
		mail.Deletion{HistoryID: 6})
	if m.ThreadID != "t" {
		t.Errorf("the thread is %q", m.ThreadID)
	}
}

func TestDeletionRemovesContent(t *testing.T) {
	t.Parallel()
	fetched := mail.Fetched{
		HistoryID: 5, ThreadID: "t", Flags: map[string]bool{"unread": true},
		Summary: mail.Summary{From: "Kim <kim@example.com>", Subject: "hello"}, Body: mail.Body{Text: "hi"},
	}
	m := applyAll(mail.Message{ID: "m"}, fetched, mail.Deletion{HistoryID: 6})
	want := mail.Message{
		ID: "m", ThreadID: "t", Deleted: true, Flags: map[string]bool{"unread": true},
		Guards: map[string]mail.HistoryID{"content": 5, "deleted": 6, "unread": 5},
	}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("the tombstone (-want +got):\n%s", d)
	}
	if !m.EverMirrored() || m.NeedsContent() {
		t.Error("a tombstone of a mirrored message asks for content, or is taken for one never mirrored")
	}
	if unseen := applyAll(mail.Message{ID: "m"}, mail.Deletion{HistoryID: 6}); unseen.EverMirrored() {
		t.Error("the deletion of a message never mirrored counts as having been mirrored")
	}
}
