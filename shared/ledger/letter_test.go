package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

func TestLetterExplainsItself(t *testing.T) {
	t.Parallel()
	e := retrying().Failed(failure("r2", 3, ""))
	want := map[string]string{
		"ce-id":                       "a1.message-added.m1.110",
		"dead-letter-id":              "a1.message-added.m1.110",
		"dead-letter-topic":           "gmail-message-added",
		"dead-letter-consumer":        "MessageAdded",
		"dead-letter-attempts":        "2",
		"dead-letter-code":            "gmail_unavailable",
		"dead-letter-error":           "503 from Gmail",
		"dead-letter-first-failed-at": "2026-03-01T12:00:00Z",
		"dead-letter-last-failed-at":  "2026-03-01T12:03:00Z",
		"dead-letter-revision":        "message-added-00007",
	}
	if d := cmp.Diff(want, e.Letter()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if letter := (ledger.Entry{}).Letter(); letter[ledger.LetterAttempts] != "0" {
		t.Errorf("the letter of a message without attributes is %v", letter)
	}
}

// What a letter says is what the ledger knows, to the second.
func TestLetterRoundTrip(t *testing.T) {
	t.Parallel()
	want := retrying().Failed(failure("r2", 3, "op1")).Buried(at(4))
	got := ledger.FromLetter(want.ID, want.Topic, want.Consumer, want.Subject, want.Data, want.Letter(), at(4))
	want.Runs, want.Operation, want.Trace = nil, "", "" // which no letter carries
	want.HealAt = time.Time{}                           // the ledger's to set
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if ledger.IsLetter(got.Attributes) {
		t.Error("its own attributes have the autopsy in them")
	}
}

func TestLettersFitIntoPubSub(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := failure("r1", 0, "")
		text := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "error")
		f.Err = errors.New(string(text) + strings.Repeat("가", rapid.IntRange(0, 600).Draw(t, "letters")))
		for name, value := range fresh().Failed(f).Letter() {
			if len(value) > 1024 || !utf8.ValidString(value) || len(name) > 256 {
				t.Fatalf("attribute %s holds %d bytes: %q", name, len(value), value)
			}
			if name == ledger.LetterError && len(value) > 512 {
				t.Fatalf("the error has %d bytes", len(value))
			}
		}
	})
}

func TestFromLetter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		attributes map[string]string
		check      func(ledger.Entry) bool
	}{
		{"forwarded by Pub/Sub", map[string]string{
			"ce-id": "x", "CloudPubSubDeadLetterSourceSubscription": "gmail-message-added-apply",
			"CloudPubSubDeadLetterSourceDeliveryCount": "100", "CloudPubSubDeadLetterSourceTopicPublishTime": "…",
		}, func(e ledger.Entry) bool {
			return e.Code == ledger.Unanswered && e.Attempts == 100 && e.FirstFailedAt.Equal(at(4)) && e.LastFailedAt.Equal(at(4)) && len(e.Attributes) == 1
		}},
		{"forwarded after a redrive", map[string]string{"redrive": "op1", "CloudPubSubDeadLetterSourceDeliveryCount": "100"},
			func(e ledger.Entry) bool { return e.Operation == "op1" && len(e.Attributes) == 0 }},
		{"numbers that are none", map[string]string{"dead-letter-attempts": "many"}, func(e ledger.Entry) bool { return e.Attempts == 0 }},
		{"a number below zero", map[string]string{"dead-letter-attempts": "-3"}, func(e ledger.Entry) bool { return e.Attempts == 0 }},
		{"moments that are none", map[string]string{"dead-letter-last-failed-at": "yesterday"},
			func(e ledger.Entry) bool { return e.LastFailedAt.Equal(at(4)) && e.FirstFailedAt.Equal(at(4)) }},
		{"an error too long", map[string]string{"dead-letter-error": strings.Repeat("가", 300)},
			func(e ledger.Entry) bool { return len(e.Error) == 510 && utf8.ValidString(e.Error) }},
		{"text that is not UTF-8", map[string]string{"dead-letter-error": "\xff", "dead-letter-code": "\xff"},
			func(e ledger.Entry) bool { return e.Error == "" && e.Code == "" }},
		{"nothing at all", nil, func(e ledger.Entry) bool { return e.Code == ledger.Unanswered && e.Attempts == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := ledger.FromLetter("id", "gmail-message-added", "MessageAdded", subject, []byte("{}"), c.attributes, at(4))
			if e.State != ledger.Dead || !e.DeadAt.Equal(at(4)) || e.Fingerprint == "" || !c.check(e) {
				t.Errorf("the entry is %+v", e)
			}
		})
	}
}

func TestReceived(t *testing.T) {
	t.Parallel()
	letterOf := func(e ledger.Entry, minute int) ledger.Entry {
		return ledger.FromLetter(e.ID, e.Topic, e.Consumer, e.Subject, e.Data, e.Letter(), at(minute))
	}
	forwarded := func(minute int, operation string) ledger.Entry {
		attributes := map[string]string{"ce-id": subject.EventID, ledger.ForwardedCount: "100"}
		if operation != "" {
			attributes[ledger.RedriveAttribute] = operation
		}
		return ledger.FromLetter(subject.EventID, "gmail-message-added", "MessageAdded", subject, []byte("{}"), attributes, at(minute))
	}
	sameSecond := forwarded(5, "")
	sameSecond.FirstFailedAt, sameSecond.LastFailedAt = at(5).Add(900*time.Millisecond), at(5).Add(900*time.Millisecond)
	failedTwice := redriving().Failed(failure("r2", 8, "op1"))
	for _, c := range []struct {
		name   string
		entry  ledger.Entry
		letter ledger.Entry
		state  ledger.State // after it; "" where the letter changes nothing
	}{
		{"the ledger knows nothing of it", ledger.Entry{}, letterOf(dead(), 1), ledger.Dead},
		{"the ledger knows nothing of it, forwarded", ledger.Entry{}, forwarded(1, ""), ledger.Dead},
		{"given up, but not recorded yet", retrying(), letterOf(retrying(), 1), ledger.Dead},
		{"retrying, then forwarded", retrying(), forwarded(9, ""), ledger.Dead},
		{"dead already", dead(), letterOf(dead(), 1), ""},
		{"dead already, a copy is forwarded", dead(), forwarded(9, ""), ""},
		{"redriving since", redriving(), letterOf(dead(), 1), ""},
		{"redriving since, an old copy is forwarded", redriving(), forwarded(3, ""), ""},
		{"redriving since, the copy of an older redrive is forwarded", redriving(), forwarded(9, "op0"), ""},
		{"redriving, and never answered", redriving(), forwarded(9, "op1"), ledger.Dead},
		{"redriven and failing since", failedTwice, letterOf(dead(), 1), ""},
		{"redriven, failing, and given up", failedTwice, letterOf(failedTwice, 9), ledger.Dead},
		{"resolved since", resolved(), letterOf(retrying(), 6), ""},
		{"resolved in the letter's own second", retrying().Settled(at(5).Add(300 * time.Millisecond)), sameSecond, ""},
		{"discarded since", dead().Settled(at(5)), letterOf(dead(), 6), ""},
		{"resolved before it failed again", resolved(), letterOf(retrying().Failed(failure("r2", 7, "")), 8), ledger.Dead},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.entry.Version = at(0)
			got := c.entry.Received(c.letter)
			if c.state == "" {
				if d := cmp.Diff(c.entry, got); d != "" {
					t.Errorf("a late letter changed the entry:\n%s", d)
				}
				return
			}
			if got.State != c.state || got.DeadAt.IsZero() || got.Claim != (ledger.Claim{}) || !got.ExpireAt.IsZero() {
				t.Errorf("the entry is %+v", got)
			}
			if again := got.Received(c.letter); cmp.Diff(got, again) != "" {
				t.Errorf("the same letter again changed the entry:\n%s", cmp.Diff(got, again))
			}
			if c.entry.ID != "" && (!got.Version.Equal(at(0)) || got.Redrives != c.entry.Redrives) {
				t.Errorf("the entry has lost what the letter does not know: %+v", got)
			}
		})
	}
}

// A letter that Pub/Sub forwarded adds to an entry only that this is the end.
func TestForwardedLetterKnowsLess(t *testing.T) {
	t.Parallel()
	e := retrying().Failed(failure("r2", 3, ""))
	letter := ledger.FromLetter(e.ID, e.Topic, e.Consumer, subject, e.Data, map[string]string{ledger.ForwardedCount: "1"}, at(9))
	got := e.Received(letter)
	if got.Code != e.Code || got.Error != e.Error || got.Fingerprint != e.Fingerprint || got.Attempts != 2 || !got.FirstFailedAt.Equal(at(0)) {
		t.Errorf("the entry is %+v", got)
	}
}

// A redrive that fails is counted once as one, also where its letter came before it was recorded.
func TestLetterDoesNotForgetTheRedrive(t *testing.T) {
	t.Parallel()
	failing := dead().Failed(failure("r2", 3, "op1"))
	letter := ledger.FromLetter(failing.ID, failing.Topic, failing.Consumer, subject, failing.Data, failing.Letter(), at(4))
	e := failing.Received(letter)
	if late := e.Failed(failure("r3", 5, "op1")); late.State != ledger.Dead {
		t.Errorf("a copy of the redriven event made the dead entry %s again", late.State)
	}
	if again := e.Failed(failure("r2", 3, "op1")); again.Attempts != e.Attempts {
		t.Error("a run was counted twice")
	}
}

func TestOperation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		attributes map[string]string
		want       string
	}{
		{"a first delivery", map[string]string{"ce-id": "x"}, ""},
		{"no attributes", nil, ""},
		{"redriven", map[string]string{"redrive": "op1"}, "op1"},
		{"a letter republished as it is", map[string]string{"dead-letter-id": "x"}, "republished-17"},
		{"a republished letter of a redrive", map[string]string{"redrive": "op1", "dead-letter-id": "x"}, "op1"},
		{"forwarded by Pub/Sub, then republished", map[string]string{ledger.ForwardedCount: "100"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := ledger.Operation("17", c.attributes); got != c.want {
				t.Errorf("the operation is %q, want %q", got, c.want)
			}
		})
	}
}

func TestOwnAttributes(t *testing.T) {
	t.Parallel()
	given := retrying().Letter()
	given[ledger.RedriveAttribute] = "op1"
	given[ledger.ForwardedSubscription], given[ledger.ForwardedCount] = "s", "100"
	text := fmt.Sprint(given)
	if d := cmp.Diff(map[string]string{"ce-id": subject.EventID}, ledger.OwnAttributes(given)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if fmt.Sprint(given) != text {
		t.Error("the message's attributes have changed")
	}
	if got := ledger.OwnAttributes(nil); got == nil || len(got) != 0 {
		t.Errorf("of none there are %v", got)
	}
	if fault.Code(given[ledger.LetterCode]) != fault.GmailUnavailable {
		t.Error("the letter has no code")
	}
}
