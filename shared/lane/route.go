package lane

// Topics that are not lanes'.
const (
	NotificationsTopic  = "gmail-notifications" // Gmail publishes here: a mailbox changed
	ResyncTopic         = "mailbox-resync"      // a mailbox is to be compared with its mirror
	DigestTopic         = "digest-send"         // a run of digests is to go on
	MailboxChangesTopic = "mailbox-changes"     // for the app: an event has been applied
)

// A Route is the way from a topic to the function that consumes it. Its names are short ids, without
// the project.
type Route struct {
	Topic        string
	Subscription string
	EntryPoint   string
	Delivery     Delivery
	// DeadLetters says whether what fails for good goes to a dead-letter topic. Only the monitors
	// have none: dead letters are never dead-lettered again.
	DeadLetters bool
}

// DeadLetterTopic is where the route's dead letters go.
func (r Route) DeadLetterTopic() string { return r.Topic + "-dead-letter" }

// InspectSubscription keeps the route's dead letters for people to look at.
func (r Route) InspectSubscription() string { return r.DeadLetterTopic() + "-inspect" }

// MonitorSubscription brings the route's dead letters to the ledger.
func (r Route) MonitorSubscription() string { return r.DeadLetterTopic() + "-monitor" }

// Topic is where the lane's events are published.
func (l Lane) Topic() string { return "gmail-" + l.Key }

// Route is the lane's way from its topic to its function.
func (l Lane) Route() Route {
	return Route{Topic: l.Topic(), Subscription: l.Topic() + "-apply", EntryPoint: l.EntryPoint, Delivery: l.Delivery, DeadLetters: true}
}

// The routes beside the lanes. Terraform has the same in one map; a test holds them together.
var (
	IngestRoute = Route{
		Topic: NotificationsTopic, Subscription: NotificationsTopic + "-ingest", EntryPoint: "Ingest", DeadLetters: true,
		Delivery: Delivery{Instances: 5, Concurrency: 10, MaxRetries: 3, MinBackoffSeconds: 10, MaxBackoffSeconds: 300, AckDeadlineSeconds: 60, MaxDeliveryAttempts: 100},
	}
	ResyncRoute = Route{
		Topic: ResyncTopic, Subscription: ResyncTopic + "-work", EntryPoint: "Resync", DeadLetters: true,
		Delivery: Delivery{Instances: 3, Concurrency: 1, MaxRetries: 5, MinBackoffSeconds: 30, MaxBackoffSeconds: 600, AckDeadlineSeconds: 300, MaxDeliveryAttempts: 100},
	}
	// DigestSendRoute has one worker: the sender may send 60 mails a minute, however many runs there are.
	DigestSendRoute = Route{
		Topic: DigestTopic, Subscription: DigestTopic + "-work", EntryPoint: "DigestSend", DeadLetters: true,
		Delivery: Delivery{Instances: 1, Concurrency: 1, MaxRetries: 5, MinBackoffSeconds: 30, MaxBackoffSeconds: 600, AckDeadlineSeconds: 600, MaxDeliveryAttempts: 100},
	}
	// monitorDelivery is that of every dead-letter monitor. A letter comes back until the ledger has it.
	monitorDelivery = Delivery{Instances: 3, Concurrency: 10, MaxRetries: 0, MinBackoffSeconds: 10, MaxBackoffSeconds: 600, AckDeadlineSeconds: 30, MaxDeliveryAttempts: 100}
)

// Routes returns every way from a topic to a function that does the product's work: the lanes' and
// the few beside them.
func (c *Catalogue) Routes() []Route {
	routes := []Route{IngestRoute}
	for _, l := range c.Lanes {
		routes = append(routes, l.Route())
	}
	return append(routes, ResyncRoute, DigestSendRoute)
}

// MonitorRoutes returns the ways from each dead-letter topic to the function that keeps the ledger.
func (c *Catalogue) MonitorRoutes() []Route {
	var monitors []Route
	for _, r := range c.Routes() {
		monitors = append(monitors, Route{
			Topic: r.DeadLetterTopic(), Subscription: r.MonitorSubscription(), EntryPoint: "DeadLetter", Delivery: monitorDelivery,
		})
	}
	return monitors
}

// reservedEntryPoint reports whether a function beside the lanes has that name (design 3.1).
func reservedEntryPoint(name string) bool {
	switch name {
	case "Ingest", "DeadLetter", "Connect", "Renew", "Tick", "Resync", "Digest", "DigestSend", "Unsubscribe", "Console":
		return true
	}
	return false
}
