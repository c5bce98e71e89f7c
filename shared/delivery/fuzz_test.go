package delivery_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/mail"
)

// FuzzDecodePush reads any body. What it takes, written again as Pub/Sub would, is the same message.
// Its seeds are in testdata.
func FuzzDecodePush(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := delivery.DecodePush(body)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		if !json.Valid(body) {
			t.Error("what is no JSON was taken")
		}
		if strings.Contains(m.Subscription, "/") {
			t.Errorf("%q is no short id", m.Subscription)
		}
		again, err := json.Marshal(map[string]any{
			"message": map[string]any{
				"data": base64.StdEncoding.EncodeToString(m.Data), "attributes": m.Attributes, "messageId": m.ID, "publishTime": m.PublishTime,
			},
			"subscription": "projects/p/subscriptions/" + m.Subscription, "deliveryAttempt": m.Attempt,
		})
		if err != nil {
			return // a moment that RFC 3339 cannot say
		}
		same, err := delivery.DecodePush(again)
		if err != nil {
			t.Fatalf("written again it is refused: %v", err)
		}
		if string(same.Data) != string(m.Data) || same.ID != m.ID || same.Subscription != m.Subscription ||
			same.Attempt != m.Attempt || len(same.Attributes) != len(m.Attributes) || !same.PublishTime.Equal(m.PublishTime) {
			t.Errorf("%+v became %+v", m, same)
		}
	})
}

// FuzzDecodeNotification reads anything. What it takes has an address in the form in which addresses
// are compared, and a historyId whose digits stand in the data.
func FuzzDecodeNotification(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := delivery.DecodeNotification(data)
		if err != nil {
			if n != (mail.Notification{}) {
				t.Errorf("beside the error there is %+v", n)
			}
			return
		}
		if n.HistoryID == 0 || !strings.Contains(string(data), n.HistoryID.String()) && !strings.Contains(string(data), `\u00`) {
			t.Errorf("the id %d comes from nowhere", n.HistoryID)
		}
		if !utf8.ValidString(n.Email) || !strings.Contains(n.Email, "@") {
			t.Errorf("the address is %q", n.Email)
		}
		text, err := json.Marshal(map[string]any{"emailAddress": n.Email, "historyId": n.HistoryID.String()})
		if err != nil {
			t.Fatal(err)
		}
		if same, err := delivery.DecodeNotification(text); err == nil && same != n {
			t.Errorf("%+v became %+v", n, same)
		}
	})
}
