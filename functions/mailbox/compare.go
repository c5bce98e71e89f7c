package mailbox

import (
	"context"
	"slices"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// listedLabels are the labels that a comparison lists, the empty one for all messages.
func listedLabels(flags []lane.FlagRule) []string {
	labels := []string{"", mail.DraftLabel}
	for _, rule := range flags {
		if !slices.Contains(labels, rule.Label) {
			labels = append(labels, rule.Label)
		}
	}
	return labels
}

// A listing is what Gmail listed of a mailbox: every id, and which labels it was listed under. It lags
// and is no snapshot, so it only nominates.
type listing struct {
	flags  []lane.FlagRule
	newest []string            // ids, newest first, each once
	under  map[string]labelSet // by id
}

// A labelSet has a bit for each label of listedLabels.
type labelSet uint64

func newListing(flags []lane.FlagRule) *listing {
	return &listing{flags: flags, under: map[string]labelSet{}}
}

// add takes in ids that were listed under a label.
func (l *listing) add(label string, ids []string) {
	bit := l.bit(label)
	for _, id := range ids {
		set, known := l.under[id]
		if !known {
			l.newest = append(l.newest, id)
		}
		l.under[id] = set | bit
	}
}

func (l *listing) bit(label string) labelSet {
	return 1 << slices.Index(listedLabels(l.flags), label)
}

// messages counts what was listed, without drafts.
func (l *listing) messages() int {
	n := 0
	for _, set := range l.under {
		if set&l.bit(mail.DraftLabel) == 0 {
			n++
		}
	}
	return n
}

// flagsOf gives every flag's value by the labels that a message was listed under.
func (l *listing) flagsOf(set labelSet) map[string]bool {
	flags := make(map[string]bool, len(l.flags))
	for _, rule := range l.flags {
		flags[rule.Field] = (set&l.bit(rule.Label) != 0) == rule.Carried
	}
	return flags
}

// Differences are what a comparison found, counted.
type Differences struct {
	Missing int
	Extra   int
	Flags   map[string]int // by field
}

// A mirrored message is what a comparison needs to know of it.
type mirroredMessages interface {
	// EachMessage calls visit for every message of an account, tombstones among them, in the order of
	// their ids. Of each it reads only what a comparison needs: id, hasContent, deleted and flags.
	EachMessage(ctx context.Context, account string, flags []lane.FlagRule, visit func(mail.Message)) error
}

// compare nominates: what was listed newest first, then what was not.
func (l *listing) compare(ctx context.Context, mirror mirroredMessages, account string) ([]mail.Nomination, Differences, error) {
	differences := Differences{Flags: map[string]int{}}
	for _, rule := range l.flags {
		differences.Flags[rule.Field] = 0
	}
	nominated := map[string]mail.Nomination{}
	seen := make(map[string]bool, len(l.under))
	var extra []mail.Nomination
	err := mirror.EachMessage(ctx, account, l.flags, func(m mail.Message) {
		set, listed := l.under[m.ID]
		seen[m.ID] = listed
		isDraft := set&l.bit(mail.DraftLabel) != 0
		switch n := (mail.Nomination{MessageID: m.ID, Listed: l.flagsOf(set)}); {
		case isDraft && !m.NeedsContent(), !listed && m.Deleted:
		case !listed, isDraft:
			n.Why, n.Listed = mail.Extra, nil
			differences.Extra++
			extra = append(extra, n)
		case !m.HasContent:
			n.Why = mail.Missing
			nominated[m.ID] = n
		default:
			for field, value := range n.Listed {
				if m.Flags[field] != value {
					n.Why = mail.Flagged
					differences.Flags[field]++
				}
			}
			if n.Why != "" {
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
		if !ok && !seen[id] && l.under[id]&l.bit(mail.DraftLabel) == 0 {
			n, ok = mail.Nomination{MessageID: id, Why: mail.Missing, Listed: l.flagsOf(l.under[id])}, true
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
