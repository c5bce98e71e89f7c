package mailbox

import (
	"context"
	"slices"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// flagLabels are the labels that every comparison lists, the empty one for all messages.
func flagLabels(flags []lane.FlagRule) []string {
	labels := []string{"", mail.DraftLabel}
	for _, rule := range flags {
		if !slices.Contains(labels, rule.Label) {
			labels = append(labels, rule.Label)
		}
	}
	return labels
}

// labelsToList are those of a mailbox whose mirror keeps what the catalogue says.
func labelsToList(ctx context.Context, catalogue *lane.Catalogue, gmail labelLister, account string) ([]string, error) {
	labels := flagLabels(catalogue.Flags)
	if !catalogue.KeepsLabels() {
		return labels, nil
	}
	all, err := gmail.Labels(ctx, account)
	if err != nil {
		return nil, err
	}
	for _, label := range all {
		if !slices.Contains(labels, label.ID) {
			labels = append(labels, label.ID)
		}
	}
	return labels, nil
}

// A labelLister knows a mailbox's labels.
type labelLister interface {
	// Labels gets every label of the mailbox: 1 quota unit.
	Labels(ctx context.Context, account string) ([]mail.Label, error)
}

// A listing is what Gmail listed of a mailbox: every id, and which labels it was listed under. It lags
// and is no snapshot, so it only nominates.
type listing struct {
	flags      []lane.FlagRule
	keepLabels bool
	labels     []string            // those that are listed; a label's place is its bit
	newest     []string            // ids, newest first, each once
	under      map[string]labelSet // by id
}

// A labelSet has a bit for each listed label.
type labelSet []uint64

func (s labelSet) has(bit int) bool {
	return bit >= 0 && bit/64 < len(s) && s[bit/64]&(1<<(bit%64)) != 0
}

func (s labelSet) with(bit int) labelSet {
	for bit/64 >= len(s) {
		s = append(s, 0)
	}
	s[bit/64] |= 1 << (bit % 64)
	return s
}

func newListing(catalogue *lane.Catalogue, labels []string) *listing {
	return &listing{flags: catalogue.Flags, keepLabels: catalogue.KeepsLabels(), labels: labels, under: map[string]labelSet{}}
}

// add takes in ids that were listed under a label.
func (l *listing) add(label string, ids []string) {
	bit := l.bit(label)
	for _, id := range ids {
		set, known := l.under[id]
		if !known {
			l.newest = append(l.newest, id)
		}
		l.under[id] = set.with(bit)
	}
}

func (l *listing) bit(label string) int { return slices.Index(l.labels, label) }

// isDraft reports whether the message was listed as a draft.
func (l *listing) isDraft(set labelSet) bool { return set.has(l.bit(mail.DraftLabel)) }

// messages counts what was listed, without drafts.
func (l *listing) messages() int {
	n := 0
	for _, set := range l.under {
		if !l.isDraft(set) {
			n++
		}
	}
	return n
}

// nomination says of a listed message what the listing says of it.
func (l *listing) nomination(id string, set labelSet) mail.Nomination {
	n := mail.Nomination{MessageID: id, Listed: make(map[string]bool, len(l.flags))}
	for _, rule := range l.flags {
		n.Listed[rule.Field] = set.has(l.bit(rule.Label)) == rule.Carried
	}
	if l.keepLabels {
		n.Labels = []string{}
		for bit, label := range l.labels {
			if label != "" && set.has(bit) {
				n.Labels = append(n.Labels, label)
			}
		}
	}
	return n
}

// Differences are what a comparison found, counted.
type Differences struct {
	Missing int
	Extra   int
	Flags   map[string]int // by field
}

// mirroredMessages reads a mirror.
type mirroredMessages interface {
	// EachMessage calls visit for every message of an account, tombstones among them, in the order of
	// their ids. Of each it reads only what a comparison needs: id, hasContent, deleted, flags, labels.
	EachMessage(ctx context.Context, account string, flags []lane.FlagRule, visit func(mail.Message)) error
}

// labelsField is where a difference of labels is counted.
const labelsField = "labelIds"

// compare nominates: what was listed newest first, then what was not.
func (l *listing) compare(ctx context.Context, mirror mirroredMessages, account string) ([]mail.Nomination, Differences, error) {
	differences := Differences{Flags: map[string]int{}}
	for _, rule := range l.flags {
		differences.Flags[rule.Field] = 0
	}
	if l.keepLabels {
		differences.Flags[labelsField] = 0
	}
	nominated := map[string]mail.Nomination{}
	seen := make(map[string]bool, len(l.under))
	var extra []mail.Nomination
	err := mirror.EachMessage(ctx, account, l.flags, func(m mail.Message) {
		set, listed := l.under[m.ID]
		seen[m.ID] = listed
		isDraft := l.isDraft(set)
		switch {
		case isDraft && !m.NeedsContent(), !listed && m.Deleted:
		case !listed, isDraft:
			differences.Extra++
			extra = append(extra, mail.Nomination{MessageID: m.ID, Why: mail.Extra})
		case !m.HasContent:
			n := l.nomination(m.ID, set)
			n.Why = mail.Missing
			nominated[m.ID] = n
		default:
			n := l.nomination(m.ID, set)
			wrong := n.Wrong(m)
			for _, field := range wrong {
				differences.Flags[field]++
			}
			if len(wrong) > 0 {
				n.Why = mail.Flagged
				nominated[m.ID] = n
			}
		}
	})
	if err != nil {
		return nil, Differences{}, err
	}
	nominations := make([]mail.Nomination, 0, len(nominated)+len(extra))
	for _, id := range l.newest {
		n, ok := nominated[id]
		if set := l.under[id]; !ok && !seen[id] && !l.isDraft(set) {
			n, ok = l.nomination(id, set), true
			n.Why = mail.Missing
		}
		if !ok {
			continue
		}
		if n.Why == mail.Missing {
			differences.Missing++
		}
		nominations = append(nominations, n)
	}
	return append(nominations, extra...), differences, nil
}
