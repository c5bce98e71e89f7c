package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/scripts/local/mailboxview"
	"mailyard.internal/mailyard/shared/gmailsim"
)

// localOwner owns what is linked on this machine.
const localOwner = "me"

// link links a mailbox of the simulated Gmail.
func (y *yard) link(ctx context.Context, address, refreshToken string) error {
	linker, err := y.app.Linker(ctx)
	if err != nil {
		return err
	}
	_, err = linker.Link(ctx, mailbox.Grant{Owner: localOwner, Email: address, RefreshToken: refreshToken})
	return err
}

// mailboxView is the page on the simulated mailboxes.
func (y *yard) mailboxView() http.Handler {
	return &mailboxview.View{Sim: y.gmail, Link: y.link, Console: y.functionsURL + "/Console", Now: time.Now}
}

// furnish links a mailbox with some mail in it, so that there is something to look at.
func (y *yard) furnish(ctx context.Context) error {
	box, err := y.gmail.AddMailbox(demoAddress, mailboxview.TokenOf(demoAddress))
	if err != nil {
		return err
	}
	for _, m := range []gmailsim.Mail{
		{From: "Bo <bo@example.org>", Subject: "Lunch on Friday?", Text: "The usual place?"},
		{From: "Kim <kim@example.org>", Subject: "Minutes of the meeting", Text: "Attached are the minutes."},
		{From: "Library <desk@library.example>", Subject: "Your book is due", Text: "Please bring it back by Monday."},
		{From: "Sam <sam@example.org>", Subject: "Photos from the lake", Text: "More of them tomorrow."},
	} {
		m.To = demoAddress
		if _, err := box.Deliver(ctx, m); err != nil {
			return fmt.Errorf("fill the mailbox %s: %w", demoAddress, err)
		}
	}
	if err := y.link(ctx, demoAddress, mailboxview.TokenOf(demoAddress)); err != nil {
		return fmt.Errorf("link the mailbox %s: %w", demoAddress, err)
	}
	return nil
}
