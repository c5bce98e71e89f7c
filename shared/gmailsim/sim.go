// Package gmailsim is a Gmail that runs on this machine, for the demo and for tests.
//
// A [Sim] is an http.Handler that answers as Google's token endpoint and as Gmail v1 do, closely
// enough that google.golang.org/api/gmail/v1 and golang.org/x/oauth2 cannot tell the difference:
//
//	GET  /auth                                consent page: a person allows, a code comes out
//	POST /token, POST /revoke                 codes, refresh tokens or assertions in, access tokens out
//	POST /v1/projects/-/serviceAccounts/…     signJwt of the IAM Credentials API
//	     /gmail/v1/users/me/…                 profile, watch, stop, history, messages, threads, labels
//	     /sim/…                               the control side, for a person or another process
//
// Mailboxes live in memory. What happens in one (mail arrives, is read, trashed, deleted) is a
// method of [Mailbox]; each makes the history record that Gmail would make, and tells the topic of
// the mailbox's watch before it returns. Ids and historyIds follow from the seed and the order of
// the calls, so that runs repeat; historyIds grow with gaps.
//
// It can also be as bad as the real one: see [Fault], [Mailbox.Script], [Mailbox.LagIndex],
// [Mailbox.LagLabels], [Mailbox.ExpireHistory] and [Mailbox.LimitNotifications].
//
// It refuses what it does not know rather than guess: searches (q), format=raw, uploads. The query
// parameter fields is ignored, and answers are whole. Quotas are counted, not enforced. Nobody is
// asked who they are on the control side: serve it on a loopback address only.
//
// Everything may be called at any time by any number of goroutines.
package gmailsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ErrNotFound is returned by a mailbox's operations for a message that is not there.
var ErrNotFound = errors.New("no such message")

// ErrNotPublished is returned, together with the error of Config.Publish, where a change was made
// but its notification failed.
var ErrNotPublished = errors.New("notification not published")

const (
	defaultTokenLife = time.Hour
	maxBody          = 40 << 20 // Gmail takes messages of up to 35 MB
)

// Config says how a Sim is connected to the world. The zero value is useful.
type Config struct {
	// Publish sends a notification to a topic, named projects/p/topics/t. It is called without
	// locks held, by the operation that caused the notification. Nil publishes nothing.
	Publish func(ctx context.Context, topic string, data []byte) error
	// Now is the clock for dates, tokens, watches and limits; nil is time.Now. Delays of faults and
	// scripts are always real time.
	Now func() time.Time
	// Seed decides all ids: the same seed and calls give the same ids.
	Seed uint64
	// TokenLife is how long an access token is good for; 0 is an hour.
	TokenLife time.Duration
}

// A Sim holds mailboxes and answers for them. Make one with [New].
type Sim struct {
	publish   func(context.Context, string, []byte) error
	now       func() time.Time
	seed      uint64
	tokenLife time.Duration
	mux       *http.ServeMux

	mu      sync.Mutex
	boxes   map[string]*Mailbox
	refresh map[string]*Mailbox
	access  map[string]grant
	codes   map[string]consent
	// delegated has the domains for whose users a service account may act.
	delegated map[string][]string
	issued    int // codes and access tokens ever, which makes each a new one
	faults    []*Fault
	faultID   int
	spoil     func(Call) (Fault, bool)
	sent      []SentMail
	meter     meter
}

type grant struct {
	box     *Mailbox
	expires time.Time
}

// New returns a Sim without mailboxes.
func New(c Config) *Sim {
	s := &Sim{
		publish: c.Publish, now: c.Now, seed: c.Seed, tokenLife: c.TokenLife, mux: http.NewServeMux(),
		boxes: map[string]*Mailbox{}, refresh: map[string]*Mailbox{}, access: map[string]grant{},
		codes: map[string]consent{}, delegated: map[string][]string{},
	}
	if s.publish == nil {
		s.publish = func(context.Context, string, []byte) error { return nil }
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.tokenLife <= 0 {
		s.tokenLife = defaultTokenLife
	}
	s.mux.HandleFunc("GET /auth", s.serveAuth)
	s.mux.HandleFunc("POST /v1/projects/-/serviceAccounts/{account}", s.serveSign)
	s.mux.HandleFunc("POST /token", s.serveToken)
	s.mux.HandleFunc("POST /revoke", s.serveRevoke)
	s.routeGmail()
	s.routeControl()
	return s
}

// ServeHTTP answers as Gmail, as the token endpoint or on the control side, by path.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// AddMailbox makes a mailbox reached with refreshToken, or lets one more refresh token (as a second
// consent does) reach the mailbox that is there. Letter case in the address does not count. It
// refuses an address without @, an empty token, and a token that reaches another mailbox.
func (s *Sim) AddMailbox(address, refreshToken string) (*Mailbox, error) {
	key := normalise(address)
	if at := strings.IndexByte(key, '@'); at <= 0 || at == len(key)-1 {
		return nil, fmt.Errorf("add mailbox: %q is no address; give one like ann@example.com", address)
	}
	if refreshToken == "" {
		return nil, errors.New("add mailbox: the refresh token is empty; make one up, any text will do")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	box := s.boxes[key]
	if other, taken := s.refresh[refreshToken]; taken && other != box {
		return nil, errors.New("add mailbox: this refresh token reaches another mailbox; give each its own")
	}
	if box == nil {
		hash := fnv.New64a()
		hash.Write([]byte(key))
		box = newMailbox(s, key, rand.New(rand.NewPCG(s.seed, hash.Sum64())))
		s.boxes[key] = box
	}
	s.refresh[refreshToken] = box
	return box, nil
}

// Mailbox returns the mailbox with that address.
func (s *Sim) Mailbox(address string) (*Mailbox, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	box, ok := s.boxes[normalise(address)]
	return box, ok
}

func normalise(address string) string { return strings.ToLower(strings.TrimSpace(address)) }

// Revoke ends every token of the mailbox, as its owner can in their Google account: a refresh
// answers invalid_grant and an access token 401. The watch stays, so that notifications still come.
func (m *Mailbox) Revoke() {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	for token, box := range m.sim.refresh {
		if box == m {
			delete(m.sim.refresh, token)
		}
	}
	for token, g := range m.sim.access {
		if g.box == m {
			delete(m.sim.access, token)
		}
	}
}

// ExpireAccessTokens ends the mailbox's access tokens; its refresh tokens stay good.
func (m *Mailbox) ExpireAccessTokens() {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	for token, g := range m.sim.access {
		if g.box == m {
			delete(m.sim.access, token)
		}
	}
}

// RotateRefreshTokens says whether each refresh hands out a new refresh token and ends the old one.
func (m *Mailbox) RotateRefreshTokens(on bool) {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	m.rotate = on
}

// bearer returns the mailbox that the request's access token reaches, or nil.
func (s *Sim) bearer(r *http.Request) *Mailbox {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.access[token]; ok && now.Before(g.expires) {
		return g.box
	}
	return nil
}

// An exchange is one counted request and its answer.
type exchange struct {
	sim  *Sim
	box  *Mailbox // nil where the token reaches none
	w    http.ResponseWriter
	r    *http.Request
	call *Call
	// fault is the one that spoils the call; nil for none.
	fault *Fault
}

func (x *exchange) reply(status int, answer any) {
	if answer == nil {
		x.raw(status, nil)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil { // only a scripted body can be unfit, and those were checked when they were set
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":500,"message":"unmarshalable answer"}}`)
	}
	x.raw(status, body)
}

func (x *exchange) raw(status int, body []byte) {
	x.sim.meter.answered(x.call, status)
	if body == nil && status == http.StatusOK {
		status = http.StatusNoContent
	}
	x.w.Header().Set("Cache-Control", "no-store")
	if body != nil {
		x.w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // whoever hung up does not want the rest
}

// send publishes a notification, if there is one. It must be called without locks.
func (s *Sim) send(ctx context.Context, n *notice) error {
	if n == nil {
		return nil
	}
	if err := s.publish(ctx, n.topic, n.data); err != nil {
		return fmt.Errorf("%w to %s: %w", ErrNotPublished, n.topic, err)
	}
	s.meter.published()
	return nil
}
