package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/ticket"
)

func accountLinkCommand(t *tool) *cobra.Command {
	var owner, returnTo string
	var expires time.Duration
	var sender, asJSON bool
	cmd := &cobra.Command{
		Use:   "link --owner O",
		Short: "Print a link by which a mailbox's owner links it in a browser",
		Long: "Whoever opens the link and consents on Google's page has their mailbox linked to that owner, once:\n" +
			"give it only to whom it is for. It is signed with MAILYARD_CONNECT_KEY and leads to\n" +
			"MAILYARD_PUBLIC_URL. An app's backend makes such links by itself.\n\n" +
			"The link can be read by anyone who sees it: the owner must be an id and not an address.",
		Example: "  mailyard account link --owner u-17 --return-to https://app.example.com/settings",
		Args:    arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			switch {
			case owner == "":
				return misused("--owner is not given; write whose account it is to be, as the app names its users")
			case expires <= 0 || expires > ticket.Longest:
				return misused("--expires must be more than 0 and at most %v", ticket.Longest)
			}
			end := t.now().Add(expires)
			link, err := t.app.ConnectLink(ticket.Ticket{Owner: owner, ReturnTo: returnTo, Sender: sender, ExpiresAt: end})
			if err != nil {
				return err
			}
			if asJSON {
				return t.writeJSON(map[string]any{"link": link, "expiresAt": moment(end.Truncate(time.Second))})
			}
			_, err = fmt.Fprintln(t.stdout, link)
			return err
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "", "whose account it is to be, as the app names its users")
	cmd.Flags().StringVar(&returnTo, "return-to", "", "where the person goes in the end: a URL of an origin in MAILYARD_CONNECT_ORIGINS")
	cmd.Flags().BoolVar(&sender, "sender", false, "it is for MAILYARD_DIGEST_SENDER, which is asked for the permission to send mail, too")
	cmd.Flags().DurationVar(&expires, "expires", 15*time.Minute, "how long the link is good for")
	jsonFlag(cmd, &asJSON)
	return cmd
}
