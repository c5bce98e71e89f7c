package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mailyard.internal/mailyard/scripts/local/emulator"
)

func emulatorsCommand() *cobra.Command {
	var logs string
	cmd := &cobra.Command{
		Use:   "emulators [--logs DIR] -- COMMAND [ARGS…]",
		Short: "Run a command with both emulators up and named in its environment",
		Long: "Starts the Pub/Sub and the Firestore emulator, runs the command with PUBSUB_EMULATOR_HOST,\n" +
			"FIRESTORE_EMULATOR_HOST and GOOGLE_CLOUD_PROJECT set, stops the emulators again and ends with\n" +
			"the command's exit status. An emulator that the environment names already is used instead.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withEmulators(cmd.Context(), emulator.Options{LogDir: logs}, args)
		},
	}
	cmd.Flags().StringVar(&logs, "logs", "", "keep the emulators' output in this directory")
	return cmd
}

// withEmulators runs a command between the emulators' start and stop. A command that fails is an
// exitStatus.
func withEmulators(ctx context.Context, o emulator.Options, args []string) error {
	// From here to the end signals are the command's, and none of them ends us before the emulators
	// are stopped.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	emulators, err := emulator.Start(ctx, o)
	if err != nil {
		return err
	}
	defer emulators.Stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	command := exec.Command(args[0], args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(append(os.Environ(), emulators.Env()...), "GOOGLE_CLOUD_PROJECT="+project)
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	for {
		select {
		case s := <-signals:
			// The terminal sends its own to the whole group, and a program that gets two may take the
			// second for impatience.
			fromTerminal := (s == os.Interrupt || s == syscall.SIGQUIT) && term.IsTerminal(int(os.Stdin.Fd()))
			if !fromTerminal {
				_ = command.Process.Signal(s) // it fails only for a command that has ended
			}
		case err := <-done:
			return statusOf(command.ProcessState, err)
		}
	}
}

// statusOf is a command's end as a shell would give it: 128 and the signal's number for a killed one.
func statusOf(state *os.ProcessState, err error) error {
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitStatus(128 + int(status.Signal()))
	}
	return exitStatus(state.ExitCode())
}
