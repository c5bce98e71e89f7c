package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
)

// surroundings are what the program meets outside itself.
type surroundings struct {
	lookup         config.Lookup
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	who            string // works here, for the record of what was done
	options        []app.Option
}

// A tool is what every command works with.
type tool struct {
	surroundings
	app *app.App
}

// A misuse is a wrong command line.
type misuse struct{ error }

func misused(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// run does what the arguments say and returns the exit status.
func run(ctx context.Context, s surroundings, args []string) int {
	t := &tool{s, app.New(s.lookup, io.Discard, append([]app.Option{app.WithClock(s.now)}, s.options...)...)}
	root := newCommand(t)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if closeErr := t.app.Close(); err == nil {
		err = closeErr
	}
	var wrong misuse
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(s.stderr, "mailyard: %s (see %s --help)\n", fault.Text(err), cmd.CommandPath())
		return 2
	}
	lines := explain(err)
	if ctx.Err() != nil {
		lines = []string{"stopped before it was done: " + fault.Text(err)}
	}
	for _, line := range lines {
		fmt.Fprintf(s.stderr, "mailyard: %s\n", line)
	}
	return 1
}

// newCommand returns the command tree.
func newCommand(t *tool) *cobra.Command {
	root := group("mailyard", "Operate Mailyard: accounts, digests, and what has failed",
		accountCommand(t), deadLetterCommand(t), subscribersCommand(t), digestCommand(t), keysetCommand(t))
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetIn(t.stdin)
	root.SetOut(t.stdout)
	root.SetErr(t.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse{err} })
	return root
}

// group is a command that only holds others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name())
	}
	cmd := &cobra.Command{
		Use: name, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misused("%q is not a command of %s; write one of %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// arguments takes at least and at most so many arguments. It does not repeat them: a refresh token may
// have been written where none is expected.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > most && most == 0:
			return misused("%s takes no arguments, only flags", cmd.CommandPath())
		case len(args) > most:
			return misused("%s takes one %s and no more", cmd.CommandPath(), what)
		case len(args) < least:
			return misused("%s needs one argument: the %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

// advice says what to do about a cause.
var advice = map[fault.Code]string{
	fault.FirestoreUnavailable: "Firestore cannot be reached or does not let you in; check the network, your Google Cloud credentials (locally FIRESTORE_EMULATOR_HOST) and try again",
	fault.PubSubUnavailable:    "Pub/Sub cannot be reached or does not let you in; check the network, your Google Cloud credentials, the topic (locally PUBSUB_EMULATOR_HOST) and try again",
	fault.KeyUnavailable:       "Cloud KMS does not unwrap the keyset; check MAILYARD_KEYSET, MAILYARD_KMS_KEY, your Google Cloud credentials and their role on that key",
	fault.GmailUnavailable:     "Gmail does not answer as it should; check MAILYARD_GMAIL_ENDPOINT, or try again later",
	fault.TokenUnavailable:     "the token server gives no access token; check MAILYARD_OAUTH_CLIENT_ID, MAILYARD_OAUTH_CLIENT_SECRET and MAILYARD_OAUTH_TOKEN_URL, or try again later",
	fault.ReauthRequired:       "the refresh token is revoked, expired or not of this OAuth client; have the mailbox's owner grant access again and use the new token",
	fault.NotPermitted:         "Gmail does not permit it; the grant needs the scope gmail.readonly, and gmail-api-push@system.gserviceaccount.com the right to publish on the topic",
	fault.Throttled:            "Gmail wants no more calls for this mailbox now; try again in a minute",
	fault.ProjectThrottled:     "the project's quota of Gmail calls is used up; try again later or raise the quota",
	fault.BadRequest:           "Gmail cannot make sense of the call; see that the topic exists and that gmail-api-push@system.gserviceaccount.com may publish on it",
	fault.Conflict:             "others keep writing the same document; try again",
}

// explain gives the error as the operator reads it: a sentence for each thing that is wrong, first
// what to do, then what was met.
func explain(err error) []string {
	code := fault.CodeOf(err)
	if joined, ok := err.(interface{ Unwrap() []error }); ok && code == fault.Unknown { // as every mistake of the environment
		var lines []string
		for _, e := range joined.Unwrap() {
			lines = append(lines, fault.Text(e))
		}
		return lines
	}
	if strings.Contains(err.Error(), "could not find default credentials") { // Google's words, with a URL
		return []string{"there are no Google Cloud credentials here; run gcloud auth application-default login"}
	}
	if what, known := advice[code]; known {
		return []string{what + ": " + fault.Text(err)}
	}
	return []string{fault.Text(err)}
}
