package lane_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/lane"
)

// load reads the catalogue as the program does.
func load(t testing.TB) *lane.Catalogue {
	t.Helper()
	c, err := lane.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEmbeddedCatalogue(t *testing.T) {
	t.Parallel()
	c := load(t)
	yes, no := true, false
	for _, want := range []struct {
		key, entryPoint, topic, subscription string
		effect                               lane.Effect
	}{
		{"message-added", "MessageAdded", "gmail-message-added", "gmail-message-added-apply", lane.Effect{Kind: lane.Fetch}},
		{"message-read", "MessageRead", "gmail-message-read", "gmail-message-read-apply", lane.Effect{Kind: lane.SetTo, Field: "unread", Value: &no}},
		{"message-unread", "MessageUnread", "gmail-message-unread", "gmail-message-unread-apply", lane.Effect{Kind: lane.SetTo, Field: "unread", Value: &yes}},
		{"message-trashed", "MessageTrashed", "gmail-message-trashed", "gmail-message-trashed-apply", lane.Effect{Kind: lane.SetTo, Field: "trashed", Value: &yes}},
		{"message-restored", "MessageRestored", "gmail-message-restored", "gmail-message-restored-apply", lane.Effect{Kind: lane.SetTo, Field: "trashed", Value: &no}},
		{"message-permanently-deleted", "MessagePermanentlyDeleted", "gmail-message-permanently-deleted", "gmail-message-permanently-deleted-apply", lane.Effect{Kind: lane.Delete}},
	} {
		t.Run(want.key, func(t *testing.T) {
			t.Parallel()
			l, ok := c.Lane(want.key)
			if !ok {
				t.Fatal("the catalogue does not have it")
			}
			if l.EntryPoint != want.entryPoint {
				t.Errorf("its function is %s", l.EntryPoint)
			}
			if d := cmp.Diff(want.effect, l.Effect); d != "" {
				t.Errorf("effect (-want +got):\n%s", d)
			}
			r := l.Route()
			got := []string{r.Topic, r.Subscription, r.EntryPoint, r.DeadLetterTopic(), r.InspectSubscription(), r.MonitorSubscription()}
			names := []string{want.topic, want.subscription, want.entryPoint, want.topic + "-dead-letter",
				want.topic + "-dead-letter-inspect", want.topic + "-dead-letter-monitor"}
			if d := cmp.Diff(names, got); d != "" {
				t.Errorf("names (-want +got):\n%s", d)
			}
			if !r.DeadLetters || r.Delivery != l.Delivery {
				t.Errorf("the route is %+v", r)
			}
		})
	}
	if got := c.FetchLane().Key; got != "message-added" {
		t.Errorf("content is asked for on %q", got)
	}
	if _, ok := c.Lane("message-starred"); ok {
		t.Error("the catalogue has a lane that it does not have")
	}
}

// The product's own example of delivery values stands as it is documented.
func TestDeliveryOfMessageAdded(t *testing.T) {
	t.Parallel()
	l, _ := load(t).Lane("message-added")
	want := lane.Delivery{
		Instances: 3, Concurrency: 3, MaxRetries: 3, MinBackoffSeconds: 30, MaxBackoffSeconds: 300,
		AckDeadlineSeconds: 60, MaxDeliveryAttempts: 100,
	}
	if d := cmp.Diff(want, l.Delivery); d != "" {
		t.Errorf("delivery (-want +got):\n%s", d)
	}
	if l.Delivery.AckDeadline().Seconds() != 60 || l.Delivery.MaxBackoff().Minutes() != 5 {
		t.Errorf("ack deadline %v, longest back-off %v", l.Delivery.AckDeadline(), l.Delivery.MaxBackoff())
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	c := load(t)
	topics, monitors := map[string]lane.Route{}, map[string]lane.Route{}
	for _, r := range c.Routes() {
		if _, twice := topics[r.Topic]; twice {
			t.Errorf("two routes take from %s", r.Topic)
		}
		topics[r.Topic] = r
	}
	for _, m := range c.MonitorRoutes() {
		monitors[m.Topic] = m
	}
	if len(topics) < len(c.Lanes)+2 || len(monitors) != len(topics) {
		t.Errorf("%d lanes have %d routes and %d monitors", len(c.Lanes), len(topics), len(monitors))
	}
	for topic, r := range topics {
		m := monitors[topic+"-dead-letter"]
		if m.Subscription != r.MonitorSubscription() || m.EntryPoint != "DeadLetter" || m.DeadLetters {
			t.Errorf("the dead letters of %s are watched by %+v", topic, m)
		}
	}
	for topic, want := range map[string][2]string{
		"gmail-notifications": {"gmail-notifications-ingest", "Ingest"},
		"mailbox-resync":      {"mailbox-resync-work", "Resync"},
		"digest-send":         {"digest-send-work", "DigestSend"},
	} {
		if r := topics[topic]; r.Subscription != want[0] || r.EntryPoint != want[1] {
			t.Errorf("%s goes to %+v", topic, r)
		}
	}
}

func TestFlagsOf(t *testing.T) {
	t.Parallel()
	c := load(t)
	for _, test := range []struct {
		name   string
		labels []string
		want   map[string]bool
	}{
		{"unread in the inbox", []string{"INBOX", "UNREAD"}, map[string]bool{"unread": true, "trashed": false}},
		{"read, in the trash", []string{"TRASH"}, map[string]bool{"unread": false, "trashed": true}},
		{"both", []string{"UNREAD", "CATEGORY_UPDATES", "TRASH"}, map[string]bool{"unread": true, "trashed": true}},
		{"labels left out", nil, map[string]bool{"unread": false, "trashed": false}},
		{"a label that looks alike", []string{"unread", "UNREAD_2"}, map[string]bool{"unread": false, "trashed": false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(test.want, c.FlagsOf(test.labels)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// withLanes is the catalogue of the program and further lanes, as data.
func withLanes(t *testing.T, more ...string) *lane.Catalogue {
	t.Helper()
	data, err := os.ReadFile("catalogue.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Lanes []json.RawMessage `json:"lanes"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, l := range more {
		file.Lanes = append(file.Lanes, json.RawMessage(l))
	}
	data, err = json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := lane.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.Select(nil); err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	starred = `{
		"key": "message-starred", "entryPoint": "MessageStarred",
		"match": [{"history": "labelsAdded", "label": "STARRED", "unlessLabel": "DRAFT"}],
		"effect": {"kind": "flag", "field": "starred", "value": true},
		"delivery": {"instances": 1, "concurrency": 10, "maxRetries": 3, "minBackoffSeconds": 30,
			"maxBackoffSeconds": 300, "ackDeadlineSeconds": 30, "maxDeliveryAttempts": 100}}`
	// A flag may also stand for a label's absence.
	archived = `{
		"key": "message-archived", "entryPoint": "MessageArchived",
		"match": [{"history": "labelsRemoved", "label": "INBOX"}],
		"effect": {"kind": "flag", "field": "archived", "value": true},
		"delivery": {"instances": 1, "concurrency": 10, "maxRetries": 3, "minBackoffSeconds": 30,
			"maxBackoffSeconds": 300, "ackDeadlineSeconds": 30, "maxDeliveryAttempts": 100}}`
)

func TestLaneMoreIsAnEntryMore(t *testing.T) {
	t.Parallel()
	c := withLanes(t, starred, archived)
	for _, key := range []string{"message-starred", "message-archived"} {
		if _, ok := c.Lane(key); !ok {
			t.Errorf("there is no lane %s", key)
		}
	}
	got := c.FlagsOf([]string{"STARRED", "INBOX"})
	want := map[string]bool{"unread": false, "trashed": false, "starred": true, "archived": false}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("flags of a starred message (-want +got):\n%s", d)
	}
	if !c.FlagsOf(nil)["archived"] || c.FlagsOf(nil)["starred"] {
		t.Errorf("flags of a message without labels: %v", c.FlagsOf(nil))
	}
	events := c.NewListing("a1").Page([]lane.Record{{ID: 110, Entries: []lane.Entry{
		{List: lane.LabelsAdded, MessageID: "m1", Labels: []string{"STARRED", "UNREAD"}, MessageLabels: []string{"STARRED", "UNREAD"}},
		{List: lane.LabelsRemoved, MessageID: "m1", Labels: []string{"INBOX"}},
	}}})
	if d := cmp.Diff([]string{"message-unread m1 110", "message-starred m1 110", "message-archived m1 110"}, names(events)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	topics := []string{}
	for _, r := range c.Routes() {
		topics = append(topics, r.Topic)
	}
	if !strings.Contains(strings.Join(topics, " "), "gmail-message-starred gmail-message-archived") {
		t.Errorf("the topics are %v", topics)
	}
}
