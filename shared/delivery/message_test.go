package delivery_test

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/mail"
)

func TestDecodePush(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		want       delivery.Message
	}{
		{"as Pub/Sub pushes it",
			`{"message":{"attributes":{"ce-id":"x","ce-traceparent":"00-1"},"data":"aGVsbG8=","messageId":"17","message_id":"17","publishTime":"2026-03-01T12:00:00.5Z","publish_time":"2026-03-01T12:00:00.5Z"},"subscription":"projects/yard/subscriptions/gmail-message-read-apply","deliveryAttempt":3}`,
			delivery.Message{
				ID: "17", Data: []byte("hello"), Attributes: map[string]string{"ce-id": "x", "ce-traceparent": "00-1"},
				PublishTime: time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC), Subscription: "gmail-message-read-apply",
				Attempt: 3, Traceparent: "00-1",
			}},
		{"as the emulator pushes it", `{"subscription":"projects/yard/subscriptions/s","message":{"data":"aGVsbG8=","messageId":"17","attributes":{}}}`,
			delivery.Message{ID: "17", Data: []byte("hello"), Subscription: "s"}},
		{"the old name of the id alone", `{"message":{"data":"aGVsbG8=","message_id":"17"}}`, delivery.Message{ID: "17", Data: []byte("hello")}},
		{"a subscription's short name", `{"message":{},"subscription":"s"}`, delivery.Message{Subscription: "s"}},
		{"an empty message", `{"message":{}}`, delivery.Message{}},
		{"no data, attributes only", `{"message":{"attributes":{"a":"b"},"messageId":"17"}}`, delivery.Message{ID: "17", Attributes: map[string]string{"a": "b"}}},
		{"data of null", `{"message":{"data":null}}`, delivery.Message{}},
		{"empty data", `{"message":{"data":""}}`, delivery.Message{}},
		{"keys that nobody knows", `{"message":{"data":"aGVsbG8=","orderingKey":"k","x":[1]},"y":{}}`, delivery.Message{Data: []byte("hello")}},
		{"spaces around", " \n" + `{"message":{"data":"aGVsbG8="}}` + "\n", delivery.Message{Data: []byte("hello")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := delivery.DecodePush([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodePushTakesEveryBase64(t *testing.T) {
	t.Parallel()
	// These bytes need both of the characters in which the alphabets differ, and every padding.
	for _, data := range []string{"\xfb\xff\xfe", "\xfb\xff\xfe\xfb", "\xfb\xff\xfe\xfb\xff", ""} {
		for name, encoding := range map[string]*base64.Encoding{
			"standard": base64.StdEncoding, "standard, not padded": base64.RawStdEncoding,
			"URL": base64.URLEncoding, "URL, not padded": base64.RawURLEncoding,
		} {
			text := encoding.EncodeToString([]byte(data))
			for how, written := range map[string]string{
				"plain": text, "in lines": strings.Join(strings.SplitAfter(text, ""), `\r\n`), "slashes escaped": strings.ReplaceAll(text, "/", `\/`),
			} {
				m, err := delivery.DecodePush([]byte(`{"message":{"data":"` + written + `"}}`))
				if err != nil || string(m.Data) != data {
					t.Errorf("%s, %s: %q came as %q, %v", name, how, data, m.Data, err)
				}
			}
		}
	}
}

func TestDecodePushRefuses(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":                     ``,
		"text":                        `hello`,
		"binary":                      "\xff\xfe\x00",
		"a list":                      `[]`,
		"null":                        `null`,
		"an object of another shape":  `{"data":"aGVsbG8="}`,
		"a message of null":           `{"message":null}`,
		"a message of text":           `{"message":"hello"}`,
		"data that is no base64":      `{"message":{"data":"%%%"}}`,
		"data with a space":           `{"message":{"data":"aGVs bG8="}}`,
		"data padded in the middle":   `{"message":{"data":"aGVs=bG8"}}`,
		"data one character too long": `{"message":{"data":"aGVsb"}}`,
		"data that is a number":       `{"message":{"data":5}}`,
		"data that is a list":         `{"message":{"data":[104,105]}}`,
		"attributes of numbers":       `{"message":{"attributes":{"a":1}}}`,
		"a time that is none":         `{"message":{"publishTime":"yesterday"}}`,
		"an attempt that is text":     `{"message":{},"deliveryAttempt":"3"}`,
		"cut short":                   `{"message":{"data":"aGVsbG8="}`,
		"something after it":          `{"message":{}}{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if m, err := delivery.DecodePush([]byte(body)); err == nil {
				t.Errorf("taken as %+v", m)
			}
		})
	}
}

func TestDecodeNotification(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, historyID string // as JSON; empty: absent
		want            mail.HistoryID
	}{
		{"a number", `900`, 900},
		{"a string", `"900"`, 900},
		{"beyond 2^53, a number", `9007199254740993`, 9007199254740993},
		{"beyond 2^53, a string", `"9007199254740993"`, 9007199254740993},
		{"the greatest of 64 bits, a number", `18446744073709551615`, math.MaxUint64},
		{"the greatest of 64 bits, a string", `"18446744073709551615"`, math.MaxUint64},
		{"one", `1`, 1},
		{"one too many for 64 bits", `18446744073709551616`, 0},
		{"absent", ``, 0},
		{"null", `null`, 0},
		{"zero", `0`, 0},
		{"zero as a string", `"0"`, 0},
		{"an empty string", `""`, 0},
		{"below zero", `-1`, 0},
		{"below zero as a string", `"-1"`, 0},
		{"an exponent", `1e3`, 0},
		{"an exponent as a string", `"1e3"`, 0},
		{"a float", `900.0`, 0},
		{"a float as a string", `"900.5"`, 0},
		{"words", `"nine"`, 0},
		{"a space within", `" 900"`, 0},
		{"true", `true`, 0},
		{"a list", `[900]`, 0},
		{"an object", `{"id":900}`, 0},
		{"leading zeros", `0900`, 0}, // no JSON
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data := `{"emailAddress":"Ann.Lee@GoogleMail.com"`
			if c.historyID != "" {
				data += `,"historyId":` + c.historyID
			}
			got, err := delivery.DecodeNotification([]byte(data + "}"))
			if (err == nil) != (c.want != 0) {
				t.Fatalf("%+v, %v", got, err)
			}
			want := mail.Notification{}
			if c.want != 0 {
				want = mail.Notification{Email: "annlee@gmail.com", HistoryID: c.want}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if err != nil && strings.Contains(strings.ToLower(err.Error()), "lee") {
				t.Errorf("the error names the mailbox: %v", err)
			}
		})
	}
}

func TestDecodeNotificationRefuses(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"nothing":                 ``,
		"text":                    `hello`,
		"binary":                  "\xff\xfe\x00",
		"null":                    `null`,
		"a list":                  `["kim@example.com",900]`,
		"no address":              `{"historyId":900}`,
		"an address of null":      `{"emailAddress":null,"historyId":900}`,
		"an address that is none": `{"emailAddress":"kim","historyId":900}`,
		"an address of a number":  `{"emailAddress":5,"historyId":900}`,
		"two addresses":           `{"emailAddress":"kim@example.com, lee@example.com","historyId":900}`,
		"cut short":               `{"emailAddress":"kim@example.com","historyId":90`,
		"something after it":      `{"emailAddress":"kim@example.com","historyId":900}{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := delivery.DecodeNotification([]byte(data))
			if err == nil {
				t.Fatalf("taken as %+v", got)
			}
			if strings.Contains(err.Error(), "kim@") {
				t.Errorf("the error names the mailbox: %v", err)
			}
		})
	}
}
