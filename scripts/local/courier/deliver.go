package courier

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// A push is the body of a delivery. Pub/Sub sends some fields under two names, and leaves out what is
// empty.
type push struct {
	DeliveryAttempt int     `json:"deliveryAttempt,omitempty"`
	Message         message `json:"message"`
	Subscription    string  `json:"subscription"`
}

type message struct {
	Attributes       map[string]string `json:"attributes,omitempty"`
	Data             []byte            `json:"data,omitempty"`
	MessageID        string            `json:"messageId"`
	MessageIDSnake   string            `json:"message_id"`
	OrderingKey      string            `json:"orderingKey,omitempty"`
	PublishTime      string            `json:"publishTime"`
	PublishTimeSnake string            `json:"publish_time"`
}

func newHTTPClient(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConns:        connections,
			MaxIdleConnsPerHost: connections,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		},
		// A push does not follow: a redirect is an answer that does not acknowledge.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// deliver makes one post and says how it went. It returns within the route's ack deadline.
func (c *Courier) deliver(ctx context.Context, k *consumer, p post) Delivery {
	m := p.parcel.message
	d := Delivery{
		Route: k.route, MessageID: m.MessageId, PublishTime: m.PublishTime.AsTime(), Attributes: m.Attributes, Data: m.Data,
		Attempt: p.parcel.attempt, Repeat: p.repeat,
	}
	begin := time.Now()
	d.Status, d.Err = c.post(ctx, k, p)
	d.Duration = time.Since(begin)
	return d
}

func (c *Courier) post(ctx context.Context, k *consumer, p post) (int, error) {
	m := p.parcel.message
	published := m.PublishTime.AsTime().UTC().Format("2006-01-02T15:04:05.999Z07:00")
	content := push{
		Subscription: k.name,
		Message: message{
			Attributes: m.Attributes, Data: m.Data, OrderingKey: m.OrderingKey,
			MessageID: m.MessageId, MessageIDSnake: m.MessageId, PublishTime: published, PublishTimeSnake: published,
		},
	}
	if p.parcel.counted {
		content.DeliveryAttempt = p.parcel.attempt
	}
	body, err := json.Marshal(content)
	if err != nil {
		return 0, fmt.Errorf("encode a push: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, k.route.Delivery.AckDeadline())
	defer cancel()
	url := strings.TrimSuffix(c.options.Base, "/") + "/" + k.route.EntryPoint
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make a push: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("From", "noreply@google.com")
	request.Header.Set("User-Agent", "CloudPubSub-Google")
	request.Header.Set("Traceparent", fmt.Sprintf("00-%016x%016x-%016x-01", rand.Uint64(), rand.Uint64()|1, rand.Uint64()|1))
	if c.options.Token != nil {
		token, err := c.options.Token(url)
		if err != nil {
			return 0, fmt.Errorf("token for %s: %w", url, err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("push: %w", err)
	}
	defer answer.Body.Close()
	// Read to the end, so that the connection serves the next delivery.
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)); err != nil {
		return 0, fmt.Errorf("read the answer to a push: %w", err)
	}
	return answer.StatusCode, nil
}
