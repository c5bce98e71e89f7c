package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func accountCommand(t *tool) *cobra.Command {
	return group("account", "Link mailboxes and see where they stand",
		accountAddCommand(t), accountListCommand(t), accountStatusCommand(t),
		accountResyncCommand(t), accountAuditCommand(t), accountLinkCommand(t), accountRemoveCommand(t))
}

// maxToken is the longest refresh token that is read, in bytes; Google's have up to 512.
const maxToken = 4096

func accountAddCommand(t *tool) *cobra.Command {
	var g mailbox.Grant
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add --email E {--refresh-token T | --delegated}",
		Short: "Link a mailbox by a refresh token or by its domain's delegation, or link it again",
		Long: "Tries the refresh token, stores it encrypted, has Gmail notify of the mailbox's changes and asks for\n" +
			"a resync, which mirrors what the mailbox holds already. A token that is revoked or of another\n" +
			"mailbox changes nothing.\n\n" +
			"For an account that exists it renews the credential, keeps the cursor, makes it active, and asks\n" +
			"for a resync. The account follows from owner and address, so adding twice makes one.\n\n" +
			"A token on the command line stands in the shell's history and in the list of processes; with\n" +
			"--refresh-token - it is read from standard input instead.\n\n" +
			"With --delegated there is no token: the domain's administrator lets the service account\n" +
			"MAILYARD_DELEGATION_SERVICE_ACCOUNT read its users' mailboxes. --file links many of those.",
		Example: "  mailyard account add --email kim@example.com --refresh-token - < token.txt\n" +
			"  mailyard account add --delegated --owner acme --file addresses.txt",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if !g.Delegated || g.Email != "" || g.RefreshToken != "" {
					return misused("--file is for delegated mailboxes: give it with --delegated, and without --email and --refresh-token")
				}
				return t.addFile(cmd.Context(), file, g, asJSON)
			}
			if err := t.readGrant(&g); err != nil {
				return err
			}
			return t.addAccount(cmd.Context(), g, asJSON)
		},
	}
	cmd.Flags().StringVar(&g.Email, "email", "", "the mailbox's address")
	cmd.Flags().StringVar(&g.RefreshToken, "refresh-token", "", "the refresh token that the mailbox's owner granted; - reads it from standard input")
	cmd.Flags().BoolVar(&g.Delegated, "delegated", false, "the mailbox's domain has delegated it to MAILYARD_DELEGATION_SERVICE_ACCOUNT")
	cmd.Flags().StringVar(&file, "file", "", "a file of delegated mailboxes, one address a line; - reads standard input")
	cmd.Flags().StringVar(&g.Owner, "owner", "", "whose account it is, as the app names its users")
	cmd.Flags().BoolVar(&g.NoResync, "no-resync", false, "do not mirror what the mailbox holds already")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readGrant completes and checks what the flags say.
func (t *tool) readGrant(g *mailbox.Grant) error {
	if g.Email == "" {
		return misused("--email is not given; write the mailbox's address")
	}
	if err := mail.CheckAddress(g.Email); err != nil {
		return misused("--email is not a mail address; write it in full, with @ and domain")
	}
	if g.Delegated {
		if g.RefreshToken != "" {
			return misused("--delegated and --refresh-token are two ways of being let in; give one of them")
		}
		g.Email = strings.TrimSpace(g.Email)
		return t.app.CheckDelegation()
	}
	if g.RefreshToken == "-" {
		token, err := io.ReadAll(io.LimitReader(t.stdin, maxToken+1))
		if err != nil {
			return fmt.Errorf("read the refresh token from standard input: %w", err)
		}
		g.RefreshToken = string(token)
	}
	g.RefreshToken = strings.TrimSpace(g.RefreshToken)
	switch {
	case g.RefreshToken == "":
		return misused("the refresh token is empty; give it with --refresh-token, or with --refresh-token - on standard input")
	case len(g.RefreshToken) > maxToken, strings.ContainsAny(g.RefreshToken, " \t\r\n"):
		return misused("the refresh token is not one: it must be one word of at most %d characters", maxToken)
	}
	return nil
}

func (t *tool) addAccount(ctx context.Context, g mailbox.Grant, asJSON bool) error {
	linker, err := t.app.Linker(ctx)
	if err != nil {
		return err
	}
	account, err := linker.Link(ctx, g)
	if g.Delegated {
		err = delegationAdvice(err)
	}
	switch {
	case err != nil && account.ID != "":
		return fmt.Errorf("account %s is linked, but something that belongs to it is not done; run the same command again: %w", account.ID, err)
	case err != nil:
		return err
	case asJSON:
		return t.writeJSON(struct {
			AccountID string `json:"accountId"`
		}{account.ID})
	}
	what := "a resync is asked for"
	if g.NoResync {
		what = "without a resync"
	}
	_, err = fmt.Fprintf(t.stdout, "account %s is linked, %s\n", account.ID, what)
	return err
}

// accountJSON is an account as programs read it.
type accountJSON struct {
	AccountID string     `json:"accountId"`
	Email     string     `json:"email"`
	Owner     string     `json:"owner"`
	Status    string     `json:"status"`
	CreatedAt *time.Time `json:"createdAt"`

	HistoryID      int64       `json:"historyId"`
	InStepTo       int64       `json:"inStepTo"`
	WatchExpiresAt *time.Time  `json:"watchExpiresAt"`
	Failures       int         `json:"failures"`
	Resync         *resyncJSON `json:"resync"`
}

type resyncJSON struct {
	State string `json:"state"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}

func toJSON(standings []mailbox.Standing) []accountJSON {
	list := make([]accountJSON, len(standings))
	for i, s := range standings {
		a := s.Account
		list[i] = accountJSON{
			AccountID: a.ID, Email: a.Email, Owner: a.Owner, Status: string(a.Status), CreatedAt: moment(a.CreatedAt),
			HistoryID: int64(a.HistoryID), InStepTo: int64(s.InStepTo), WatchExpiresAt: moment(a.WatchExpiresAt), Failures: s.Failures,
		}
		if r := s.Resync; r != nil {
			list[i].Resync = &resyncJSON{string(r.State), r.Done, r.Total}
		}
	}
	return list
}

func accountListCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the accounts",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return t.writeStatus(cmd.Context(), "", true)
			}
			accounts, err := t.accounts(cmd.Context(), "")
			if err != nil {
				return err
			}
			rows := make([][]string, len(accounts))
			for i, a := range accounts {
				rows[i] = []string{a.ID, a.Email, a.Owner, string(a.Status), clock(a.CreatedAt)}
			}
			return t.writeTable([]string{"ACCOUNT", "EMAIL", "OWNER", "STATUS", "CREATED"}, rows)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func accountStatusCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [ACCOUNT]",
		Short: "Show how far each account's mirror is",
		Long: "An account is in step to a historyId when nothing up to it has failed or is waiting to be listed:\n" +
			"it is the smallest of the cursor, the cursor that is to be listed again, an open resync's baseline,\n" +
			"and one less than the historyId of each unresolved failure.",
		Args: arguments(0, 1, "account's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			only := ""
			if len(args) > 0 {
				only = args[0]
			}
			return t.writeStatus(cmd.Context(), only, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (t *tool) writeStatus(ctx context.Context, only string, asJSON bool) error {
	standings, err := t.standings(ctx, only)
	if err != nil {
		return err
	}
	if asJSON {
		return t.writeJSON(toJSON(standings))
	}
	rows := make([][]string, len(standings))
	for i, s := range standings {
		a, resync := s.Account, ""
		if s.Resync != nil {
			resync = fmt.Sprintf("%s %d/%d", s.Resync.State, s.Resync.Done, s.Resync.Total)
		}
		rows[i] = []string{
			a.ID, a.Email, string(a.Status), a.HistoryID.String(), s.InStepTo.String(), clock(a.WatchExpiresAt),
			fmt.Sprint(s.Failures), resync,
		}
	}
	return t.writeTable([]string{"ACCOUNT", "EMAIL", "STATUS", "CURSOR", "IN STEP TO", "WATCH ENDS", "FAILURES", "RESYNC"}, rows)
}

// statusParallel is how many accounts are read at once.
const statusParallel = 8

// standings reads where the accounts stand: one of them, or all for "".
func (t *tool) standings(ctx context.Context, only string) ([]mailbox.Standing, error) {
	accounts, err := t.accounts(ctx, only)
	if err != nil {
		return nil, err
	}
	standings := make([]mailbox.Standing, len(accounts))
	bar := t.progress(len(accounts), "accounts")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, statusParallel)
	var wait sync.WaitGroup
	for i, account := range accounts {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			var err error
			if standings[i], err = t.standing(ctx, account); err != nil {
				cancel(err) // the first that fails is enough: the others need not be waited for
			}
			_ = bar.Add(1)
		})
	}
	wait.Wait()
	_ = bar.Finish()
	return standings, context.Cause(ctx)
}

func (t *tool) accounts(ctx context.Context, only string) ([]mail.Account, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return nil, err
	}
	if only == "" {
		return db.Accounts(ctx)
	}
	// An id with a slash would be another document's path.
	if strings.Contains(only, "/") {
		return nil, fmt.Errorf("there is no account %s; mailyard account list shows those there are", only)
	}
	account, err := db.Account(ctx, only)
	if fault.Is(err, fault.AccountGone) {
		return nil, fmt.Errorf("there is no account %s; mailyard account list shows those there are", only)
	}
	return []mail.Account{account}, err
}

func (t *tool) standing(ctx context.Context, a mail.Account) (mailbox.Standing, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return mailbox.Standing{}, err
	}
	resyncs, err := db.OpenResyncs(ctx, a.ID)
	if err != nil {
		return mailbox.Standing{}, err
	}
	entries, err := t.entries(ctx, deadletter.Filter{Account: a.ID, States: ledger.Unresolved()}, false)
	if err != nil {
		return mailbox.Standing{}, err
	}
	failed := make([]mail.HistoryID, len(entries))
	for i, e := range entries {
		failed[i] = e.HistoryID
	}
	return mailbox.StandingOf(a, resyncs, failed), nil
}
