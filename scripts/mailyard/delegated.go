package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// maxAddresses is how many mailboxes one file may name.
const maxAddresses = 100_000

// addParallel is how many mailboxes are linked at once.
const addParallel = 4

// An addressLine is one line of a file of addresses, and what became of it.
type addressLine struct {
	Line      int    `json:"line"`
	Email     string `json:"email,omitempty"`
	AccountID string `json:"accountId,omitempty"`
	Error     string `json:"error,omitempty"`
}

// addFile links every delegated mailbox that a file names, one address a line; - is standard input. A
// line that is wrong is named, and the others are done.
func (t *tool) addFile(ctx context.Context, file string, g mailbox.Grant, asJSON bool) error {
	if err := t.app.CheckDelegation(); err != nil {
		return err
	}
	lines, err := t.readAddresses(file)
	if err != nil {
		return err
	}
	linker, err := t.app.Linker(ctx)
	if err != nil {
		return err
	}
	bar := t.progress(len(lines), "mailboxes")
	slots := make(chan struct{}, addParallel)
	var wait sync.WaitGroup
	for i := range lines {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			lines[i].link(ctx, linker, g)
			_ = bar.Add(1)
		})
	}
	wait.Wait()
	_ = bar.Finish()
	return t.reportLines(lines, asJSON)
}

func (l *addressLine) link(ctx context.Context, linker *mailbox.Linker, g mailbox.Grant) {
	if l.Error != "" {
		return
	}
	g.Email = l.Email
	account, err := linker.Link(ctx, g)
	l.AccountID = account.ID
	if err != nil {
		l.Error = explain(delegationAdvice(err))[0]
	}
}

// delegationAdvice says what a refusal means for a mailbox that nobody has granted.
func delegationAdvice(err error) error {
	if fault.Is(err, fault.ReauthRequired) {
		return errors.New("the service account may not act for this address: it is not the primary address of a user, or the domain's administrator has not delegated the scope gmail.readonly (and gmail.send, for the digests' sender) to MAILYARD_DELEGATION_SERVICE_ACCOUNT")
	}
	return err
}

// readAddresses reads a file: empty lines and what begins with # are passed over, and an address that
// comes again is taken once.
func (t *tool) readAddresses(file string) ([]addressLine, error) {
	input := t.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the addresses: %w", err)
		}
		defer f.Close()
		input = f
	}
	var lines []addressLine
	seen := map[string]bool{}
	scanner := bufio.NewScanner(input)
	for number := 1; scanner.Scan(); number++ {
		text := strings.TrimSpace(strings.TrimPrefix(scanner.Text(), "\ufeff"))
		switch {
		case text == "" || strings.HasPrefix(text, "#") || seen[mail.NormalizeAddress(text)]:
			continue
		case len(lines) == maxAddresses:
			return nil, fmt.Errorf("%s names more than %d mailboxes; split it", file, maxAddresses)
		}
		seen[mail.NormalizeAddress(text)] = true
		line := addressLine{Line: number, Email: text}
		if err := mail.CheckAddress(text); err != nil {
			line = addressLine{Line: number, Error: err.Error()} // it may be anything: it is not repeated
		}
		lines = append(lines, line)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read the addresses: %w", err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s names no mailbox; write one address a line", file)
	}
	return lines, nil
}

func (t *tool) reportLines(lines []addressLine, asJSON bool) error {
	linked, failed := []addressLine{}, []addressLine{}
	for _, l := range lines {
		if l.Error == "" {
			linked = append(linked, l)
		} else {
			failed = append(failed, l)
		}
	}
	if asJSON {
		if err := t.writeJSON(map[string]any{"linked": linked, "failed": failed}); err != nil {
			return err
		}
	} else {
		for _, l := range failed {
			fmt.Fprintf(t.stderr, "line %d: %s\n", l.Line, l.Error)
		}
		if _, err := fmt.Fprintf(t.stdout, "%s linked\n", counted(len(linked), "mailbox is", "mailboxes are")); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s not linked; mend those lines and run the same command again: what is linked already is linked once more, and stays one account", counted(len(failed), "line is", "lines are"))
	}
	return nil
}
