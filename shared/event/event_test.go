package event_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/mail"
)

func read() mail.Event {
	return mail.Event{
		AccountID: "0123456789abcdef0123", MessageID: "18c0ffee00000001", ThreadID: "18c0ffee00000000",
		Lane: "message-read", HistoryID: 9007199254740993,
		Time:        time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	data, attributes, err := event.Encode(read())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"accountId":"0123456789abcdef0123","messageId":"18c0ffee00000001","threadId":"18c0ffee00000000","lane":"message-read","historyId":"9007199254740993"}`
	if string(data) != want {
		t.Errorf("data is\n%s\nwant\n%s", data, want)
	}
	wantAttributes := map[string]string{
		"ce-specversion": "1.0",
		"ce-id":          "0123456789abcdef0123.message-read.18c0ffee00000001.9007199254740993",
		"ce-source":      "//gmail.googleapis.com/accounts/0123456789abcdef0123",
		"ce-type":        "mailyard.gmail.message-read.v1",
		"ce-subject":     "18c0ffee00000001",
		"ce-time":        "2026-03-01T12:00:00.123456789Z",
		"content-type":   "application/json",
		"ce-traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	if d := cmp.Diff(wantAttributes, attributes); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
	untraced := read()
	untraced.Traceparent = ""
	if _, attributes, _ := event.Encode(untraced); len(attributes) != len(wantAttributes)-1 {
		t.Errorf("without a trace the attributes are %v", attributes)
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*mail.Event){
		"no account":             func(e *mail.Event) { e.AccountID = "" },
		"a slash in an id":       func(e *mail.Event) { e.MessageID = "a/b" },
		"no historyId":           func(e *mail.Event) { e.HistoryID = 0 },
		"too large a historyId":  func(e *mail.Event) { e.HistoryID = mail.MaxHistoryID + 1 },
		"an id of strange bytes": func(e *mail.Event) { e.ThreadID = "\xff" },
	} {
		e := read()
		edit(&e)
		if _, _, err := event.Encode(e); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	id := rapid.StringMatching(`[A-Za-z0-9_-]{1,40}`)
	rapid.Check(t, func(t *rapid.T) {
		want := mail.Event{
			AccountID: id.Draw(t, "account"), MessageID: id.Draw(t, "message"), ThreadID: id.Draw(t, "thread"),
			Lane:      rapid.StringMatching(`[a-z]{1,9}(-[a-z]{1,9}){0,3}`).Draw(t, "lane"),
			HistoryID: mail.HistoryID(rapid.Uint64Range(1, uint64(mail.MaxHistoryID)).Draw(t, "historyId")),
			Time:      time.Unix(rapid.Int64Range(0, 4_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC(),
		}
		if rapid.Bool().Draw(t, "traced") {
			want.Traceparent = "00-" + rapid.StringMatching(`[0-9a-f]{32}-[0-9a-f]{16}-01`).Draw(t, "trace")
		}
		data, attributes, err := event.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if attributes[event.IDAttribute] != want.ID() {
			t.Fatalf("ce-id is %s, want %s", attributes[event.IDAttribute], want.ID())
		}
		got, err := event.Decode(want.Lane, data, attributes)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		again, same, _ := event.Encode(got)
		if string(again) != string(data) || !maps.Equal(same, attributes) {
			t.Fatal("encoded again it is another message")
		}
	})
}

func TestDecodeTakes(t *testing.T) {
	t.Parallel()
	data, attributes, err := event.Encode(read())
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(a map[string]string) []byte{
		"attributes of others":          func(a map[string]string) []byte { a["redrive"], a["dead-letter-id"] = "op1", "x"; return data },
		"extensions of others":          func(a map[string]string) []byte { a["ce-tenant"] = "7"; return data },
		"a content type with a charset": func(a map[string]string) []byte { a["content-type"] = "application/json; charset=utf-8"; return data },
		"no content type":               func(a map[string]string) []byte { delete(a, "content-type"); return data },
		"JSON with spaces and more keys": func(map[string]string) []byte {
			return []byte(strings.Replace(string(data), `{`, "{ \"more\": 1,\n", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := maps.Clone(attributes)
			body := edit(a)
			got, err := event.Decode("message-read", body, a)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(read(), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	type wire struct {
		data       map[string]any
		attributes map[string]string
		raw        *string
		lane       string
	}
	raw := func(text string) func(*wire) { return func(w *wire) { w.raw = &text } }
	attribute := func(name, value string) func(*wire) {
		return func(w *wire) { w.attributes[name] = value }
	}
	without := func(name string) func(*wire) { return func(w *wire) { delete(w.attributes, name) } }
	field := func(name string, value any) func(*wire) { return func(w *wire) { w.data[name] = value } }
	for _, c := range []struct {
		name string
		edit func(*wire)
	}{
		{"no attributes", func(w *wire) { w.attributes = nil }},
		{"no ce-specversion", without("ce-specversion")},
		{"another version", attribute("ce-specversion", "9.9")},
		{"no ce-id", without("ce-id")},
		{"no ce-source", without("ce-source")},
		{"no ce-type", without("ce-type")},
		{"no ce-subject", without("ce-subject")},
		{"another type", attribute("ce-type", "com.example.other.v1")},
		{"another version of the type", attribute("ce-type", "mailyard.gmail.message-read.v2")},
		{"another lane's type", attribute("ce-type", "mailyard.gmail.message-unread.v1")},
		{"another lane's function", func(w *wire) { w.lane = "message-unread" }},
		{"the lane of another in the data", field("lane", "message-unread")},
		{"the lane of another in the data and the id", func(w *wire) {
			w.data["lane"] = "message-unread"
			w.attributes["ce-id"] = "0123456789abcdef0123.message-unread.18c0ffee00000001.9007199254740993"
		}},
		{"another id", attribute("ce-id", "0123456789abcdef0123.message-read.18c0ffee00000001.5")},
		{"another source", attribute("ce-source", "//gmail.googleapis.com/accounts/ffff")},
		{"another subject", attribute("ce-subject", "18c0ffee00000002")},
		{"a time that is none", attribute("ce-time", "yesterday")},
		{"a structured event", func(w *wire) {
			w.attributes = map[string]string{"content-type": "application/cloudevents+json"}
		}},
		{"no data", raw("")},
		{"data that is no JSON", raw("hello")},
		{"data that is binary", raw("\xff\xfe\x00")},
		{"data that is a list", raw("[]")},
		{"data that is null", raw("null")},
		{"data cut short", raw(`{"accountId":"a1"`)},
		{"something after the data", raw(`{"accountId":"a1"}{}`)},
		{"historyId as a number", field("historyId", 110)},
		{"historyId of zero", field("historyId", "0")},
		{"historyId below zero", field("historyId", "-1")},
		{"historyId beyond what can be kept", field("historyId", "9223372036854775808")},
		{"historyId with an exponent", field("historyId", "1e3")},
		{"no historyId", func(w *wire) { delete(w.data, "historyId") }},
		{"no messageId", func(w *wire) { delete(w.data, "messageId") }},
		{"an accountId with a slash", field("accountId", "a/b")},
		{"a threadId that is a number", field("threadId", 7)},
		{"a threadId with a slash", field("threadId", "a/b")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data, attributes, err := event.Encode(read())
			if err != nil {
				t.Fatal(err)
			}
			w := wire{attributes: attributes, lane: "message-read"}
			if err := json.Unmarshal(data, &w.data); err != nil {
				t.Fatal(err)
			}
			c.edit(&w)
			body, err := json.Marshal(w.data)
			if err != nil {
				t.Fatal(err)
			}
			if w.raw != nil {
				body = []byte(*w.raw)
			}
			got, err := event.Decode(w.lane, body, w.attributes)
			if err == nil {
				t.Fatalf("taken as %+v", got)
			}
			if got.AccountID != "" {
				t.Errorf("beside the error there is %+v", got)
			}
		})
	}
}
