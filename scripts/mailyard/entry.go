package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// entryJSON is an entry of the ledger as programs read it: the fields of its document, and its id.
type entryJSON struct {
	ID            string            `json:"id"`
	State         string            `json:"state"`
	Lane          string            `json:"lane"`
	Consumer      string            `json:"consumer"`
	Topic         string            `json:"topic"`
	AccountID     string            `json:"accountId"`
	MessageID     string            `json:"messageId"`
	HistoryID     int64             `json:"historyId"`
	EventID       string            `json:"eventId"`
	Data          []byte            `json:"data"` // base64
	DataOmitted   bool              `json:"dataOmitted"`
	Attributes    map[string]string `json:"attributes"`
	Attempts      int               `json:"attempts"`
	Redrives      int               `json:"redrives"`
	Code          string            `json:"code"`
	Fingerprint   string            `json:"fingerprint"`
	Error         string            `json:"error"`
	FirstFailedAt *time.Time        `json:"firstFailedAt"`
	LastFailedAt  *time.Time        `json:"lastFailedAt"`
	DeadAt        *time.Time        `json:"deadAt"`
	ExpireAt      *time.Time        `json:"expireAt"`
	Revision      string            `json:"revision"`
	Trace         string            `json:"trace"`
	Claim         *claimJSON        `json:"claim"`
	Operation     string            `json:"operation"`
	RedrivenAt    *time.Time        `json:"redrivenAt"`
	Heals         int               `json:"heals"`
	HealAt        *time.Time        `json:"healAt"`
	Discarded     bool              `json:"discarded"`
	EditedFrom    string            `json:"editedFrom"`
	EditedTo      string            `json:"editedTo"`
}

// runJSON is one failed run of a handler.
type runJSON struct {
	At        *time.Time `json:"at"`
	Code      string     `json:"code"`
	Error     string     `json:"error"`
	Revision  string     `json:"revision"`
	Operation string     `json:"operation"` // the redrive that brought the event
}

func runOf(r ledger.Run) runJSON {
	return runJSON{moment(r.At), string(r.Code), r.Error, r.Revision, r.Operation}
}

// claimJSON leaves the claim's token out: it is good for nobody but who made it.
type claimJSON struct {
	Operation string     `json:"operation"`
	At        *time.Time `json:"at"`
}

func entryOf(e ledger.Entry) entryJSON {
	j := entryJSON{
		ID: e.ID, State: string(e.State), Lane: e.Lane, Consumer: e.Consumer, Topic: e.Topic,
		AccountID: e.AccountID, MessageID: e.MessageID, HistoryID: int64(e.HistoryID), EventID: e.EventID,
		Data: e.Data, DataOmitted: e.DataOmitted, Attributes: e.Attributes, Attempts: e.Attempts, Redrives: e.Redrives,
		Code: string(e.Code), Fingerprint: e.Fingerprint, Error: e.Error,
		FirstFailedAt: moment(e.FirstFailedAt), LastFailedAt: moment(e.LastFailedAt), DeadAt: moment(e.DeadAt), ExpireAt: moment(e.ExpireAt),
		Revision: e.Revision, Trace: e.Trace, Operation: e.Operation, RedrivenAt: moment(e.RedrivenAt),
		Heals: e.Heals, HealAt: moment(e.HealAt), Discarded: e.Discarded, EditedFrom: e.EditedFrom, EditedTo: e.EditedTo,
	}
	if e.Claim != (ledger.Claim{}) {
		j.Claim = &claimJSON{e.Claim.Operation, moment(e.Claim.At)}
	}
	return j
}

// mirrorJSON is what the mirror holds of a message, without any of its content.
type mirrorJSON struct {
	ThreadID   string                    `json:"threadId"`
	HasContent bool                      `json:"hasContent"`
	Deleted    bool                      `json:"deleted"`
	Flags      map[string]bool           `json:"flags"`
	Guards     map[string]mail.HistoryID `json:"guards"`
	FetchDueAt *time.Time                `json:"fetchDueAt"`
	UpdatedAt  *time.Time                `json:"updatedAt"`
}

// mirrorOf returns nil for a message that is not mirrored.
func mirrorOf(m mail.Message) *mirrorJSON {
	if m.Version.IsZero() {
		return nil
	}
	return &mirrorJSON{m.ThreadID, m.HasContent, m.Deleted, m.Flags, m.Guards, moment(m.FetchDueAt), moment(m.UpdatedAt)}
}

// shownJSON is what `dlq show` writes: the entry, its last runs, its event where it is one of a lane, the
// mirror, and what a redrive would change.
type shownJSON struct {
	entryJSON
	Runs    []runJSON       `json:"runs"`
	Event   json.RawMessage `json:"event"`
	Mirror  *mirrorJSON     `json:"mirror"`
	Redrive string          `json:"redrive"`
}

// eventOf returns the event that an entry of a lane holds. Other data may be anything and stays data.
func eventOf(e ledger.Entry) json.RawMessage {
	if e.EventID == "" || !json.Valid(e.Data) {
		return nil
	}
	return e.Data
}

// pairs is what a person reads of an entry.
func (s shownJSON) pairs(mirrored string) [][2]string {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return clock(*t)
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	data := string(s.Event)
	switch {
	case s.DataOmitted:
		data = "too large for the ledger: it is on " + s.Topic + "-dead-letter-inspect"
	case data == "":
		data = strconv.Itoa(len(s.Data)) + " bytes; --json shows them"
	}
	claim := ""
	if s.Claim != nil {
		claim = s.Claim.Operation + " at " + at(s.Claim.At)
	}
	pairs := [][2]string{
		{"id", s.ID}, {"state", s.State}, {"lane", s.Lane}, {"consumer", s.Consumer}, {"topic", s.Topic},
		{"code", s.Code}, {"error", s.Error}, {"fingerprint", s.Fingerprint},
		{"attempts", strconv.Itoa(s.Attempts)}, {"redrives", strconv.Itoa(s.Redrives)},
		{"first failed", at(s.FirstFailedAt)}, {"last failed", at(s.LastFailedAt)}, {"dead since", at(s.DeadAt)},
		{"redriven by itself", at(s.HealAt)}, {"expires", at(s.ExpireAt)}, {"claimed by", claim}, {"operation", s.Operation},
		{"edited from", s.EditedFrom}, {"edited to", s.EditedTo}, {"revision", s.Revision}, {"trace", s.Trace},
		{"account", s.AccountID}, {"message", s.MessageID}, {"historyId", number(s.HistoryID)}, {"event", data},
	}
	if s.Discarded {
		pairs = append(pairs, [2]string{"discarded", "by an operator"})
	}
	for i, r := range s.Runs {
		pairs = append(pairs, [2]string{fmt.Sprintf("run %d of the last %d", i+1, len(s.Runs)), strings.TrimSpace(at(r.At) + " " + r.Code + ": " + r.Error)})
	}
	pairs = append(pairs, [2]string{"mirror", mirrored})
	if m := s.Mirror; m != nil {
		pairs = append(pairs, [2]string{"  has content", strconv.FormatBool(m.HasContent)}, [2]string{"  deleted", strconv.FormatBool(m.Deleted)})
		for _, flag := range slices.Sorted(maps.Keys(m.Flags)) {
			pairs = append(pairs, [2]string{"  " + flag, strconv.FormatBool(m.Flags[flag])})
		}
		for _, facet := range slices.Sorted(maps.Keys(m.Guards)) {
			pairs = append(pairs, [2]string{"  guard of " + facet, m.Guards[facet].String()})
		}
		pairs = append(pairs, [2]string{"  fetch due", at(m.FetchDueAt)}, [2]string{"  updated", at(m.UpdatedAt)})
	}
	return append(pairs, [2]string{"a redrive", s.Redrive})
}
