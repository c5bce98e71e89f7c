// Package provision makes on the Pub/Sub emulator what Terraform makes on Google Cloud: the topics and
// subscriptions of the catalogue's routes.
//
// It may be repeated: what exists stays as it is, with its messages. It refuses to work without
// PUBSUB_EMULATOR_HOST, since what it makes differs from the real thing on purpose:
//   - Every subscription is a pull subscription; package courier pulls and posts.
//   - No retry policy. In pull mode the emulator's own redelivers at once the first time and then at
//     whole seconds, two or three of them, whatever the policy says. The courier holds a message for
//     the route's back-off instead, and a nack without a policy brings it back within milliseconds.
//   - An ack deadline of ten seconds, the least there is: the courier renews the lease of what it
//     holds, and what a killed courier held comes back soon. The route's own deadline is the
//     courier's time limit for a request.
//
// The dead-letter policy is set as on Google Cloud: the emulator counts the delivery attempts and
// forwards what has spent them.
package provision

import (
	"context"
	"errors"
	"fmt"
	"os"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/shared/lane"
)

// leaseSeconds is the ack deadline of every subscription.
const leaseSeconds = 10

// Catalogue makes everything that the catalogue's routes and their monitors need, and the topic for
// the app, which has no subscription of ours.
func Catalogue(ctx context.Context, client *pubsub.Client, catalogue *lane.Catalogue) error {
	if err := Routes(ctx, client, append(catalogue.Routes(), catalogue.MonitorRoutes()...)); err != nil {
		return err
	}
	return maker{client}.topic(ctx, lane.MailboxChangesTopic)
}

// Routes makes the topics and subscriptions of these routes in the client's project: for each its
// topic and subscription, and for one with dead letters also its dead-letter topic and what keeps the
// letters for people to look at.
func Routes(ctx context.Context, client *pubsub.Client, routes []lane.Route) error {
	if os.Getenv("PUBSUB_EMULATOR_HOST") == "" {
		return errors.New("make topics: PUBSUB_EMULATOR_HOST is not set, and this is for the emulator alone")
	}
	m := maker{client}
	for _, r := range routes {
		if err := m.topic(ctx, r.Topic); err != nil {
			return err
		}
		deadLetters := ""
		if r.DeadLetters {
			deadLetters = r.DeadLetterTopic()
			if err := m.topic(ctx, deadLetters); err != nil {
				return err
			}
			if err := m.subscription(ctx, r.InspectSubscription(), deadLetters, "", 0); err != nil {
				return err
			}
		}
		if err := m.subscription(ctx, r.Subscription, r.Topic, deadLetters, r.Delivery.MaxDeliveryAttempts); err != nil {
			return err
		}
	}
	return nil
}

type maker struct{ client *pubsub.Client }

func (m maker) topicName(id string) string {
	return fmt.Sprintf("projects/%s/topics/%s", m.client.Project(), id)
}

func (m maker) topic(ctx context.Context, id string) error {
	_, err := m.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: m.topicName(id)})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("make topic %s: %w", id, err)
	}
	return nil
}

// subscription makes a subscription; deadLetters is the topic for what has spent its attempts, or "".
func (m maker) subscription(ctx context.Context, id, topic, deadLetters string, attempts int) error {
	s := &pubsubpb.Subscription{
		Name:               fmt.Sprintf("projects/%s/subscriptions/%s", m.client.Project(), id),
		Topic:              m.topicName(topic),
		AckDeadlineSeconds: leaseSeconds,
	}
	if deadLetters != "" {
		s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: m.topicName(deadLetters), MaxDeliveryAttempts: int32(attempts)}
	}
	_, err := m.client.SubscriptionAdminClient.CreateSubscription(ctx, s)
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("make subscription %s: %w", id, err)
	}
	return nil
}
