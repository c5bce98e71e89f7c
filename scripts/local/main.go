// Command local runs Mailyard on one machine, with the official Google emulators.
//
// Its exit status is 0 when it is done, 1 when it failed and 2 when it was misused; emulators takes
// its command's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// project is the Google Cloud project of everything on this machine. No such project need exist.
const project = "mailyard-local"

// commands are the things this program can do.
func commands() []*cobra.Command {
	return []*cobra.Command{
		runCommand(),
		demoCommand(),
		emulatorsCommand(),
	}
}

// An exitStatus is an error that has been told already; the program ends with it.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// A misuse is a wrong command line.
type misuse struct{ error }

func main() {
	// A second Ctrl-C ends the program at once: the first one gives the signals back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use:           "local",
		Short:         "Run Mailyard on this machine, with the official Google emulators",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse{err} })
	root.AddCommand(commands()...)
	for _, cmd := range append(root.Commands(), root) {
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if err := check(cmd, args); err != nil {
					return misuse{err}
				}
				return nil
			}
		}
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var status exitStatus
	var wrong misuse
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "Interrupted; everything that was started is stopped.")
		return 128 + int(syscall.SIGINT)
	case errors.As(err, &wrong):
		fmt.Fprintf(os.Stderr, "%v\nUsage: %s\n", err, cmd.UseLine())
		return 2
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
