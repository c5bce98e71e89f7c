package mailboxview

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"mailyard.internal/mailyard/shared/gmailsim"
)

// maxDelivered is how many messages one form delivers at most.
const maxDelivered = 200

// act does what a form asks for. Its errors are sentences for the page.
func (v *View) act(ctx context.Context, address string, form url.Values) error {
	id := form.Get("id")
	switch do := form.Get("do"); do {
	case "link":
		return v.link(ctx, address)
	case "mend-all":
		v.Sim.ClearFaults()
		return nil
	case "mend":
		if fault, poisoned := v.poisons()[id]; poisoned {
			v.Sim.RemoveFault(fault)
		}
		return nil
	default:
		box, found := v.Sim.Mailbox(address)
		if !found {
			return errNoMailbox
		}
		if do == "deliver" {
			return v.deliver(ctx, box, form)
		}
		if do == "poison" {
			return v.poison(id, form.Get("status"))
		}
		change, known := changes[do]
		if !known {
			return fmt.Errorf("%q cannot be done here", do)
		}
		return change(box, ctx, id)
	}
}

// changes are what an owner does to one message.
var changes = map[string]func(*gmailsim.Mailbox, context.Context, string) error{
	"read":    (*gmailsim.Mailbox).Read,
	"unread":  (*gmailsim.Mailbox).Unread,
	"trash":   (*gmailsim.Mailbox).Trash,
	"untrash": (*gmailsim.Mailbox).Untrash,
	"delete":  (*gmailsim.Mailbox).Delete,
}

// link adds a mailbox, where there is none of that address, and links it.
func (v *View) link(ctx context.Context, address string) error {
	token := TokenOf(address)
	if _, err := v.Sim.AddMailbox(address, token); err != nil {
		return err
	}
	if err := v.Link(ctx, address, token); err != nil {
		return fmt.Errorf("the mailbox is there, but it could not be linked: %w", err)
	}
	return nil
}

func (v *View) deliver(ctx context.Context, box *gmailsim.Mailbox, form url.Values) error {
	count, err := strconv.Atoi(form.Get("count"))
	if err != nil || count < 1 || count > maxDelivered {
		return fmt.Errorf("the number of messages must be 1 to %d", maxDelivered)
	}
	poison, watched := form.Get("status"), box.Watched()
	for i := range count {
		mail := gmailsim.Mail{From: form.Get("from"), To: box.Address(), Subject: form.Get("subject"), Text: form.Get("text")}
		if count > 1 {
			mail.Subject += fmt.Sprintf(" (%d)", i+1)
		}
		if poison != "" && watched { // its fault must be there before anybody hears of it
			box.LoseNotifications(1)
		}
		id, err := box.Deliver(ctx, mail)
		if err != nil {
			return err
		}
		if poison == "" {
			continue
		}
		if err := v.poison(id, poison); err != nil {
			return err
		}
		if !watched {
			continue
		}
		if err := box.Notify(ctx, box.HistoryID()); err != nil {
			return err
		}
	}
	return nil
}

// poison makes every fetch of a message fail from now on: with 500, as if Gmail were down for it, or with
// 400, which no retry mends.
func (v *View) poison(id, status string) error {
	if status != "500" && status != "400" {
		return errors.New("a poisoned message is answered with 500 or 400")
	}
	if _, poisoned := v.poisons()[id]; poisoned {
		return nil
	}
	code, err := strconv.Atoi(status)
	if err != nil {
		return err
	}
	_, err = v.Sim.AddFault(gmailsim.Fault{Method: fetch, MessageID: id, Status: code})
	return err
}
