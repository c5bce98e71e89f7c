package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "write JSON, for programs")
}

func (t *tool) writeJSON(v any) error {
	e := json.NewEncoder(t.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeLine writes one line for a person.
func (t *tool) writeLine(format string, args ...any) error {
	_, err := fmt.Fprintf(t.stdout, format+"\n", args...)
	return err
}

// writeTable writes rows under their headings.
func (t *tool) writeTable(headings []string, rows [][]string) error {
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headings}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = printable(cell); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// writePairs writes names and values, one pair a line; what is empty is left out.
func (t *tool) writePairs(pairs [][2]string) error {
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", p[0], printable(p[1]))
		}
	}
	return w.Flush()
}

// printable keeps what others wrote from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// moment is a time in JSON: null where there is none.
func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// clock is a time in a table: empty where there is none.
func clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05Z")
}

// age is how long ago something was, in its two greatest units at most.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// counted is a number with its noun.
func counted(n int, noun, plural string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, plural)
}

func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progress shows how far a long work is, where somebody can see it. It may be used by many goroutines.
func (t *tool) progress(total int, what string) *progressbar.ProgressBar {
	if !onTerminal(t.stderr) {
		return progressbar.DefaultSilent(int64(total))
	}
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(t.stderr), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

// answerWithin is how long a program may take to answer; a person on a terminal may take any time.
const answerWithin = 10 * time.Second

// confirm asks, and reports whether the answer is yes. No answer is a no.
func (t *tool) confirm(ctx context.Context, question string) bool {
	fmt.Fprintf(t.stderr, "%s [y/N] ", question)
	if !onTerminal(t.stdin) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerWithin)
		defer cancel()
	}
	answers := make(chan string, 1)
	go func() { // a read cannot be called off: it ends with the program
		line, _ := bufio.NewReader(io.LimitReader(t.stdin, 100)).ReadString('\n')
		answers <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(t.stderr)
		return false
	case answer := <-answers:
		if !strings.HasSuffix(answer, "\n") {
			fmt.Fprintln(t.stderr)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return true
		}
		return false
	}
}
