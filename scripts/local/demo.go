package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/functions/ingest"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/mirror"
	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

const (
	demoAddress = "ann@example.com"
	demoToken   = "ann-refresh-token"
	demoMails   = 50
	demoLimit   = 2 * time.Minute // after which the demo gives up
)

func demoCommand() *cobra.Command {
	var seed uint64
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Tell a mailbox's story from link to redrive, and compare the mirror with the mailbox",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), seed)
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "decides what is shuffled and repeated")
	return cmd
}

// A demo is a story with an end.
type demo struct {
	*yard
	out     io.Writer
	random  *rand.Rand
	tally   *tally
	courier *courier.Courier

	box      *gmailsim.Mailbox
	account  mail.Account
	poisoned string
	fault    int
}

func runDemo(ctx context.Context, out io.Writer, seed uint64) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	began := time.Now()
	fmt.Fprintln(out, "Starting the Pub/Sub and the Firestore emulator, a simulated Gmail and every function …")
	keyset := filepath.Join(stateDir, fmt.Sprintf("demo-%d-keyset.json", os.Getpid()))
	y, err := openYard(ctx, yardOptions{logName: "demo.log", keyset: keyset})
	if err != nil {
		return err
	}
	y.onClose(func() error { return os.RemoveAll(keyset) })
	defer func() { err = errors.Join(err, y.close()) }()

	d := &demo{yard: y, out: out, random: rand.New(rand.NewPCG(seed, seed)), tally: &tally{}}
	d.courier = y.deliver(courier.Options{
		RetryScale: 0.01, Shuffle: 300 * time.Millisecond, Repeat: 0.2, Seed: seed, Observe: d.tally.observe,
	}, stop)
	for _, act := range []func(context.Context) error{d.link, d.arrive, d.change, d.inspect, d.redrive} {
		if err := act(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
				err = errors.Join(cause, err)
			}
			return fmt.Errorf("the demo stopped: %w; %s says more", err, y.logPath)
		}
	}
	differences, err := d.compare(ctx)
	if err != nil {
		return err
	}
	d.figures()
	fmt.Fprintf(out, "\n%d differences, after %.1f seconds. Each delivery's log line is in %s.\n", differences, time.Since(began).Seconds(), y.logPath)
	if differences > 0 {
		return exitStatus(1)
	}
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// settle waits until nothing is on its way any more.
func (d *demo) settle(ctx context.Context) error { return d.courier.Idle(ctx) }

func (d *demo) link(ctx context.Context) error {
	box, err := d.gmail.AddMailbox(demoAddress, demoToken)
	if err != nil {
		return err
	}
	linker, err := d.app.Linker(ctx)
	if err != nil {
		return err
	}
	d.box = box
	d.account, err = linker.Link(ctx, mailbox.Grant{Owner: "demo", Email: demoAddress, RefreshToken: demoToken, NoResync: true})
	if err != nil {
		return err
	}
	d.say("\n1. A mailbox is linked: account %s, watched until %s, its cursor at %d.",
		d.account.ID, d.account.WatchExpiresAt.Format("2006-01-02"), d.account.HistoryID)
	return d.settle(ctx)
}

func (d *demo) arrive(ctx context.Context) error {
	d.say("\n2. %d mails arrive. Each notification goes to Ingest, each new message to the lane message-added;", demoMails)
	d.say("   deliveries overtake each other, and one in five is made twice. Gmail will not give one message out.")
	for i := range demoMails {
		// The notification of the one to be poisoned gets lost, as Gmail's do: the next one brings it too.
		poison := i == demoMails/2
		if poison {
			d.box.LoseNotifications(1)
		}
		id, err := d.box.Deliver(ctx, gmailsim.Mail{
			From: fmt.Sprintf("Sender %d <sender%d@example.org>", i%7, i%7), To: demoAddress,
			Subject: fmt.Sprintf("Mail number %d", i+1), Text: "Hello from the demo.",
		})
		if err != nil {
			return err
		}
		if poison {
			d.poisoned = id
			if d.fault, err = d.gmail.AddFault(gmailsim.Fault{Method: "messages.get", MessageID: id, Status: 500, Message: "backendError"}); err != nil {
				return err
			}
		}
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	return d.report(ctx)
}

func (d *demo) change(ctx context.Context) error {
	var ids []string
	for _, m := range d.box.Snapshot() {
		if m.ID != d.poisoned {
			ids = append(ids, m.ID)
		}
	}
	d.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	type step struct {
		what string
		do   func(context.Context, string) error
		ids  []string
	}
	steps := []step{
		{"read", d.box.Read, ids[:30]},
		{"marked unread again", d.box.Unread, ids[10:20]},
		{"trashed", d.box.Trash, ids[25:40]},
		{"restored", d.box.Untrash, ids[30:38]},
		{"deleted for good", d.box.Delete, ids[42:47]},
	}
	var told []string
	for _, s := range steps {
		for _, id := range s.ids {
			if err := s.do(ctx, id); err != nil {
				return err
			}
		}
		told = append(told, fmt.Sprintf("%d are %s", len(s.ids), s.what))
	}
	d.say("\n3. Of these, %s.", strings.Join(told, ", "))
	d.say("   Read before unread, or the other way round: the guards decide, not the order of arrival.")
	if err := d.settle(ctx); err != nil {
		return err
	}
	return d.report(ctx)
}

// report says how far the mirror is.
func (d *demo) report(ctx context.Context) error {
	messages, err := d.db.Messages(ctx, d.account.ID)
	if err != nil {
		return err
	}
	whole, gone, stubs := 0, 0, 0
	for _, m := range messages {
		switch {
		case m.Deleted:
			gone++
		case m.HasContent:
			whole++
		default:
			stubs++
		}
	}
	d.say("   Mirrored: %d messages with content, %d tombstones, %d stubs.", whole, gone, stubs)
	return nil
}

func (d *demo) inspect(ctx context.Context) error {
	e, found, err := d.db.Read(ctx, d.letterID(ctx))
	switch {
	case err != nil:
		return err
	case !found || e.State != ledger.Dead:
		return fmt.Errorf("the poisoned message should be a dead letter by now, but the ledger says %q", e.State)
	}
	d.say("\n4. The poisoned message was tried %d times (once, and the lane's 3 retries), held nobody up, and is a", e.Attempts)
	d.say("   dead letter now. This is its autopsy, as the Cloud Console shows it:")
	letter := e.Letter()
	for _, name := range slices.Sorted(maps.Keys(letter)) {
		if strings.HasPrefix(name, "dead-letter-") {
			d.say("     %-28s %s", name, letter[name])
		}
	}
	return nil
}

// letterID finds the poisoned message's entry in the ledger.
func (d *demo) letterID(ctx context.Context) string {
	entries, err := d.db.Unresolved(ctx, d.account.ID)
	if err != nil {
		return "unknown"
	}
	for _, e := range entries {
		if e.MessageID == d.poisoned {
			return e.ID
		}
	}
	return "none"
}

func (d *demo) redrive(ctx context.Context) error {
	d.gmail.RemoveFault(d.fault)
	redriver, err := d.app.Redriver(ctx)
	if err != nil {
		return err
	}
	id := d.letterID(ctx)
	result, err := redriver.Redrive(ctx, "redrive-demo", id)
	if err != nil {
		return err
	}
	if result != deadletter.Redriven {
		return fmt.Errorf("the letter could not be redriven: %s", result)
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	e, _, err := d.db.Read(ctx, id)
	if err != nil {
		return err
	}
	d.say("\n5. The cause is mended and the letter redriven: published again on its own topic, it is applied, and")
	d.say("   the ledger says %q after %d redrive.", e.State, e.Redrives)
	if e.State != ledger.Resolved {
		return errors.New("the redriven letter is not resolved")
	}
	return nil
}

// compare prints mailbox beside mirror, and counts the differences.
func (d *demo) compare(ctx context.Context) (int, error) {
	mirrored, err := d.db.Messages(ctx, d.account.ID)
	if err != nil {
		return 0, err
	}
	mailbox := d.box.Snapshot()
	d.say("\n6. The mirror beside the mailbox:\n")
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmailbox\tmirror\tdifferences\t")
	there, here := len(mailbox), 0
	for _, m := range mirrored {
		if !m.Deleted {
			here++
		}
	}
	fmt.Fprintf(w, "messages\t%d\t%d\t%d\t\n", there, here, abs(there-here))
	for _, rule := range d.catalogue.Flags {
		there, here := 0, 0
		for _, m := range mailbox {
			if d.catalogue.FlagsOf(m.Labels)[rule.Field] {
				there++
			}
		}
		for _, m := range mirrored {
			if !m.Deleted && m.Flags[rule.Field] {
				here++
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", rule.Field, there, here, abs(there-here))
	}
	differences := mirror.Differences(d.catalogue.FlagsOf, mailbox, mirrored)
	fmt.Fprintf(w, "message by message\t\t\t%d\t\n", len(differences))
	if err := w.Flush(); err != nil {
		return 0, err
	}
	for _, difference := range differences {
		d.say("   %s", difference)
	}
	return len(differences), nil
}

// figures prints what everything cost, from counters.
func (d *demo) figures() {
	d.say("\n7. What it cost, from counters. An execution is a delivery that was not repeated on purpose. A read is one")
	d.say("   round trip; there is more than one where two writers met, and the later one read again. A write can be")
	d.say("   spared, where a later event came first.\n")
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tevents\tdeliveries\tof them\texecutions\treads per\twrites per\tGmail calls\t")
	fmt.Fprintln(w, "function\t\t\trepeats\tper event\tdelivery\tevent\tper event\t")
	for _, r := range d.routes {
		if r.DeadLetters {
			d.row(w, r.EntryPoint, r.EntryPoint, func(message string) bool { return message != d.poisoned })
		}
	}
	d.row(w, "the poisoned message", d.catalogue.FetchLane().EntryPoint, func(message string) bool { return message == d.poisoned })
	_ = w.Flush() // to the terminal
	stats := d.gmail.Stats()
	d.say("\n   Gmail: %d calls for %d quota units (%s).", stats.TotalCalls, stats.TotalUnits, unitsByMethod(stats))
}

// row prints what a function's events about the messages that are asked for have cost.
func (d *demo) row(w io.Writer, title, entryPoint string, asked func(message string) bool) {
	c := d.tally.of(entryPoint, asked)
	if len(c.events) == 0 {
		return
	}
	purpose := func(p delivery.Purpose) bool {
		return p.Consumer == entryPoint && (c.events[p.EventID] || entryPoint == ingest.Consumer)
	}
	reads := d.meter.CallsFor(purpose, "BatchGetDocuments", "RunQuery")
	writes := d.meter.CallsFor(purpose, "Commit")
	calls := 0
	for _, call := range d.gmail.Calls("history.list", "messages.get") {
		switch {
		case call.Method == "history.list" && entryPoint == ingest.Consumer,
			call.Method == "messages.get" && entryPoint == d.catalogue.FetchLane().EntryPoint && asked(call.MessageID):
			calls++
		}
	}
	events := float64(len(c.events))
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", title, len(c.events), c.posts, c.repeats,
		float64(c.posts-c.repeats)/events, float64(reads)/float64(c.posts), float64(writes)/events, float64(calls)/events)
}

func unitsByMethod(stats gmailsim.Stats) string {
	var parts []string
	for _, method := range slices.Sorted(maps.Keys(stats.Units)) {
		if stats.Units[method] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", method, stats.Units[method]))
		}
	}
	return strings.Join(parts, ", ")
}

func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
