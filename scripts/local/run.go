package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/schedule"
)

func runCommand() *cobra.Command {
	var o yardOptions
	var retryScale float64
	var tick time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run everything on this machine until Ctrl-C, and say where it listens",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if retryScale <= 0 || retryScale > 1 {
				return misuse{errors.New("--retry-scale must be above 0 and at most 1")}
			}
			if tick < time.Second {
				return misuse{errors.New("--tick must be at least 1s")}
			}
			o.logName = "run.log"
			return stayUp(cmd.Context(), cmd.OutOrStdout(), o, retryScale, tick)
		},
	}
	cmd.Flags().StringVar(&o.pubsubAddr, "pubsub", "", "address of the Pub/Sub emulator (a free port)")
	cmd.Flags().StringVar(&o.firestoreAddr, "firestore", "", "address of the Firestore emulator (a free port)")
	cmd.Flags().StringVar(&o.functionsAddr, "functions", "127.0.0.1:8080", "address of the functions")
	cmd.Flags().StringVar(&o.gmailAddr, "gmail", "127.0.0.1:8081", "address of the simulated Gmail")
	cmd.Flags().Float64Var(&retryScale, "retry-scale", 1, "factor on every wait before a retry; counts stay as they are")
	cmd.Flags().DurationVar(&tick, "tick", time.Minute, "how often Tick is called")
	return cmd
}

// stayUp runs a yard until the context ends.
func stayUp(ctx context.Context, out io.Writer, o yardOptions, retryScale float64, tick time.Duration) (err error) {
	fmt.Fprintln(out, "Starting the emulators …")
	y, err := openYard(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	y.deliver(courier.Options{RetryScale: retryScale}, stop)
	y.onClose(y.callTick(ctx, tick))
	if err := y.furnish(ctx); err != nil {
		return err
	}

	fmt.Fprintf(out, `
Mailyard is up. Ctrl-C stops all of it.

  Open %[1]s/Console   to see lanes, mailboxes and dead letters
  and  %[2]s           to deliver, read, delete and poison mail

  functions           %[1]s/<EntryPoint>
  simulated Gmail     %[2]s   (mailboxes: %[2]s/sim/mailboxes)
  Pub/Sub emulator    %[3]s
  Firestore emulator  %[4]s
  functions' log      %[5]s

%[6]s is linked already. To use the command-line tool beside it:

`, y.functionsURL, y.gmailURL, y.emulators.PubSubHost, y.emulators.FirestoreHost, y.logPath, demoAddress)
	for _, name := range sortedNames(y.env) {
		fmt.Fprintf(out, "  export %s=%s\n", name, y.env[name])
	}
	fmt.Fprintf(out, `
  curl -d address=kim@example.com -d refreshToken=kim-token %[1]s/sim/mailboxes
  go run ./scripts/mailyard account add --email kim@example.com --refresh-token kim-token --no-resync
  go run ./scripts/mailyard account link --owner me     # or link it as its owner would: open what this prints
  curl -d subject=Hello -d from=bo@example.org -d text=Hi %[1]s/sim/mailboxes/kim@example.com/deliver
  go run ./scripts/mailyard account status

Digests:

  curl -d address=%[2]s -d refreshToken=sender-token %[1]s/sim/mailboxes
  go run ./scripts/mailyard account add --email %[2]s --refresh-token sender-token --no-resync
  go run ./scripts/mailyard subscribers add --account ACCOUNT --email cy@example.net
  go run ./scripts/mailyard digest run
  go run ./scripts/mailyard digest report
`, y.gmailURL, digestSender)
	<-ctx.Done()
	fmt.Fprintln(out, "Stopping …")
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// digestEvery is how often Digest is called here: of one day, every call but the first joins.
const digestEvery = time.Hour

// callTick calls Tick and Digest as their schedules do; the returned function ends that.
func (y *yard) callTick(ctx context.Context, every time.Duration) func() error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		schedule.Run(ctx, []schedule.Job{
			{EntryPoint: "Tick", Interval: every}, {EntryPoint: "Digest", Interval: digestEvery},
		}, schedule.Options{Base: y.functionsURL})
	}()
	return func() error {
		stop()
		<-ended
		return nil
	}
}
