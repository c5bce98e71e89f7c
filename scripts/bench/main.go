// Command bench measures Mailyard against the least that could do the same, on the official emulators.
//
// It prints every figure with the bound it must keep. Its exit status is 0 when all bounds are kept, 1
// when one is missed or something failed, and 2 when it was misused. What is compared is measured in
// turns within one run, since two runs on one machine differ by more than the things compared; only
// ratios are judged.
//
// It leaves nothing behind: its documents and its topic are deleted, its processes are stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
)

// A benchmark is one comparison. Its run may take minutes and ends early with ctx.
type benchmark struct {
	name string
	run  func(context.Context, *yard) ([]figure, error)
}

// benchmarks are run in this order. Digests come before what leaves many documents behind: the emulator
// reads whole collections for their queries.
var benchmarks = []benchmark{
	{"classify", classify},
	{"apply", apply},
	{"digest", digests},
	{"flag", flagLane},
	{"fetch", fetchLane},
	{"start", coldStart},
	{"redrive", redriveRateKept},
	{"resync", resyncLarge},
	{"import", importBesideLive},
}

func main() {
	// A second Ctrl-C ends the program at once: the first one gives the signals back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, out, complaints io.Writer) int {
	chosen, err := choose(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(out, usage())
		return 0
	case err != nil:
		fmt.Fprintln(complaints, err)
		return 2
	}
	for _, name := range []string{"PUBSUB_EMULATOR_HOST", "FIRESTORE_EMULATOR_HOST"} {
		if os.Getenv(name) == "" {
			fmt.Fprintf(complaints, "%s is not set: run make bench, which starts the emulators.\n", name)
			return 2
		}
	}
	kept, err := measure(ctx, chosen, out)
	if err != nil {
		fmt.Fprintln(complaints, err)
	}
	if err != nil || !kept {
		return 1
	}
	return 0
}

func names() string {
	var all []string
	for _, b := range benchmarks {
		all = append(all, b.name)
	}
	return strings.Join(all, ",")
}

func usage() string { return "usage: bench [-run NAMES]; without -run all: " + names() }

// choose returns the benchmarks that the command line asks for.
func choose(args []string) ([]benchmark, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its errors are told by run
	only := flags.String("run", "", "")
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("%w; %s", err, usage())
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is not understood; %s", flags.Arg(0), usage())
	}
	if *only == "" {
		return benchmarks, nil
	}
	var chosen []benchmark
	for name := range strings.SplitSeq(*only, ",") {
		known := false
		for _, b := range benchmarks {
			if b.name == name {
				chosen, known = append(chosen, b), true
			}
		}
		if !known {
			return nil, fmt.Errorf("there is no benchmark %q; %s", name, usage())
		}
	}
	return chosen, nil
}

// measure runs the benchmarks and prints each one's figures as soon as it has them. It reports whether
// every bound was kept.
func measure(ctx context.Context, chosen []benchmark, out io.Writer) (kept bool, err error) {
	y, err := newYard(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	kept = true
	for _, b := range chosen {
		figures, err := b.run(ctx, y)
		if ctx.Err() != nil {
			return false, errors.New("interrupted")
		}
		if err != nil {
			return false, fmt.Errorf("benchmark %s: %w", b.name, err)
		}
		fmt.Fprintln(out, b.name)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, f := range figures {
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", f.what, f.text(), f.bound, f.verdict())
			kept = kept && f.kept()
		}
		if err := table.Flush(); err != nil {
			return false, err
		}
	}
	return kept, nil
}
