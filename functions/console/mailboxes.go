package console

import (
	"context"
	"net/url"
	"strconv"

	"mailyard.internal/mailyard/shared/page"
)

// mailboxesAtOnce is how many mailboxes a page lists.
const mailboxesAtOnce = 100

// boxesContent is a table of mailboxes.
type boxesContent struct {
	Rows []boxRow
	Next string // the page after; empty on the last
}

// A boxRow is one account.
type boxRow struct {
	ID, Email, Owner, Status string
	Cursor, InStepTo         string
	InStep                   bool
	Behind                   string
	Watch                    page.Moment
	WatchLapsed              bool
	Failures                 string
	FailuresTo               string
	Resync                   *resyncCell
}

type resyncCell struct {
	State       string
	Done, Total int
}

func (c *Console) mailboxes(ctx context.Context, q url.Values) (view, error) {
	after := q.Get("after")
	if !canBeID(after) {
		after = ""
	}
	standings, err := c.Mailboxes.Standings(ctx, after, mailboxesAtOnce)
	if err != nil {
		return view{}, err
	}
	content := c.boxesContent(standings)
	if len(standings) == mailboxesAtOnce {
		content.Next = link("mailboxes", field{"after", standings[len(standings)-1].Account.ID})
	}
	return view{template: "mailboxes.html", title: "Mailboxes", every: 10, content: content}, nil
}

func (c *Console) boxesContent(standings []Standing) boxesContent {
	var b boxesContent
	for _, s := range standings {
		a := s.Account
		row := boxRow{
			ID: a.ID, Email: a.Email, Owner: a.Owner, Status: string(a.Status), Cursor: a.HistoryID.String(), InStepTo: s.InStepTo.String(),
			InStep: s.InStepTo == a.HistoryID && !s.Bounded, Watch: page.At(c.Now(), a.WatchExpiresAt),
			WatchLapsed: !a.WatchExpiresAt.IsZero() && !a.WatchExpiresAt.After(c.Now()),
			Failures:    strconv.Itoa(s.Failures), FailuresTo: link("letters", field{"account", a.ID}),
		}
		if s.Bounded {
			row.Failures, row.InStepTo = row.Failures+"+", "at most "+row.InStepTo
		}
		if a.HistoryID > s.InStepTo {
			row.Behind = (a.HistoryID - s.InStepTo).String()
		}
		if r := s.Resync; r != nil {
			row.Resync = &resyncCell{string(r.State), r.Done, r.Total}
		}
		b.Rows = append(b.Rows, row)
	}
	return b
}
