package gmailsim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Fault spoils the calls it matches: first the delay, then, in this order of precedence, a hang,
// a dropped connection or an error. With a delay alone the call is answered well, but late. Faults
// come before authorisation and before scripts; of several that match the oldest is used.
type Fault struct {
	Method    string // one of [Methods]; empty matches all
	Mailbox   string // an address; empty matches all, and calls that reach none
	MessageID string // as in the path; empty matches all
	Status    int    // 400 to 599; 0 is no error
	// Reason and Message stand in the error's body, such as rateLimitExceeded; empty is what Google
	// usually gives with the status. For token and revoke Reason is the OAuth error, such as
	// invalid_grant.
	Reason, Message string
	RetryAfter      time.Duration // the header, in whole seconds, rounded up; 0 is no header
	Delay           time.Duration
	Drop            bool // hangs up without an answer
	Hang            bool // answers nothing until the caller goes away
	// After has a call to Gmail do its work first: what is spoiled is the answer alone, as of a mail that
	// was sent and of which the caller never hears.
	After bool
	Times int // calls to spoil; 0 is all until the fault is removed

	id int
}

// AddFault adds a fault and returns the id to remove it by. It refuses what could never match or do
// anything.
func (s *Sim) AddFault(f Fault) (int, error) {
	if err := checkMethod(f.Method, true); err != nil {
		return 0, fmt.Errorf("add fault: %w", err)
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return 0, fmt.Errorf("add fault: status %d is no error; give 400 to 599", f.Status)
	}
	if f.Status == 0 && !f.Drop && !f.Hang && f.Delay <= 0 {
		return 0, fmt.Errorf("add fault: it does nothing; give a status, a delay, drop or hang")
	}
	if f.Times < 0 {
		return 0, fmt.Errorf("add fault: times is %d; give how often, or 0 for until it is removed", f.Times)
	}
	f.Mailbox = normalise(f.Mailbox)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faultID++
	f.id = s.faultID
	s.faults = append(s.faults, &f)
	return f.id, nil
}

// SpoilBy has choose say, for every call that no fault matches, by what it is spoiled; false leaves it as
// it is. Nil ends it. choose is called by many goroutines at once.
func (s *Sim) SpoilBy(choose func(Call) (Fault, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil = choose
}

// RemoveFault removes a fault; one that is spent or removed already is no error.
func (s *Sim) RemoveFault(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return f.id == id })
}

// ClearFaults removes all faults.
func (s *Sim) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func checkMethod(method string, orAll bool) error {
	if _, known := units[method]; known || orAll && method == "" {
		return nil
	}
	return fmt.Errorf("method %q is unknown; use one of %s", method, strings.Join(Methods(), ", "))
}

// takeFault returns the fault for this call, and counts it as used.
func (s *Sim) takeFault(call *Call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Method != "" && f.Method != call.Method || f.Mailbox != "" && f.Mailbox != call.Mailbox ||
			f.MessageID != "" && f.MessageID != call.MessageID {
			continue
		}
		used := *f
		if f.Times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		} else if f.Times > 1 {
			f.Times--
		}
		return &used
	}
	return nil
}

// faultOf returns the fault for this call: one that was added, or one that SpoilBy's function chooses.
func (s *Sim) faultOf(call *Call) *Fault {
	if f := s.takeFault(call); f != nil {
		return f
	}
	s.mu.Lock()
	choose := s.spoil
	s.mu.Unlock()
	if choose == nil {
		return nil
	}
	if f, spoiled := choose(*call); spoiled {
		return &f
	}
	return nil
}

// misbehave does what a fault asks for before the call's work, and reports whether that was the end of the
// call.
func (x *exchange) misbehave() bool {
	x.fault = x.sim.faultOf(x.call)
	return x.fault != nil && !x.fault.After && x.spoiledBy(x.fault)
}

// misbehaveAfter does the same after the call's work.
func (x *exchange) misbehaveAfter() bool {
	return x.fault != nil && x.fault.After && x.spoiledBy(x.fault)
}

func (x *exchange) spoiledBy(f *Fault) bool {
	switch {
	case !pause(x.r.Context(), f.Delay):
		x.nobody()
	case f.Hang:
		<-x.r.Context().Done()
		x.nobody()
	case f.Drop:
		x.hangUp()
	case f.Status != 0:
		if f.RetryAfter > 0 {
			x.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
		}
		x.refuse(f.Status, f.Reason, f.Message)
	default:
		return false
	}
	return true
}

// refuse answers with an error in the form that the method has.
func (x *exchange) refuse(status int, reason, message string) {
	if x.call.Method != "token" && x.call.Method != "revoke" {
		x.fail(&apiError{status, reason, message})
		return
	}
	if reason == "" {
		reason = "internal_failure"
		if status < 500 {
			reason = "invalid_grant"
		}
	}
	x.reply(status, oauthError{reason, message})
}

// nobody ends a call whose caller went away; the status is for no one.
func (x *exchange) nobody() { x.w.WriteHeader(http.StatusGatewayTimeout) }

// hangUp closes the connection. A part of a status line goes first: a connection that closes before
// any byte makes Go's client repeat a GET by itself, and the fault would not be seen.
func (x *exchange) hangUp() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's own way to drop a connection, where hijacking is not possible
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("HTTP/1.1"))
	_ = conn.Close()
}

// pause waits, and reports whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// apiError is an answer in the form of Google's errors.
type apiError struct {
	status          int
	reason, message string
}

func (e *apiError) Error() string { return e.message }

var (
	errNotFound = &apiError{status: http.StatusNotFound}
	errToken    = &apiError{http.StatusUnauthorized, "authError", "Request had invalid authentication credentials."}
)

func badRequest(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "invalidArgument", fmt.Sprintf(format, args...)}
}

// usual is what Google says with a status.
var usual = map[int]struct{ status, reason, message string }{
	400: {"INVALID_ARGUMENT", "invalidArgument", "Request contains an invalid argument."},
	401: {"UNAUTHENTICATED", "authError", "Request had invalid authentication credentials."},
	403: {"PERMISSION_DENIED", "insufficientPermissions", "Request had insufficient authentication scopes."},
	404: {"NOT_FOUND", "notFound", "Requested entity was not found."},
	409: {"ABORTED", "aborted", "The operation was aborted."},
	429: {"RESOURCE_EXHAUSTED", "rateLimitExceeded", "Too many concurrent requests for user."},
	500: {"INTERNAL", "backendError", "Internal error encountered."},
	503: {"UNAVAILABLE", "backendError", "The service is currently unavailable."},
	504: {"DEADLINE_EXCEEDED", "backendError", "Deadline expired before operation could complete."},
}

// body renders the error, with what Google usually says where nothing is said.
func (e *apiError) body() any {
	known := usual[e.status]
	reason := cmp.Or(e.reason, known.reason, "backendError")
	message := cmp.Or(e.message, known.message, http.StatusText(e.status))
	domain := "global"
	if strings.HasSuffix(reason, "LimitExceeded") {
		domain = "usageLimits"
	}
	type item struct {
		Message string `json:"message"`
		Domain  string `json:"domain"`
		Reason  string `json:"reason"`
	}
	type inner struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Errors  []item `json:"errors"`
		Status  string `json:"status"`
	}
	return map[string]inner{"error": {e.status, message, []item{{message, domain, reason}}, cmp.Or(known.status, "UNKNOWN")}}
}
