// Command mailyard is what an operator works with: accounts, digests, and the ledger of what has failed.
//
// It reads the same environment as the functions do. Tables are for people; with --json it writes one
// JSON document to standard output, for programs, and nothing else. What it asks and tells beside that
// goes to standard error. Its exit status is 0 when it is done, 1 when it failed and 2 when it was
// misused.
package main

import (
	"context"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"
)

func main() {
	// A second Ctrl-C ends the program at once: the first one gives the signals back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	who := "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	os.Exit(run(ctx, surroundings{
		lookup: os.LookupEnv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: time.Now, who: who,
	}, os.Args[1:]))
}
