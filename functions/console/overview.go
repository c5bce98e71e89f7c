package console

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/page"
)

const (
	overviewEvery = 3  // seconds
	overviewBoxes = 25 // mailboxes on the overview
)

// overviewContent is where everything stands.
type overviewContent struct {
	Tiles []tile
	Lanes []laneRow
	Boxes boxesContent
	More  bool // mailboxes than are shown
}

// A tile is one number that matters.
type tile struct{ Number, Text, Class, To string }

// A laneRow is one function and what fails there. Only numbers are counted: no letter is read but the
// oldest of each.
type laneRow struct {
	Name, Function, Topic string
	Cells                 []laneCell
	Oldest                page.Moment
	OldestTo              string
	Heals                 string
}

type laneCell struct {
	ID, State, To string
	N             int
}

func (c *Console) overview(ctx context.Context, _ url.Values) (view, error) {
	var o overviewContent
	var boxes []Standing
	var statuses [3]int
	asked := []mail.Status{mail.StatusActive, mail.StatusReauthRequired, mail.StatusPaused}
	o.Lanes = make([]laneRow, len(c.Routes))
	var all together
	for i, r := range c.Routes {
		all.do(func() (err error) { o.Lanes[i], err = c.laneRow(ctx, r); return err })
	}
	for i, status := range asked {
		all.do(func() (err error) { statuses[i], err = c.Mailboxes.CountAccounts(ctx, status); return err })
	}
	all.do(func() (err error) { boxes, err = c.Mailboxes.Standings(ctx, "", overviewBoxes); return err })
	if err := all.wait(); err != nil {
		return view{}, err
	}
	linked := statuses[0] + statuses[1] + statuses[2]
	o.Boxes = c.boxesContent(boxes)
	o.More = linked > len(boxes)
	sums := map[string]int{}
	for _, l := range o.Lanes {
		for _, cell := range l.Cells {
			sums[cell.State] += cell.N
		}
	}
	dead, retrying, redriving := sums[string(ledger.Dead)], sums[string(ledger.Retrying)], sums[string(ledger.Redriving)]
	class := func(n int, class string) string {
		if n == 0 {
			return ""
		}
		return class
	}
	o.Tiles = []tile{
		{strconv.Itoa(dead), "dead", class(dead, "bad"), link("groups", field{"state", string(ledger.Dead)})},
		{strconv.Itoa(retrying), "retrying", class(retrying, "slow"), link("groups", field{"state", string(ledger.Retrying)})},
		{strconv.Itoa(redriving), "redriving", class(redriving, "go"), link("groups", field{"state", string(ledger.Redriving)})},
		{strconv.Itoa(linked), "linked " + plural(linked, "mailbox", "mailboxes"), "", link("mailboxes")},
	}
	if out := linked - statuses[0]; out > 0 {
		o.Tiles = append(o.Tiles, tile{strconv.Itoa(out), "not active", "bad", link("mailboxes")})
	}
	return view{
		template: "overview.html", title: "Overview", every: overviewEvery, content: o,
		summary: fmt.Sprintf("%s, %d retrying, %d redriving; %s linked, %d active.",
			counted(dead, "dead letter", "dead letters"), retrying, redriving, counted(linked, "mailbox", "mailboxes"), statuses[0]),
	}, nil
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func (c *Console) laneRow(ctx context.Context, r lane.Route) (laneRow, error) {
	row := laneRow{Name: c.from(r.EntryPoint), Function: r.EntryPoint, Topic: r.Topic}
	states := []ledger.State{ledger.Retrying, ledger.Dead, ledger.Redriving}
	row.Cells = make([]laneCell, len(states))
	var all together
	for i, state := range states {
		all.do(func() error {
			n, err := c.Failures.CountOfConsumer(ctx, r.EntryPoint, state)
			row.Cells[i] = laneCell{
				ID: r.EntryPoint + "." + string(state), State: string(state), N: n,
				To: link("letters", field{"function", r.EntryPoint}, field{"state", string(state)}),
			}
			return err
		})
	}
	if err := all.wait(); err != nil {
		return row, err
	}
	if row.Cells[1].N == 0 {
		return row, nil
	}
	oldest, some, err := c.Failures.OldestDead(ctx, "", r.EntryPoint)
	if err != nil || !some {
		return row, err
	}
	row.Oldest, row.OldestTo, row.Heals = page.At(c.Now(), oldest.DeadAt), link("letter", field{"id", oldest.ID}), c.heals(oldest)
	return row, nil
}

// heals says whether a dead letter is redriven without an operator.
func (c *Console) heals(e ledger.Entry) string {
	switch {
	case e.State != ledger.Dead:
		return ""
	case e.HealsItself():
		if !e.HealAt.After(c.Now()) {
			return "heals by itself, once its lane succeeds again"
		}
		return "heals by itself, from " + e.HealAt.UTC().Format("15:04 UTC") + " on"
	case e.GivenUp():
		return "did not heal by itself: waits for you"
	}
	return "waits for you"
}
