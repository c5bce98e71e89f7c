//go:build linux

package app_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/mail"
)

// A resync is killed at every step of everything it does, and another instance takes over once the
// claim of the first has run out. It still ends right, and no message is fetched twice: but for the one
// fetch whose answer had come and whose write had not, which nobody can know of.
func TestResyncKilledAtAnyStep(t *testing.T) {
	t.Parallel()
	apptest.NeedEmulators(t)
	var next, spared atomic.Int64
	var workers sync.WaitGroup
	began, points := time.Now(), atomic.Int64{}
	for range killers {
		workers.Go(func() {
			for spared.Load() < 2 {
				step := int(next.Add(1))
				t.Run(fmt.Sprintf("at step %d", step), func(t *testing.T) {
					if killResyncAt(t, step) == "" {
						spared.Add(1)
					} else {
						points.Add(1)
					}
				})
			}
		})
	}
	workers.Wait()
	t.Logf("killed at %d points in %.0f s", points.Load(), time.Since(began).Seconds())
}

func killResyncAt(t *testing.T, step int) (point string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	y := apptest.New(t, apptest.Options{
		Courier: courier.Options{Base: "http://" + listener.Addr().String(), RetryScale: 0.0005},
		// The one that takes over lives later, so that no test has to wait for a claim to run out.
		Env: map[string]string{takeOverAheadEnv: "10m"},
	})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	ids := deliverMany(t, box, 8)
	account := y.LinkAndWatch(box, "refresh")
	spoil(t, y, account.ID, ids)
	takenOver := startInstances(t, y, listener, killAtStep("Resync", step))
	y.Start()
	askForResync(t, y, account.ID, "killed")
	y.Settle()
	for range 5 {
		if r, _, _ := y.DB.Resync(t.Context(), account.ID, "killed"); r.State == mail.ResyncDone {
			break
		}
		y.Clock.Advance(10 * time.Minute)
		y.Tick()
		y.Settle()
	}
	select {
	case <-takenOver:
		_, point, _ = strings.Cut(y.Log.String(), killedMark)
		point, _, _ = strings.Cut(point, "\n")
	default:
	}
	y.AssertMirror(account.ID, box)
	if r := resyncOf(t, y, account.ID, "killed"); r.State != mail.ResyncDone || r.Done != r.Total || r.Total != 8 {
		t.Errorf("killed %s, the resync is %+v", point, r)
	}
	fetched := map[string]int{}
	again := 0
	for _, call := range y.Gmail.Calls("messages.get") {
		if fetched[call.MessageID]++; fetched[call.MessageID] > 1 {
			again++
		}
	}
	// Five messages are nominated. A kill between a fetch and its commit costs that fetch again.
	if again > 1 || again == 1 && !strings.Contains(point, "messages.get") && !strings.Contains(point, "BeginTransaction") && !strings.Contains(point, "Commit") {
		t.Errorf("killed %s, these were fetched: %v", point, fetched)
	}
	if t.Failed() {
		t.Logf("the instances said:\n%s", y.Log)
	}
	return point
}

// spoil mirrors a mailbox wrongly: two messages missing, one too many, two with a wrong flag.
func spoil(t *testing.T, y *apptest.Yard, account string, ids []string) {
	t.Helper()
	save := func(id string, trashed bool) {
		t.Helper()
		become := mail.Apply(mail.Message{ID: id}, mail.Fetched{
			HistoryID: 1, Flags: map[string]bool{"unread": true, "trashed": trashed}, Summary: mail.Summary{Subject: "old"},
		})
		if saved, err := y.DB.SaveMessage(t.Context(), account, mail.Message{ID: id}, become); err != nil || !saved {
			t.Fatal(saved, err)
		}
	}
	for i, id := range ids[2:] {
		save(id, i < 2)
	}
	save("feed000000000000", false)
}
