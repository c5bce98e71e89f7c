package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// Events reads and names the events of lanes.
type Events interface {
	// LaneOf returns the key of the lane that has that topic, or false.
	LaneOf(topic string) (string, bool)
	// Rename returns attributes that name the event anew.
	Rename(attributes map[string]string, e mail.Event) map[string]string
	// Decode reads an event of a lane; the error says what is wrong with it.
	Decode(lane string, data []byte, attributes map[string]string) (mail.Event, error)
}

// editable are the fields of an event that an operator may change. The account is none: a mailbox must
// not get another's events; nor is the lane: an event goes where it came from.
var editable = []string{"messageId", "threadId", "historyId"}

// Editable returns the names of the fields that Edit changes.
func Editable() []string { return slices.Clone(editable) }

// Edit gives a dead letter's event other fields. The changed event is a letter of its own, with its own
// id, dead like the one it came from, to be redriven when it is right; the old one is discarded. Each
// names the other. What would not be a valid event is refused, and nothing is changed.
func (o *Operator) Edit(ctx context.Context, id string, changes map[string]string, order Order) (edited ledger.Entry, err error) {
	old, err := o.Store.Change(ctx, id, func(e ledger.Entry) (ledger.Entry, bool) { return e, false })
	if err != nil {
		return ledger.Entry{}, err
	}
	if old.Version.IsZero() {
		return ledger.Entry{}, fmt.Errorf("the ledger has no entry %s", id)
	}
	edited, err = o.rewrite(old, changes)
	if err != nil {
		return ledger.Entry{}, err
	}
	report, err := o.run(ctx, ledger.DeedEdit, Plan{Eligible: []string{id}, Topics: []string{old.Topic}}, order,
		func(ctx context.Context, operation, id string) (Result, error) {
			return o.replace(ctx, operation, old, edited)
		})
	switch {
	case err != nil:
		return ledger.Entry{}, err
	case report.Err != nil:
		return ledger.Entry{}, report.Err
	case report.Results[Edited] != 1:
		return ledger.Entry{}, fmt.Errorf("%s was not changed: it is no longer dead, or another operation works on it; look at it again", id)
	}
	return edited, nil
}

// rewrite makes the entry of the changed event.
func (o *Operator) rewrite(old ledger.Entry, changes map[string]string) (ledger.Entry, error) {
	key, ok := o.Events.LaneOf(old.Topic)
	var event map[string]any
	switch {
	case old.State != ledger.Dead:
		return ledger.Entry{}, fmt.Errorf("%s is %s; only a dead letter can be edited", old.ID, old.State)
	case len(changes) == 0:
		return ledger.Entry{}, fmt.Errorf("nothing is to be changed; name a field of %s", strings.Join(editable, ", "))
	case !ok:
		return ledger.Entry{}, fmt.Errorf("%s is of %s, which is no lane; only the event of a lane can be edited", old.ID, old.Consumer)
	case old.DataOmitted:
		return ledger.Entry{}, fmt.Errorf("%s is too large to be an event; only the event of a lane can be edited", old.ID)
	case json.Unmarshal(old.Data, &event) != nil || event == nil:
		return ledger.Entry{}, fmt.Errorf("%s does not hold the JSON of an event; it can only be discarded", old.ID)
	}
	account, _ := event["accountId"].(string)
	if account == "" || old.AccountID != "" && account != old.AccountID {
		return ledger.Entry{}, fmt.Errorf("%s does not say clearly which account it is of, and that cannot be changed; it can only be discarded", old.ID)
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if !slices.Contains(editable, name) {
			return ledger.Entry{}, fmt.Errorf("%q cannot be changed; write one of %s", name, strings.Join(editable, ", "))
		}
		event[name] = changes[name]
	}
	text := func(name string) string { s, _ := event[name].(string); return s }
	historyID, err := mail.ParseHistoryID(text("historyId"))
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("the event would not be valid: %w; change historyId too", err)
	}
	data, err := json.Marshal(event)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("encode the changed event: %w", err)
	}
	attributes := o.Events.Rename(old.Attributes, mail.Event{AccountID: account, Lane: key, MessageID: text("messageId"), HistoryID: historyID})
	e, err := o.Events.Decode(key, data, attributes)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("the event would not be valid: %w", err)
	}
	if e.ID() == old.ID {
		return ledger.Entry{}, errors.New("nothing was changed: the event's id would be the same as before; change messageId or historyId")
	}
	edited := old
	edited.ID, edited.Data, edited.Attributes, edited.EditedFrom = e.ID(), data, attributes, old.ID
	edited.Subject = ledger.Subject{EventID: e.ID(), Lane: key, AccountID: e.AccountID, MessageID: e.MessageID, HistoryID: e.HistoryID}
	edited.Attempts, edited.Redrives, edited.Heals = 0, 0, 0
	edited.Runs, edited.Claim, edited.Operation, edited.EditedTo = nil, ledger.Claim{}, "", ""
	edited = edited.Buried(o.Now())
	edited.HealAt = time.Time{} // it waits for the operator
	return edited, nil
}

// replace writes the new entry first: should this process end in between there are two letters, and
// editing again brings it to its end. Of several who make the same edit at once each has made it.
func (o *Operator) replace(ctx context.Context, operation string, old, edited ledger.Entry) (Result, error) {
	busy := func(e ledger.Entry) bool { return e.ClaimedAfter(o.Now().Add(-claimFor)) }
	result := Edited
	_, err := o.Store.Change(ctx, edited.ID, func(e ledger.Entry) (ledger.Entry, bool) {
		result = Edited
		switch {
		case e.State != "" && e.EditedFrom != old.ID:
			result = taken
		case e.State == ledger.Dead && busy(e):
			result = Busy
		}
		return edited, result == Edited && e.State == ""
	})
	switch {
	case err != nil:
		return "", err
	case result == taken:
		return "", fmt.Errorf("the ledger has an entry %s already; look at that one", edited.ID)
	case result != Edited:
		return result, nil
	}
	_, err = o.Store.Change(ctx, old.ID, func(e ledger.Entry) (ledger.Entry, bool) {
		result = Edited
		switch {
		case e.EditedTo == edited.ID:
			return e, false
		case e.State != ledger.Dead:
			result = Moved
		case busy(e):
			result = Busy
		}
		e = e.Discard(operation, o.Now())
		e.EditedTo = edited.ID
		return e, result == Edited
	})
	if err != nil || result == Edited {
		return result, err
	}
	// The old letter went its own way meanwhile: then its event is not to be there twice.
	_, err = o.Store.Change(ctx, edited.ID, func(e ledger.Entry) (ledger.Entry, bool) {
		return e.Discard(operation, o.Now()), e.EditedFrom == old.ID && e.State == ledger.Dead && !busy(e)
	})
	return result, err
}

// taken is the result of an edit whose event is there already.
const taken Result = "taken"
