package delivery

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/mail"
)

// A Message is one Pub/Sub message as a push brings it.
type Message struct {
	ID           string
	Data         []byte
	Attributes   map[string]string
	PublishTime  time.Time
	Subscription string // short id; empty where the push does not say
	Attempt      int    // counts from 1; 0 where the push does not say
	Traceparent  string // of the push that began it all, or of this request
}

// DecodePush reads the body of a push. It takes base64 of either alphabet, padded or not.
func DecodePush(body []byte) (Message, error) {
	var push struct {
		Message *struct {
			Data         lenientBase64     `json:"data"`
			Attributes   map[string]string `json:"attributes"`
			MessageID    string            `json:"messageId"`
			MessageIDOld string            `json:"message_id"`
			PublishTime  time.Time         `json:"publishTime"`
		} `json:"message"`
		Subscription    string `json:"subscription"`
		DeliveryAttempt int    `json:"deliveryAttempt"`
	}
	if err := json.Unmarshal(body, &push); err != nil {
		return Message{}, fmt.Errorf("not the JSON of a Pub/Sub push: %w", err)
	}
	if push.Message == nil {
		return Message{}, errors.New("not a Pub/Sub push: it has no message")
	}
	m := Message{
		ID:           push.Message.MessageID,
		Data:         push.Message.Data,
		Attributes:   push.Message.Attributes,
		PublishTime:  push.Message.PublishTime,
		Subscription: push.Subscription[strings.LastIndexByte(push.Subscription, '/')+1:],
		Attempt:      push.DeliveryAttempt,
		Traceparent:  push.Message.Attributes[event.TraceparentAttribute],
	}
	if m.ID == "" {
		m.ID = push.Message.MessageIDOld
	}
	return m, nil
}

// lenientBase64 takes what any sender calls base64.
type lenientBase64 []byte

func (b *lenientBase64) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("data is not a string")
	}
	decoded, err := decodeBase64(text)
	*b = decoded
	return err
}

var alphabet = strings.NewReplacer("-", "+", "_", "/", "\r", "", "\n", "")

func decodeBase64(text string) ([]byte, error) {
	text = strings.TrimRight(alphabet.Replace(text), "=")
	decoded, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("data is not base64")
	}
	return decoded, nil
}

// DecodeNotification reads what Gmail publishes. historyId may be a JSON number or a string, as its
// payloads and its documentation have it, and is exact to the last digit of a uint64.
func DecodeNotification(data []byte) (mail.Notification, error) {
	var n struct {
		EmailAddress string      `json:"emailAddress"`
		HistoryID    json.Number `json:"historyId"`
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return mail.Notification{}, errors.New("not the JSON of a Gmail notification")
	}
	if err := mail.CheckAddress(n.EmailAddress); err != nil {
		return mail.Notification{}, fmt.Errorf("emailAddress: %w", err)
	}
	id, err := mail.ParseHistoryID(n.HistoryID.String())
	if err != nil {
		return mail.Notification{}, err
	}
	return mail.Notification{Email: mail.NormalizeAddress(n.EmailAddress), HistoryID: id}, nil
}
