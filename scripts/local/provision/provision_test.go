package provision_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"

	"mailyard.internal/mailyard/scripts/local/provision"
	"mailyard.internal/mailyard/shared/lane"
)

func newClient(t *testing.T) *pubsub.Client {
	t.Helper()
	if os.Getenv("PUBSUB_EMULATOR_HOST") == "" {
		t.Skip("needs the Pub/Sub emulator: run make test")
	}
	client, err := pubsub.NewClient(t.Context(), fmt.Sprintf("provision-%x", rand.Uint64()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func subscriptions(t *testing.T, client *pubsub.Client) map[string]*pubsubpb.Subscription {
	t.Helper()
	found := map[string]*pubsubpb.Subscription{}
	all := client.SubscriptionAdminClient.ListSubscriptions(t.Context(), &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + client.Project()})
	for {
		s, err := all.Next()
		if errors.Is(err, iterator.Done) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[s.Name[strings.LastIndex(s.Name, "/")+1:]] = s
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	catalogue, err := lane.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := provision.Catalogue(t.Context(), client, catalogue); err != nil {
		t.Fatal(err)
	}

	name := func(topic string) string { return "projects/" + client.Project() + "/topics/" + topic }
	changes := name(lane.MailboxChangesTopic)
	if _, err := client.TopicAdminClient.GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: changes}); err != nil {
		t.Error(err)
	}
	routes := catalogue.Routes()
	made := subscriptions(t, client)
	if want := 3 * len(routes); len(made) != want {
		t.Errorf("%d subscriptions, want %d: the route's, -inspect and -monitor for each", len(made), want)
	}
	for _, r := range routes {
		s := made[r.Subscription]
		if s.GetTopic() != name(r.Topic) || s.GetDeadLetterPolicy().GetDeadLetterTopic() != name(r.DeadLetterTopic()) ||
			int(s.GetDeadLetterPolicy().GetMaxDeliveryAttempts()) != r.Delivery.MaxDeliveryAttempts {
			t.Errorf("%s is %v", r.Subscription, s)
		}
		for _, letters := range []string{r.InspectSubscription(), r.MonitorSubscription()} {
			if s := made[letters]; s.GetTopic() != name(r.DeadLetterTopic()) || s.GetDeadLetterPolicy() != nil {
				t.Errorf("%s is %v", letters, s)
			}
		}
	}

	// Again, with a message waiting: it is still there.
	_, err = client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: name(routes[0].Topic), Messages: []*pubsubpb.PubsubMessage{{Data: []byte("kept")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := provision.Catalogue(t.Context(), client, catalogue); err != nil {
		t.Fatalf("the second time: %v", err)
	}
	if again := subscriptions(t, client); len(again) != len(made) {
		t.Errorf("%d subscriptions after the second time, %d before", len(again), len(made))
	}
	pulled, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: made[routes[0].Subscription].Name, MaxMessages: 1})
	if err != nil || len(pulled.ReceivedMessages) != 1 {
		t.Errorf("the waiting message is gone: %v, %v", pulled, err)
	}
}

func TestRefusesGoogleCloud(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	if err := provision.Routes(t.Context(), nil, nil); err == nil {
		t.Error("worked without the emulator")
	}
}
