package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mailing"
)

const (
	fewSubscribers  = 1_000
	manySubscribers = 10_000
	newPerMailbox   = 3 // messages
	digestSender    = "digests@example.com"
)

// digests sends to 1,000 subscribers, each of a mailbox of its own, and to 9,000 more of few mailboxes, as
// the emulator looks through all messages that there are for each mailbox that it is asked for. The sender
// need not be waited for: what is measured is the work, not Gmail's 60 mails a minute.
//
// Reads, writes and time are measured in this process, against a program that does the same with one read
// and one write of each thing and promises nothing; the memory in processes of their own.
func digests(ctx context.Context, y *yard) ([]figure, error) {
	y.env["MAILYARD_DIGEST_SENDER"] = digestSender
	y.env["MAILYARD_CONNECT_KEY"] = "the-key-of-a-benchmark-and-no-other"
	y.env["MAILYARD_PUBLIC_URL"] = "http://localhost"
	box, err := y.mailbox(digestSender)
	if err != nil {
		return nil, err
	}
	if _, err := y.link(ctx, box, "digests"); err != nil {
		return nil, err
	}
	if err := errors.Join(y.topic(ctx, lane.DigestTopic), y.subscribers(ctx, 0, fewSubscribers)); err != nil {
		return nil, err
	}
	bare, err := y.bareDigests(ctx, box)
	if err != nil {
		return nil, err
	}
	var counted documentMeter
	day := time.Now()
	ours, err := y.digestsHere(ctx, day, &counted)
	if err != nil {
		return nil, err
	}
	reads, writes := counted.counts()
	program := filepath.Join(y.dir, "instance")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "mailyard.internal/mailyard/scripts/local/instance").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the instance: %w: %s", err, bytes.TrimSpace(out))
	}
	_, fewPeak, err := y.digestsElsewhere(ctx, program, day.AddDate(0, 0, 1), fewSubscribers)
	if err != nil {
		return nil, err
	}
	if err := y.subscribers(ctx, fewSubscribers, manySubscribers); err != nil {
		return nil, err
	}
	took, manyPeak, err := y.digestsElsewhere(ctx, program, day.AddDate(0, 0, 2), manySubscribers)
	if err != nil {
		return nil, err
	}
	each := func(n int) float64 { return float64(n) / fewSubscribers }
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	return []figure{
		{what: "1,000 subscribers", value: fewSubscribers / ours.Seconds(), unit: "subscribers/s"},
		{what: "the barest program, 1,000 subscribers", value: fewSubscribers / bare.Seconds(), unit: "subscribers/s"},
		{what: "time ÷ the barest program's", value: over(ours, bare), bound: atMost(2)},
		{what: "10,000 subscribers (the emulator reads whole collections)", value: manySubscribers / took.Seconds(), unit: "subscribers/s"},
		{what: "documents read for each subscriber", value: each(reads), unit: "reads", bound: atMost(16)},
		{what: "documents written for each subscriber", value: each(writes), unit: "writes", bound: atMost(6)},
		{what: "peak memory, 1,000 subscribers", value: mib(fewPeak), unit: "MiB", bound: atMost(128)},
		{what: "peak memory, 10,000 subscribers", value: mib(manyPeak), unit: "MiB", bound: atMost(128)},
		{what: "peak memory of 10,000 ÷ of 1,000", value: mib(manyPeak) / mib(fewPeak), bound: atMost(1.25)},
	}, nil
}

// sharedMailboxes is how many there are for the subscribers after the first thousand.
const sharedMailboxes = 10

// subscribers makes subscribers from one number to another. Each account has a few new messages.
func (y *yard) subscribers(ctx context.Context, from, to int) error {
	bulk := y.documents.BulkWriter(ctx)
	var jobs []*firestore.BulkWriterJob
	var errs []error
	save := func(ref *firestore.DocumentRef, fields map[string]any) {
		job, err := bulk.Set(ref, fields)
		if err != nil {
			errs = append(errs, err)
			return
		}
		jobs = append(jobs, job)
	}
	now := time.Now()
	for i := from; i < to; i++ {
		mailbox := i
		if i >= fewSubscribers {
			mailbox = fewSubscribers + i%sharedMailboxes
		}
		account := fmt.Sprintf("digest-account-%05d", mailbox)
		address := fmt.Sprintf("s%05d@example.com", i)
		ref := y.documents.Collection("accounts").Doc(account)
		if i < fewSubscribers+sharedMailboxes {
			save(ref, map[string]any{"email": address, "owner": "digests", "status": "active"})
			for m := range newPerMailbox {
				save(ref.Collection("messages").Doc(fmt.Sprintf("m%d", m)), map[string]any{
					"from": fmt.Sprintf("Sender %d <sender%d@example.com>", m, m), "subject": "a subject of some words", "date": now.Add(-time.Hour),
					"hasContent": true, "deleted": false, "unread": true, "trashed": false,
				})
			}
		}
		save(y.documents.Collection("subscribers").Doc(mailing.SubscriberID(account, address)), map[string]any{
			"accountId": account, "email": address, "frequency": "daily", "timezone": "UTC", "sequence": 1, "createdAt": now.Add(-time.Hour),
		})
	}
	bulk.End()
	for _, job := range jobs {
		if _, err := job.Results(); err != nil {
			return fmt.Errorf("write subscribers: %w", err)
		}
	}
	return errors.Join(errs...)
}

// digestsHere carries a day's run out in this process, and counts the documents that it reads and writes.
func (y *yard) digestsHere(ctx context.Context, day time.Time, counted *documentMeter) (time.Duration, error) {
	log, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	a := app.New(func(name string) (string, bool) { value, ok := y.env[name]; return value, ok }, log,
		app.WithGmailQuota(1e9), app.WithDigestPace(0, time.Millisecond), app.WithGRPC(counted.options()...))
	defer a.Close()
	entryPoints, err := a.EntryPoints()
	if err != nil {
		return 0, err
	}
	for _, e := range entryPoints {
		if e.Name == "DigestSend" {
			server := httptest.NewServer(e.Handler)
			defer server.Close()
			return y.carryOut(ctx, day, server.URL, fewSubscribers)
		}
	}
	return 0, errors.New("there is no function DigestSend")
}

// digestsElsewhere carries a day's run out in a process of its own, and measures its memory.
func (y *yard) digestsElsewhere(ctx context.Context, program string, day time.Time, subscribers int) (took time.Duration, peak int64, err error) {
	address, err := freeAddress()
	if err != nil {
		return 0, 0, err
	}
	process := exec.CommandContext(ctx, program, "-listen", address)
	for name, value := range y.env {
		process.Env = append(process.Env, name+"="+value)
	}
	var said bytes.Buffer
	process.Stderr = &said
	if err := process.Start(); err != nil {
		return 0, 0, fmt.Errorf("start the instance: %w", err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return 0, 0, err
	}
	wait, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := firstAnswer(wait, address, request); err != nil {
		return 0, 0, fmt.Errorf("%w; it said %s", err, said.Bytes())
	}
	if took, err = y.carryOut(ctx, day, "http://"+address+"/DigestSend", subscribers); err != nil {
		return 0, 0, fmt.Errorf("%w; the instance said %s", err, lastOf(said.Bytes()))
	}
	peak, err = peakMemory(process.Process.Pid)
	return took, peak, err
}

// lastOf is the end of what a process has said.
func lastOf(said []byte) []byte { return said[max(0, len(said)-2000):] }

// carryOut starts a day's run and posts step after step until it is done. Everybody must have been sent
// one mail.
func (y *yard) carryOut(ctx context.Context, day time.Time, url string, subscribers int) (time.Duration, error) {
	starter, err := y.app.DigestStarter(ctx)
	if err != nil {
		return 0, err
	}
	y.sim.ForgetSent()
	began := time.Now()
	run, _, err := starter.Start(ctx, day)
	for found := true; err == nil && run.Open(); run, found, err = y.db.Run(ctx, run.Day) {
		if !found {
			return 0, errors.New("the run was not recorded")
		}
		if err := y.digestStep(ctx, url, run); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	if err == nil && (run.Counts.Sent != subscribers || len(y.sim.Sent()) != subscribers || len(run.Counts.Differences()) > 0) {
		err = fmt.Errorf("not everybody was sent one mail: %+v", run.Counts)
	}
	return took, err
}

func (y *yard) digestStep(ctx context.Context, url string, run mailing.Run) error {
	data, err := run.At().Encode()
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"message": map[string]any{"data": data, "messageId": "1"}, "deliveryAttempt": 1})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for a step: %w", err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("a step was answered %d", response.StatusCode)
	}
	return nil
}
