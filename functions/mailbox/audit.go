package mailbox

import (
	"context"

	"mailyard.internal/mailyard/shared/lane"
)

// lists lists a mailbox's messages.
type lists interface {
	// ListMessages gets a page of ids under a label, all messages for an empty one, newest first.
	ListMessages(ctx context.Context, account, label, pageToken string) (ids []string, next string, err error)
	labelLister
}

// An Auditor makes a resync's comparison and changes nothing: it is how one proves that a mirror is
// true. What is on its way between mailbox and mirror while it runs counts as a difference.
type Auditor struct {
	catalogue *lane.Catalogue
	gmail     lists
	mirror    mirroredMessages
}

// NewAuditor returns an auditor.
func NewAuditor(catalogue *lane.Catalogue, gmail lists, mirror mirroredMessages) *Auditor {
	return &Auditor{catalogue, gmail, mirror}
}

// Audit counts the differences between a mailbox and its mirror: 5 quota units for every 500 ids listed.
// progress, if not nil, is told how many ids have been listed so far.
func (a *Auditor) Audit(ctx context.Context, account string, progress func(listed int)) (Differences, error) {
	labels, err := labelsToList(ctx, a.catalogue, a.gmail, account)
	if err != nil {
		return Differences{}, err
	}
	l, listed := newListing(a.catalogue, labels), 0
	for _, label := range labels {
		for token := ""; ; {
			ids, next, err := a.gmail.ListMessages(ctx, account, label, token)
			if err != nil {
				return Differences{}, err
			}
			l.add(label, ids)
			if listed += len(ids); progress != nil {
				progress(listed)
			}
			if token = next; token == "" {
				break
			}
		}
	}
	_, differences, err := l.compare(ctx, a.mirror, account)
	return differences, err
}
