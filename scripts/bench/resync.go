package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// What the large mailbox holds, and what is wrong with its mirror.
const (
	largeMailbox = 100_000
	largeMissing = 30
	largeExtra   = 20
	largeFlagged = 40
	largeWrong   = largeMissing + largeExtra + largeFlagged
)

// resyncLarge resyncs a mailbox of 100,000 messages whose mirror is nearly right. The function Resync
// runs in a process of its own, so that its memory is its own.
func resyncLarge(ctx context.Context, y *yard) ([]figure, error) {
	account, err := y.largeMailbox(ctx)
	if err != nil {
		return nil, err
	}
	program, err := y.build(ctx, "mailyard")
	if err != nil {
		return nil, err
	}
	if err := y.topic(ctx, lane.ResyncTopic); err != nil {
		return nil, err
	}
	process, url, err := y.serve(ctx, program, "Resync")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	y.sim.ResetStats()
	began := time.Now()
	r, err := y.resync(ctx, url, account, process.Stderr.(*bytes.Buffer))
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	peak, err := peakMemory(process.Process.Pid)
	if err != nil {
		return nil, err
	}
	if r.Missing != largeMissing || r.Extra != largeExtra || r.Flags["trashed"] != largeFlagged || r.Done != r.Total || r.Total != largeMailbox {
		return nil, fmt.Errorf("the resync did not find what was wrong: %+v", r)
	}
	units := y.sim.Stats().TotalUnits
	if err := y.audited(ctx, account); err != nil {
		return nil, err
	}
	return []figure{
		{what: "quota units for 100,000 messages and 90 differences", value: float64(units), unit: "units", bound: atMost(1500 + 20*largeWrong)},
		{what: "peak memory of the function", value: float64(peak) / (1 << 20), unit: "MiB", bound: atMost(256)},
		{what: "time from request to done", value: took.Seconds(), unit: "s"},
	}, nil
}

// largeMailbox makes the mailbox and its nearly right mirror.
func (y *yard) largeMailbox(ctx context.Context) (account string, err error) {
	box, err := y.mailbox("large@example.com")
	if err != nil {
		return "", err
	}
	labels := [][]string{{"INBOX", "UNREAD"}, {"INBOX"}, {"INBOX"}, {"INBOX"}, {"INBOX"}, {"INBOX"}, {"SPAM"}, {"INBOX"}, {"INBOX"}, {"TRASH"}}
	for i := range largeMailbox {
		if _, err := box.Deliver(ctx, gmailsim.Mail{From: "a@example.com", Subject: "mail", Labels: labels[i%len(labels)]}); err != nil {
			return "", err
		}
	}
	if account, err = y.link(ctx, box, "large"); err != nil {
		return "", err
	}
	bulk := y.documents.BulkWriter(ctx)
	messages := y.documents.Collection("accounts").Doc(account).Collection("messages")
	var jobs []*firestore.BulkWriterJob
	save := func(id string, unread, trashed bool) error {
		job, err := bulk.Set(messages.Doc(id), map[string]any{
			"hasContent": true, "deleted": false, "unread": unread, "trashed": trashed, "subject": "mail",
			"guards": map[string]any{"content": 1, "deleted": 1, "unread": 1, "trashed": 1},
		})
		jobs = append(jobs, job)
		return err
	}
	for i, m := range box.Snapshot() {
		if i < largeMissing {
			continue
		}
		unread, trashed := false, false
		for _, label := range m.Labels {
			unread = unread || label == "UNREAD"
			trashed = trashed || label == "TRASH"
		}
		if err := save(m.ID, unread, trashed != (i < largeMissing+largeFlagged)); err != nil {
			return "", err
		}
	}
	for i := range largeExtra {
		if err := save(fmt.Sprintf("feed%012d", i), false, false); err != nil {
			return "", err
		}
	}
	bulk.End()
	for _, job := range jobs {
		if _, err := job.Results(); err != nil {
			return "", fmt.Errorf("write the mirror: %w", err)
		}
	}
	return account, nil
}

// serve starts a function's program, and returns when it answers.
func (y *yard) serve(ctx context.Context, program, target string) (*exec.Cmd, string, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(address)
	process := exec.CommandContext(ctx, program)
	process.Env = []string{"PORT=" + port, "FUNCTION_TARGET=" + target}
	for name, value := range y.env {
		process.Env = append(process.Env, name+"="+value)
	}
	process.Stderr = &bytes.Buffer{}
	if err := process.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", target, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return process, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err = firstAnswer(ctx, address, request)
	return process, "http://" + address + "/", err
}

// resync asks for step after step until the resync is done.
func (y *yard) resync(ctx context.Context, url, account string, said fmt.Stringer) (mail.Resync, error) {
	data, err := json.Marshal(map[string]string{"accountId": account, "resyncId": "bench", "reason": "a benchmark"})
	if err != nil {
		return mail.Resync{}, err
	}
	for {
		body, err := json.Marshal(map[string]any{"message": map[string]any{"data": data, "messageId": "1"}, "deliveryAttempt": 1})
		if err != nil {
			return mail.Resync{}, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return mail.Resync{}, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return mail.Resync{}, fmt.Errorf("ask for the resync: %w", err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			return mail.Resync{}, fmt.Errorf("the resync's step was answered %d; it said %s", response.StatusCode, said)
		}
		r, known, err := y.db.Resync(ctx, account, "bench")
		switch {
		case err != nil:
			return r, err
		case !known:
			return r, errors.New("the resync was not recorded")
		case !r.Open():
			return r, nil
		}
	}
}

// audited fails unless nothing differs any more.
func (y *yard) audited(ctx context.Context, account string) error {
	auditor, err := y.app.Auditor(ctx)
	if err != nil {
		return err
	}
	d, err := auditor.Audit(ctx, account, nil)
	if err != nil {
		return err
	}
	if d.Missing+d.Extra+d.Flags["unread"]+d.Flags["trashed"] != 0 {
		return fmt.Errorf("after the resync there are still differences: %+v", d)
	}
	return nil
}

// peakMemory reads a process's greatest resident size, in bytes.
func peakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process (this benchmark needs Linux): %w", err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("the kernel does not tell the process's memory")
}
