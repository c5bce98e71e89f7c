package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mailing"
)

func subscribersCommand(t *tool) *cobra.Command {
	return group("subscribers", "Say who gets digests",
		subscribersAddCommand(t), subscribersListCommand(t), subscribersRemoveCommand(t), subscribersImportCommand(t))
}

// subscriberJSON is a subscriber as programs read it.
type subscriberJSON struct {
	ID        string     `json:"id"`
	AccountID string     `json:"accountId"`
	Email     string     `json:"email"`
	Frequency string     `json:"frequency"`
	Weekday   string     `json:"weekday"` // empty for daily digests
	Timezone  string     `json:"timezone"`
	Sequence  int64      `json:"sequence"`
	CreatedAt *time.Time `json:"createdAt"`
	DeletedAt *time.Time `json:"deletedAt"`
}

func subscriberOf(s mailing.Subscriber) subscriberJSON {
	out := subscriberJSON{
		ID: s.ID, AccountID: s.AccountID, Email: s.Email, Frequency: string(s.Frequency), Timezone: s.Timezone,
		Sequence: s.Sequence, CreatedAt: moment(s.CreatedAt), DeletedAt: moment(s.DeletedAt),
	}
	if s.Frequency == mailing.Weekly {
		out.Weekday = mailing.WeekdayName(s.Weekday)
	}
	return out
}

func subscribersAddCommand(t *tool) *cobra.Command {
	var s mailing.Subscription
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add --account A --email E",
		Short: "Subscribe an address to the digests of a mailbox, or change how it is subscribed",
		Long: "The subscriber follows from account and address: adding twice makes one, with the frequency that was\n" +
			"given last. Who has unsubscribed is subscribed again, so ask them first.",
		Example: "  mailyard subscribers add --account 0123456789abcdef0123 --email kim@example.com --frequency weekly --weekday friday --timezone Europe/Zurich",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := s.Check()
			if err != nil {
				return misuse{oneLine(err)}
			}
			made, err := t.subscribe(cmd.Context(), wanted)
			switch {
			case err != nil:
				return err
			case asJSON:
				return t.writeJSON(subscriberOf(made))
			}
			_, err = fmt.Fprintf(t.stdout, "subscriber %s gets a %s digest\n", made.ID, made.Frequency)
			return err
		},
	}
	cmd.Flags().StringVar(&s.Account, "account", "", "the account's id: whose mailbox the digests tell of")
	cmd.Flags().StringVar(&s.Email, "email", "", "where the digests go")
	cmd.Flags().StringVar(&s.Frequency, "frequency", "daily", "daily or weekly")
	cmd.Flags().StringVar(&s.Weekday, "weekday", "", "of weekly digests (default monday)")
	cmd.Flags().StringVar(&s.Timezone, "timezone", "UTC", "in which the digests give their times")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// oneLine joins the sentences of an error.
func oneLine(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// subscribe makes a subscriber, or changes the one there is. Its account must exist.
func (t *tool) subscribe(ctx context.Context, wanted mailing.Subscriber) (mailing.Subscriber, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return mailing.Subscriber{}, err
	}
	if _, err := db.Account(ctx, wanted.AccountID); fault.Is(err, fault.AccountGone) {
		return mailing.Subscriber{}, fmt.Errorf("there is no account %s; mailyard account list shows those there are", wanted.AccountID)
	} else if err != nil {
		return mailing.Subscriber{}, err
	}
	return db.ChangeSubscriber(ctx, wanted.ID, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		return s.Renewed(wanted, t.now()), true
	})
}

func subscribersListCommand(t *tool) *cobra.Command {
	var account string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List who gets digests",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []subscriberJSON{}
			var rows [][]string
			err := t.eachSubscriber(cmd.Context(), func(s mailing.Subscriber) {
				if s.Deleted() && !all || account != "" && s.AccountID != account {
					return
				}
				o := subscriberOf(s)
				list = append(list, o)
				rows = append(rows, []string{o.ID, o.AccountID, o.Email, o.Frequency, o.Weekday, o.Timezone, fmt.Sprint(o.Sequence), clock(s.CreatedAt), clock(s.DeletedAt)})
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return t.writeJSON(list)
			}
			return t.writeTable([]string{"SUBSCRIBER", "ACCOUNT", "EMAIL", "FREQUENCY", "WEEKDAY", "TIMEZONE", "NEXT", "CREATED", "UNSUBSCRIBED"}, rows)
		},
	}
	cmd.Flags().StringVar(&account, "account", "", "those of one account")
	cmd.Flags().BoolVar(&all, "all", false, "also who has unsubscribed")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// eachSubscriber reads all subscribers, page by page.
func (t *tool) eachSubscriber(ctx context.Context, visit func(mailing.Subscriber)) error {
	db, err := t.app.DB(ctx)
	if err != nil {
		return err
	}
	for after := ""; ; {
		page, err := db.SubscribersAfter(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for _, s := range page {
			visit(s)
		}
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

func subscribersRemoveCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove SUBSCRIBER",
		Short: "Unsubscribe an address, as its own link does",
		Args:  arguments(1, 1, "subscriber's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := t.app.DB(cmd.Context())
			if err != nil {
				return err
			}
			known := !strings.Contains(args[0], "/")
			var s mailing.Subscriber
			if known {
				s, err = db.ChangeSubscriber(cmd.Context(), args[0], func(s mailing.Subscriber) (mailing.Subscriber, bool) {
					known = !s.Version.IsZero()
					wants := known && !s.Deleted()
					if wants {
						s.DeletedAt = t.now()
					}
					return s, wants
				})
			}
			switch {
			case err != nil:
				return err
			case !known:
				return fmt.Errorf("there is no subscriber %s; mailyard subscribers list shows those there are", fault.Cut(args[0], 200))
			case asJSON:
				return t.writeJSON(subscriberOf(s))
			}
			_, err = fmt.Fprintf(t.stdout, "subscriber %s gets no more digests\n", s.ID)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func subscribersImportCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE.csv",
		Short: "Subscribe the addresses of a CSV file",
		Long: "The first line names the columns, in any order: account and email, and where they are wanted\n" +
			"frequency, weekday and timezone. A line that is wrong is told with its number and changes nothing;\n" +
			"the others are imported. Importing twice makes each subscriber once.",
		Args: arguments(1, 1, "file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			lines, err := readSubscriptions(file)
			if err != nil {
				return err
			}
			return t.importSubscribers(cmd.Context(), lines, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// importedJSON is what an import did, as programs read it.
type importedJSON struct {
	Imported int             `json:"imported"`
	Wrong    []wrongLineJSON `json:"wrong"`
}

type wrongLineJSON struct {
	Line int    `json:"line"`
	Why  string `json:"why"`
}

func (t *tool) importSubscribers(ctx context.Context, lines []subscriptionLine, asJSON bool) error {
	result := importedJSON{Wrong: []wrongLineJSON{}}
	wrong := func(line int, err error) {
		result.Wrong = append(result.Wrong, wrongLineJSON{line, fault.Text(oneLine(err))})
	}
	bar := t.progress(len(lines), "subscribers")
	defer func() { _ = bar.Finish() }()
	for _, l := range lines {
		wanted, err := mailing.Subscriber{}, l.err
		if err == nil {
			wanted, err = l.subscription.Check()
		}
		if err == nil {
			_, err = t.subscribe(ctx, wanted)
			if code := fault.CodeOf(err); err != nil && code != fault.Unknown { // not the line's fault
				return fmt.Errorf("stopped at line %d, after %d were imported; import the file again: %w", l.number, result.Imported, err)
			}
		}
		if err != nil {
			wrong(l.number, err)
		} else {
			result.Imported++
		}
		_ = bar.Add(1)
	}
	if asJSON {
		if err := t.writeJSON(result); err != nil {
			return err
		}
	} else {
		if _, err := fmt.Fprintf(t.stdout, "%s imported\n", counted(result.Imported, "subscriber", "subscribers")); err != nil {
			return err
		}
		for _, w := range result.Wrong {
			fmt.Fprintf(t.stderr, "line %d: %s\n", w.Line, w.Why)
		}
	}
	if n := len(result.Wrong); n > 0 {
		return fmt.Errorf("%s not imported", counted(n, "line was", "lines were"))
	}
	return nil
}
