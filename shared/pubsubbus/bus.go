// Package pubsubbus publishes on Pub/Sub. A publish returns when Pub/Sub has confirmed every message,
// so nothing is left to a goroutine that a frozen instance would never finish: it is one call for
// each topic and batch. Errors are transient faults; some of the messages may then be published.
package pubsubbus

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

const (
	// callTimeout bounds each call, so that a push is answered within 10 s when Pub/Sub is down.
	callTimeout = 3 * time.Second
	// maxBatch is how many messages one call takes: Pub/Sub's limit.
	maxBatch = 1000
)

// A Bus publishes in one project. It may be used by many goroutines.
type Bus struct {
	// The library's own Publisher batches in the background, which is not wanted here, and to have its
	// package in the program costs every cold start a millisecond.
	client    *pubsub.TopicAdminClient
	project   string
	catalogue *lane.Catalogue
}

// Open returns the bus of a project. With PUBSUB_EMULATOR_HOST set it is the emulator's. It makes no
// call yet.
func Open(ctx context.Context, project string, catalogue *lane.Catalogue, dial ...grpc.DialOption) (*Bus, error) {
	options := make([]option.ClientOption, len(dial))
	for i, o := range dial {
		options[i] = option.WithGRPCDialOption(o)
	}
	client, err := pubsub.NewTopicAdminClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open Pub/Sub of project %s: %w", project, err)
	}
	return &Bus{client, project, catalogue}, nil
}

// Close releases the connections.
func (b *Bus) Close() error { return b.client.Close() }

// PublishEvents publishes each event on its own lane's topic, those of one topic in their order.
func (b *Bus) PublishEvents(ctx context.Context, events ...mail.Event) error {
	var topics []string // in the order of their first event
	byTopic := map[string][]*pubsubpb.PubsubMessage{}
	for _, e := range events {
		l, ok := b.catalogue.Lane(e.Lane)
		if !ok {
			return fault.Permanent(fault.Malformed, fmt.Errorf("event %s is of a lane that is not in the catalogue", e.ID()))
		}
		message, err := encode(e)
		if err != nil {
			return err
		}
		if byTopic[l.Topic()] == nil {
			topics = append(topics, l.Topic())
		}
		byTopic[l.Topic()] = append(byTopic[l.Topic()], message)
	}
	for _, topic := range topics {
		if err := b.publish(ctx, topic, byTopic[topic]); err != nil {
			return err
		}
	}
	return nil
}

// PublishChange tells the app, on mailbox-changes, that an event has been applied.
func (b *Bus) PublishChange(ctx context.Context, e mail.Event) error {
	message, err := encode(e)
	if err != nil {
		return err
	}
	return b.publish(ctx, lane.MailboxChangesTopic, []*pubsubpb.PubsubMessage{message})
}

// PublishRaw publishes one message as it is.
func (b *Bus) PublishRaw(ctx context.Context, topic string, data []byte, attributes map[string]string) error {
	return b.publish(ctx, topic, []*pubsubpb.PubsubMessage{{Data: data, Attributes: attributes}})
}

func encode(e mail.Event) (*pubsubpb.PubsubMessage, error) {
	data, attributes, err := event.Encode(e)
	if err != nil {
		return nil, fault.Permanent(fault.Malformed, err)
	}
	return &pubsubpb.PubsubMessage{Data: data, Attributes: attributes}, nil
}

func (b *Bus) publish(ctx context.Context, topic string, messages []*pubsubpb.PubsubMessage) error {
	for len(messages) > 0 {
		batch := messages[:min(len(messages), maxBatch)]
		messages = messages[len(batch):]
		if err := b.call(ctx, topic, batch); err != nil {
			return fault.Transient(fault.PubSubUnavailable, fmt.Errorf("publish %d messages on %s: %w", len(batch), topic, err))
		}
	}
	return nil
}

func (b *Bus) call(ctx context.Context, topic string, batch []*pubsubpb.PubsubMessage) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.client.Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    "projects/" + b.project + "/topics/" + topic,
		Messages: batch,
	})
	return err
}
