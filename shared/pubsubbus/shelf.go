package pubsubbus

import (
	"context"
	"fmt"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// pullWithin bounds a pull: letters may be large, and the first call has to connect.
const pullWithin = 15 * time.Second

// maxHandles is how many letters one call acknowledges or gives back: a request holds 512 KiB.
const maxHandles = 1000

// A Shelf reads the -inspect subscriptions of one project. Nothing else is ever pulled.
type Shelf struct {
	client  *pubsub.SubscriptionAdminClient
	project string
}

// OpenShelf returns the shelf of a project. With PUBSUB_EMULATOR_HOST set it is the emulator's. It makes
// no call yet.
func OpenShelf(ctx context.Context, project string, dial ...grpc.DialOption) (*Shelf, error) {
	options := make([]option.ClientOption, len(dial))
	for i, o := range dial {
		options[i] = option.WithGRPCDialOption(o)
	}
	client, err := pubsub.NewSubscriptionAdminClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open Pub/Sub of project %s: %w", project, err)
	}
	return &Shelf{client, project}, nil
}

// Close releases the connections.
func (s *Shelf) Close() error { return s.client.Close() }

// Pull takes up to limit letters; none where Pub/Sub has none at hand, which may be so although there are
// some. They are kept from others until they are acknowledged, given back, or the subscription's ack
// deadline has passed.
func (s *Shelf) Pull(ctx context.Context, subscription string, limit int) ([]ledger.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	answer, err := s.client.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: s.name(subscription), MaxMessages: int32(limit),
		// A pull that waits for messages cannot be told from one that gets no answer. It is deprecated for
		// what polling costs, and this is one call a minute.
		//lint:ignore SA1019 see above
		ReturnImmediately: true,
	})
	if err != nil {
		return nil, fault.Transient(fault.PubSubUnavailable, fmt.Errorf("pull from %s: %w", subscription, err))
	}
	letters := make([]ledger.Held, len(answer.GetReceivedMessages()))
	for i, r := range answer.GetReceivedMessages() {
		m := r.GetMessage()
		letters[i] = ledger.Held{
			Handle: r.GetAckId(), MessageID: m.GetMessageId(), Published: m.GetPublishTime().AsTime(),
			Data: m.GetData(), Attributes: m.GetAttributes(),
		}
	}
	return letters, nil
}

// Acknowledge takes letters away for good.
func (s *Shelf) Acknowledge(ctx context.Context, subscription string, letters []ledger.Held) error {
	return s.inBatches(ctx, letters, func(ctx context.Context, handles []string) error {
		err := s.client.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: s.name(subscription), AckIds: handles})
		if err != nil {
			return fault.Transient(fault.PubSubUnavailable, fmt.Errorf("acknowledge on %s: %w", subscription, err))
		}
		return nil
	})
}

// GiveBack lets others see letters again at once.
func (s *Shelf) GiveBack(ctx context.Context, subscription string, letters []ledger.Held) error {
	return s.inBatches(ctx, letters, func(ctx context.Context, handles []string) error {
		err := s.client.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{Subscription: s.name(subscription), AckIds: handles})
		if err != nil {
			return fault.Transient(fault.PubSubUnavailable, fmt.Errorf("give back on %s: %w", subscription, err))
		}
		return nil
	})
}

func (s *Shelf) inBatches(ctx context.Context, letters []ledger.Held, call func(context.Context, []string) error) error {
	for len(letters) > 0 {
		batch := letters[:min(len(letters), maxHandles)]
		letters = letters[len(batch):]
		handles := make([]string, len(batch))
		for i, h := range batch {
			handles[i] = h.Handle
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(ctx, handles)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Shelf) name(subscription string) string {
	return "projects/" + s.project + "/subscriptions/" + subscription
}
