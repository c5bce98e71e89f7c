//go:build linux

package app_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/ledger"
)

// The monitor is killed at every step between a letter and its answer, between ledger and alert among
// them. Pub/Sub brings the letter back to the next instance, and Tick comes: the letter is in the ledger,
// and people are told, once. Only where the kill falls between the chat's answer and the record of it can
// nobody know, and they are told again.
func TestMonitorKilledAtAnyStep(t *testing.T) {
	t.Parallel()
	apptest.NeedEmulators(t)
	var mu sync.Mutex
	points, spared := map[string]bool{}, 0
	slots := make(chan struct{}, killers)
	var runs sync.WaitGroup
	for at := 1; ; at++ {
		slots <- struct{}{}
		mu.Lock()
		over := spared >= 2 || at > killBound
		mu.Unlock()
		if over {
			break
		}
		runs.Go(func() {
			defer func() { <-slots }()
			t.Run(fmt.Sprint("step ", at), func(t *testing.T) {
				point := killMonitorAt(t, at)
				mu.Lock()
				defer mu.Unlock()
				if point == "" {
					spared++
				}
				points[point] = true
			})
		})
	}
	runs.Wait()
	if !points["before chat"] || !points["after chat"] || !points["before its answer"] || len(points) < 8 {
		t.Errorf("killed at %v", points)
	}
	t.Logf("killed at %d points", len(points)-1)
}

func killMonitorAt(t *testing.T, at int) (point string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	takenOver := startInstances(t, y, listener, killAtStep("DeadLetter", at))
	letter := deadLetter(y, "m1", nil)
	body := y.Body(letter)
	before := -1 // alerts when the first instance was killed
	for deadline := time.Now().Add(30 * time.Second); ; {
		response, err := http.Post("http://"+listener.Addr().String()+"/DeadLetter", "application/json", bytes.NewReader(body))
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusNoContent {
				break
			}
		} else if before < 0 {
			before = len(c.said())
		}
		if time.Now().After(deadline) {
			t.Fatalf("the letter is never acknowledged; the instances said:\n%s", y.Log)
		}
	}
	for range 4 {
		y.Clock.Advance(2 * time.Minute)
		y.Tick()
	}
	entry, known, err := y.DB.Read(t.Context(), letter.Attributes[ledger.LetterID])
	if err != nil || !known || entry.State != ledger.Dead {
		t.Errorf("the ledger has %+v, %t, %v", entry, known, err)
	}
	select {
	case <-takenOver:
		_, point, _ = strings.Cut(y.Log.String(), killedMark)
		point, _, _ = strings.Cut(point, "\n")
	default:
	}
	most := 1
	if before == 1 && point != "before its answer" {
		most = 2
	}
	if n := len(c.said()); n < 1 || n > most {
		t.Errorf("killed %s: people were told %d times: %q", point, n, c.said())
	}
	return point
}
