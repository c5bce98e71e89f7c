//go:build linux

package app_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	netmail "net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

const (
	manySubscribers = 10_000
	digestKills     = 50
	digestSeed      = 20261130
	// aheadByKill lets who takes over find that the claim of the one before has run out.
	aheadByKill = 6 * time.Minute
)

// Ten thousand digests, a sender that fails in every way there is, every message delivered twice and out
// of order, and an instance that is killed again and again: nobody gets two mails, and everybody is
// accounted for.
func TestDigestsKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	apptest.NeedEmulators(t)
	if testing.Short() {
		t.Skip("builds a program and takes a minute, which -short leaves out")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	y := apptest.New(t, apptest.Options{Courier: courier.Options{
		Base: "http://" + listener.Addr().String(), RetryScale: 0.0005, Repeat: 1, Shuffle: 5 * time.Millisecond, Seed: digestSeed,
	}})
	y.LinkDigestSender()
	ids := subscribeMany(t, y, manySubscribers)
	random := rand.New(rand.NewPCG(digestSeed, 2))
	trouble := &sendingTrouble{random: rand.New(rand.NewPCG(digestSeed, 3)), met: map[string]int{}}
	y.Gmail.SpoilBy(trouble.choose)
	instances := startKillable(t, y, listener)
	y.Start()
	began := time.Now()
	day := y.Digest(y.Clock.Now())

	phases := map[mailing.Phase]int{}
	kill := func(r mailing.Run) {
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond) // the moment to kill at, not a wait for anything
		y.Clock.Advance(aheadByKill)
		instances.kill()
		phases[r.Phase]++
		y.Tick()
	}
	moments := killMoments(random)
	run := y.Run(day)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline, tick := time.Now().Add(8*time.Minute), time.Now(); run.Open(); run = y.Run(day) {
		<-look.C
		switch {
		case time.Now().After(deadline):
			t.Fatalf("the run does not end: %+v", run)
		case run.PausedUntil.After(y.Clock.Now()):
			y.Clock.Advance(run.PausedUntil.Sub(y.Clock.Now()))
			kill(run)
		case len(moments) > 0 && progressOf(run) >= moments[0]:
			moments = moments[1:]
			kill(run)
		case time.Since(tick) > time.Second:
			y.Tick()
			tick = time.Now()
		}
	}
	t.Logf("%d subscribers in %.0f s, killed %d times, by phase %v; what the sender met: %v; the report: %+v",
		manySubscribers, time.Since(began).Seconds(), instances.kills(), phases, trouble.met, run.Counts)
	if instances.kills() < digestKills {
		t.Errorf("the run ended after %d kills, want %d", instances.kills(), digestKills)
	}
	for _, phase := range killedPhases {
		if phases[phase] == 0 {
			t.Errorf("nobody was killed in the phase %s", phase)
		}
	}
	for _, way := range sendingTroubles {
		if trouble.met[way.name] == 0 {
			t.Errorf("no send met %s", way.name)
		}
	}
	if wrong := apptest.Accounted(run); wrong != "" || run.Counts.Read != manySubscribers || run.Counts.Daily != manySubscribers || run.Counts.Left != 0 {
		t.Errorf("not everybody is accounted for: %s %+v", wrong, run.Counts)
	}
	assertAtMostOnce(t, y, ids)
}

// killedPhases are those that take long enough to be killed in; sending counts twice.
var killedPhases = []mailing.Phase{mailing.Generate, mailing.Send, mailing.Send, mailing.Advance}

// killMoments draws when to kill, as progress, in order: a few more than are wanted, as the last ones may
// come when the run has ended.
func killMoments(random *rand.Rand) []float64 {
	moments := make([]float64, digestKills+5)
	for i := range moments {
		phase := killedPhases[random.IntN(len(killedPhases))]
		moments[i] = progressOf(mailing.Run{Phase: phase}) + random.Float64()
	}
	slices.Sort(moments)
	return moments
}

// progressOf is how far a run is: a whole number for each phase that is over, and a fraction for the
// place within one, which the ids give, as they are spread evenly.
func progressOf(r mailing.Run) float64 {
	phases := []mailing.Phase{mailing.Generate, mailing.Send, mailing.Advance, mailing.Report, mailing.Finished}
	within, err := strconv.ParseUint((r.After + "00000000")[:8], 16, 32)
	if err != nil {
		within = 0
	}
	return float64(slices.Index(phases, r.Phase)) + float64(within)/(1<<32)
}

// assertAtMostOnce holds each mailing's record against what was really sent.
func assertAtMostOnce(t *testing.T, y *apptest.Yard, subscribers []string) {
	t.Helper()
	byMailing := map[string]int{}
	for _, m := range y.Gmail.Sent() {
		parsed, err := netmail.ReadMessage(bytes.NewReader(m.Raw))
		if err != nil {
			t.Fatal(err)
		}
		byMailing[parsed.Header.Get("X-Mailyard-Mailing")]++
	}
	for address, n := range y.SentTo() {
		if n > 1 {
			t.Errorf("%s got %d mails", address, n)
		}
	}
	wrong := 0
	for chunk := range slices.Chunk(subscribers, 500) {
		of := make([]string, len(chunk))
		for i, id := range chunk {
			of[i] = mailing.MailingID(id, 1)
		}
		mailings, err := y.DB.Mailings(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		now, err := y.DB.Subscribers(t.Context(), chunk)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range chunk {
			m := mailings[of[i]]
			really, sequence := byMailing[m.ID], now[id].Sequence
			right := map[mailing.Status]bool{
				mailing.Done:       really == 1 && sequence == 2,
				mailing.Failed:     really == 0 && sequence == 1,
				mailing.Processing: really <= 1 && sequence == 2,
			}[m.Status]
			if !right || m.Awaits != "" {
				if wrong++; wrong <= 10 {
					t.Errorf("mailing %s is %s awaiting %q, was sent %d times, and its subscriber is at %d", m.ID, m.Status, m.Awaits, really, sequence)
				}
			}
		}
	}
	if wrong > 10 {
		t.Errorf("and %d more", wrong-10)
	}
}

// subscribeMany makes so many subscribers of a few mailboxes, and returns their ids.
func subscribeMany(t *testing.T, y *apptest.Yard, n int) []string {
	t.Helper()
	var accounts []mail.Account
	for i := range 3 {
		address := fmt.Sprintf("box%d@example.com", i)
		accounts = append(accounts, y.Link(addMailbox(t, y, address, address), address, 1))
	}
	ids := make([]string, n)
	var page []mailing.Changed[mailing.Subscriber]
	for i := range n {
		s, err := mailing.Subscription{Account: accounts[i%len(accounts)].ID, Email: fmt.Sprintf("s%05d@example.net", i)}.Check()
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = s.ID
		page = append(page, mailing.Changed[mailing.Subscriber]{Become: s.Renewed(s, y.Clock.Now().Add(-time.Hour))})
		if len(page) == 250 || i == n-1 {
			if saved, err := y.DB.SaveMailings(t.Context(), nil, page); err != nil || !saved {
				t.Fatal(saved, err)
			}
			page = nil
		}
	}
	return ids
}

// sendingTrouble spoils sends at random, in every way there is.
type sendingTrouble struct {
	mu     sync.Mutex
	random *rand.Rand
	met    map[string]int
}

var sendingTroubles = []struct {
	name  string
	share float64
	fault gmailsim.Fault
}{
	{"429", 0.02, gmailsim.Fault{Status: 429}},
	{"403 throttling the user", 0.02, gmailsim.Fault{Status: 403, Reason: "userRateLimitExceeded"}},
	{"403 throttling the project", 0.01, gmailsim.Fault{Status: 403, Reason: "dailyLimitExceeded"}},
	{"400", 0.01, gmailsim.Fault{Status: 400}},
	{"401 that a fresh token mends", 0.002, gmailsim.Fault{Status: 401}},
	{"500 without sending", 0.01, gmailsim.Fault{Status: 500}},
	{"503 after sending", 0.01, gmailsim.Fault{Status: 503, After: true}},
	{"connection lost without sending", 0.01, gmailsim.Fault{Drop: true}},
	{"connection lost after sending", 0.01, gmailsim.Fault{Drop: true, After: true}},
	{"timed out without sending", 0.002, gmailsim.Fault{Hang: true}},
	{"timed out after sending", 0.002, gmailsim.Fault{Hang: true, After: true}},
	{"late", 0.005, gmailsim.Fault{Delay: 50 * time.Millisecond}},
}

func (s *sendingTrouble) choose(call gmailsim.Call) (gmailsim.Fault, bool) {
	if call.Method != "messages.send" {
		return gmailsim.Fault{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.random.Float64()
	for _, way := range sendingTroubles {
		if at -= way.share; at < 0 {
			s.met[way.name]++
			return way.fault, true
		}
	}
	return gmailsim.Fault{}, false
}

// killable runs one instance at a time. When it is killed the next takes over, on the same listener, so
// that what comes in between waits.
type killable struct {
	mu     sync.Mutex
	killed int
	now    *exec.Cmd
}

func startKillable(t *testing.T, y *apptest.Yard, listener net.Listener) *killable {
	t.Helper()
	program := filepath.Join(t.TempDir(), "instance")
	// Without the race detector: what is raced here is the end of the process.
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./scripts/local/instance")
	build.Dir = moduleRoot
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the instance: %v\n%s", err, out)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	k := &killable{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		// Linux ends the child when the thread that started it ends, so this goroutine keeps its own.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, program, "-ahead", time.Until(y.Clock.Now()).String(),
				"-pace", "0", "-chunk", "400", "-send-timeout", "100ms", "-refused", "0.1", "-seed", fmt.Sprint(k.kills()))
			cmd.Env = os.Environ()
			for name, value := range y.Env {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = y.Log, y.Log, []*os.File{file}
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				ended <- err
				return
			}
			k.mu.Lock()
			k.now = cmd
			k.mu.Unlock()
			if err := cmd.Wait(); !killed(err) {
				ended <- fmt.Errorf("an instance ended by itself: %w", err)
				return
			}
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%v; it said %s", err, y.Log)
		}
		file.Close()
	})
	return k
}

// kill ends the instance at once, as SIGKILL does.
func (k *killable) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil {
		return
	}
	if err := k.now.Process.Kill(); err == nil {
		k.killed++
	}
	k.now = nil
}

func (k *killable) kills() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}
