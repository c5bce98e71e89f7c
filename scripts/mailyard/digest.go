package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/digest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mailing"
)

func digestCommand(t *tool) *cobra.Command {
	return group("digest", "Send digests, and see what became of them",
		digestRunCommand(t), digestReportCommand(t), digestResolveCommand(t))
}

func digestRunCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start today's run of digests, or join the one there is",
		Long: "Today is in the zone MAILYARD_DIGEST_ZONE. The run is carried out by the function DigestSend, in steps;\n" +
			"mailyard digest report shows how far it is. A second start of one day sends nothing twice.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			starter, err := t.app.DigestStarter(cmd.Context())
			if err != nil {
				return err
			}
			run, joined, err := starter.Start(cmd.Context(), t.now())
			switch {
			case err != nil:
				return err
			case asJSON:
				return t.writeJSON(map[string]any{"run": run.Day, "phase": run.Phase, "joined": joined})
			}
			what := "is started"
			if joined {
				what = "was there already, in the phase " + string(run.Phase)
			}
			_, err = fmt.Fprintf(t.stdout, "the run of %s %s; mailyard digest report shows how far it is\n", run.Day, what)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// reportJSON is a run as programs read it.
type reportJSON struct {
	Run          string     `json:"run"`
	Phase        string     `json:"phase"`
	StartedAt    *time.Time `json:"startedAt"`
	FinishedAt   *time.Time `json:"finishedAt"`
	PausedUntil  *time.Time `json:"pausedUntil"`
	Seconds      float64    `json:"seconds"`
	Read         int        `json:"read"`
	Filtered     int        `json:"filtered"`
	Busy         int        `json:"busy"`
	Daily        int        `json:"daily"`
	Weekly       int        `json:"weekly"`
	Sent         int        `json:"sent"`
	Failed       int        `json:"failed"`
	Processing   int        `json:"processing"`
	Unsubscribed int        `json:"unsubscribed"`
	Left         int        `json:"left"`
	Retried      int        `json:"retried"`
	Differences  []string   `json:"differences"` // sums that do not come out; none is as it should be
}

func digestReportCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report [DATE]",
		Short: "Show what became of the run of a day, or of the newest",
		Long: "While the run is under way it counts the outcomes as they stand now. Of a run that has ended the sum of\n" +
			"the outcomes is what was read; where it is not, the command says so and fails.",
		Args: arguments(0, 1, "date"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := t.run(cmd.Context(), args)
			if err != nil {
				return err
			}
			return t.writeReport(run, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// run reads the run of a day, the newest where none is named, with its outcomes as they stand.
func (t *tool) run(ctx context.Context, args []string) (mailing.Run, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return mailing.Run{}, err
	}
	var run mailing.Run
	found := false
	if len(args) == 0 {
		run, found, err = db.NewestRun(ctx)
	} else if day := mailing.Day(args[0]); !day.Valid() {
		return run, misused("%q is not a date; write it as 2026-11-30", shorten(args[0], 40))
	} else {
		run, found, err = db.Run(ctx, day)
	}
	switch {
	case err != nil:
		return run, err
	case !found:
		return run, errors.New("there has been no such run; mailyard digest run starts today's")
	case !run.Open():
		return run, nil
	}
	outcomes, err := db.CountMailings(ctx, run.Day)
	run.Counts = outcomes.Add(run.Counts)
	return run, err
}

func (t *tool) writeReport(run mailing.Run, asJSON bool) error {
	c, ended := run.Counts, run.FinishedAt
	if ended.IsZero() {
		ended = t.now()
	}
	took := ended.Sub(run.StartedAt)
	differences := []string{}
	if !run.Open() {
		differences = append(differences, c.Differences()...)
	}
	var err error
	if asJSON {
		err = t.writeJSON(reportJSON{
			Run: string(run.Day), Phase: string(run.Phase), StartedAt: moment(run.StartedAt), FinishedAt: moment(run.FinishedAt),
			PausedUntil: moment(run.PausedUntil), Seconds: took.Round(time.Millisecond).Seconds(),
			Read: c.Read, Filtered: c.Filtered, Busy: c.Busy, Daily: c.Daily, Weekly: c.Weekly, Sent: c.Sent, Failed: c.Failed,
			Processing: c.Processing, Unsubscribed: c.Unsubscribed, Left: c.Left, Retried: c.Retried, Differences: differences,
		})
	} else {
		pairs := [][2]string{
			{"run", string(run.Day)}, {"phase", string(run.Phase)}, {"started", clock(run.StartedAt)}, {"finished", clock(run.FinishedAt)},
			{"took", took.Round(time.Second).String()},
		}
		if run.Open() && run.PausedUntil.After(t.now()) {
			pairs = append(pairs, [2]string{"paused until", clock(run.PausedUntil)})
		}
		for _, n := range []struct {
			name string
			n    int
		}{
			{"subscribers read", c.Read}, {"filtered", c.Filtered}, {"busy with an earlier run", c.Busy}, {"daily made", c.Daily}, {"weekly made", c.Weekly},
			{"sent", c.Sent}, {"failed", c.Failed}, {"left PROCESSING", c.Processing}, {"unsubscribed meanwhile", c.Unsubscribed},
			{"left for a later run", c.Left}, {"retried", c.Retried},
		} {
			pairs = append(pairs, [2]string{n.name, fmt.Sprint(n.n)})
		}
		err = t.writePairs(pairs)
	}
	if err == nil && len(differences) > 0 {
		err = fmt.Errorf("the report of %s does not add up: %s", run.Day, strings.Join(differences, "; "))
	}
	return err
}

// uncertainJSON is a mailing whose outcome is not known, as programs read it.
type uncertainJSON struct {
	ID           string     `json:"id"`
	Run          string     `json:"run"`
	SubscriberID string     `json:"subscriberId"`
	ClaimedAt    *time.Time `json:"claimedAt"`
	AgeSeconds   float64    `json:"ageSeconds"`
	Error        string     `json:"error"`
}

func digestResolveCommand(t *tool) *cobra.Command {
	var as, reason string
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "resolve [MAILING...]",
		Short: "List the mailings of which nobody knows whether they were sent, or say what became of some",
		Long: "A mailing stays PROCESSING where a call was cut off: it may have been sent, and is never sent again by\n" +
			"itself. Look into the sender's folder Sent, then say --as sent, failed or again; again sends it once\n" +
			"more, also if it was sent before. Who said so, when and why is kept with the mailing.",
		Example: "  mailyard digest resolve\n  mailyard digest resolve 0123456789abcdef0123.7 --as sent --reason 'it is in the folder Sent'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			said := mailing.Resolution{Who: t.who, As: mailing.ResolvedAs(as), Reason: strings.TrimSpace(reason)}
			switch {
			case len(args) == 0 && as+reason == "":
				return t.listUncertain(cmd.Context(), asJSON)
			case len(args) == 0:
				return misused("--as and --reason are about mailings; name them as arguments")
			case said.As != mailing.AsSent && said.As != mailing.AsFailed && said.As != mailing.AsAgain:
				return misused("--as must be sent, failed or again")
			case said.Reason == "":
				return misused("--reason is not given; write why you know, for the record")
			}
			return t.resolve(cmd.Context(), args, said, yes, asJSON)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "what became of them: sent, failed, or again to send them once more")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (t *tool) listUncertain(ctx context.Context, asJSON bool) error {
	db, err := t.app.DB(ctx)
	if err != nil {
		return err
	}
	list := []uncertainJSON{}
	var rows [][]string
	for after := ""; ; {
		page, err := db.MailingsProcessing(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for _, m := range page {
			old := t.now().Sub(m.ClaimedAt)
			list = append(list, uncertainJSON{m.ID, string(m.Run), m.SubscriberID, moment(m.ClaimedAt), old.Round(time.Second).Seconds(), string(m.Error)})
			rows = append(rows, []string{m.ID, string(m.Run), age(old), string(m.Error)})
		}
		if len(page) < pageSize {
			break
		}
		after = page[len(page)-1].ID
	}
	if asJSON {
		return t.writeJSON(list)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(t.stdout, "0 mailings")
		return err
	}
	return t.writeTable([]string{"MAILING", "RUN", "AGE", "ERROR"}, rows)
}

// resolvedJSON is what became of one mailing, as programs read it.
type resolvedJSON struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"` // why nothing was changed
}

func (t *tool) resolve(ctx context.Context, ids []string, said mailing.Resolution, yes, asJSON bool) error {
	if question := fmt.Sprintf("Mark %s as %s?", counted(len(ids), "mailing", "mailings"), said.As); !yes && !t.confirm(ctx, question) {
		return errors.New("nothing was changed: the answer was not yes; answer y, or give --yes")
	}
	resolver, err := t.app.DigestResolver(ctx)
	if err != nil {
		return err
	}
	results := make([]resolvedJSON, len(ids))
	wrong := 0
	for i, id := range ids {
		results[i].ID = id
		m, err := mailing.Mailing{}, error(digest.ErrNoMailing)
		if !strings.Contains(id, "/") { // a slash would make it another document's path
			m, err = resolver.Resolve(ctx, id, said)
		}
		if err != nil {
			wrong++
			results[i].Error = fault.Text(err)
		}
		results[i].Status = string(m.Status)
		if !asJSON && err == nil {
			fmt.Fprintf(t.stdout, "%s: %s\n", id, m.Status)
		} else if !asJSON {
			fmt.Fprintf(t.stderr, "%s: %s\n", id, fault.Text(err))
		}
	}
	if asJSON {
		if err := t.writeJSON(results); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%s not resolved", counted(wrong, "mailing was", "mailings were"))
	}
	return nil
}
