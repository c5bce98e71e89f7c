package gmailapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

const rawMail = "From: a@example.com\r\nTo: b@example.com\r\nSubject: s\r\n\r\nbody"

// Whatever becomes of a send, the error tells what is certain of it, and it is called once.
func TestSendTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault gmailsim.Fault
		times int // the fault comes; 0 is for good
		sent  int // mails that really went out
		calls int
		want  *SendError // nil for success
	}{
		{"taken", gmailsim.Fault{Delay: time.Millisecond}, 0, 1, 1, nil},
		{"429", gmailsim.Fault{Status: 429}, 0, 0, 1, &SendError{Status: 429, Connected: true, Reason: "rateLimitExceeded"}},
		{"403 throttled", gmailsim.Fault{Status: 403, Reason: "dailyLimitExceeded"}, 0, 0, 1, &SendError{Status: 403, Reason: "dailyLimitExceeded", Connected: true}},
		{"403", gmailsim.Fault{Status: 403}, 0, 0, 1, &SendError{Status: 403, Reason: "insufficientPermissions", Connected: true}},
		{"400", gmailsim.Fault{Status: 400}, 0, 0, 1, &SendError{Status: 400, Reason: "invalidArgument", Connected: true}},
		{"401 once", gmailsim.Fault{Status: 401}, 1, 1, 2, nil},
		{"401 for good", gmailsim.Fault{Status: 401}, 0, 0, 2, &SendError{Status: 401, Reason: "authError", Connected: true}},
		{"500 without sending", gmailsim.Fault{Status: 500}, 0, 0, 1, &SendError{Status: 500, Reason: "backendError", Connected: true}},
		{"503 after sending", gmailsim.Fault{Status: 503, After: true}, 0, 1, 1, &SendError{Status: 503, Reason: "backendError", Connected: true}},
		{"cut off without sending", gmailsim.Fault{Drop: true}, 0, 0, 1, &SendError{Connected: true}},
		{"cut off after sending", gmailsim.Fault{Drop: true, After: true}, 0, 1, 1, &SendError{Connected: true}},
		{"timed out without sending", gmailsim.Fault{Hang: true}, 0, 0, 1, &SendError{Connected: true}},
		{"timed out after sending", gmailsim.Fault{Hang: true, After: true}, 0, 1, 1, &SendError{Connected: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sim, client := sendingClient(t)
			c.fault.Method, c.fault.Times = "messages.send", c.times
			if _, err := sim.AddFault(c.fault); err != nil {
				t.Fatal(err)
			}
			checkSend(t, client.Send(t.Context(), "acc", []byte(rawMail)), c.want)
			if sent, calls := len(sim.Sent()), len(sim.Calls("messages.send")); sent != c.sent || calls != c.calls {
				t.Errorf("%d mails went out by %d calls, want %d by %d", sent, calls, c.sent, c.calls)
			}
		})
	}
}

func checkSend(t *testing.T, err error, want *SendError) {
	t.Helper()
	var got *SendError
	switch {
	case want == nil && err != nil, want != nil && !errors.As(err, &got):
		t.Fatalf("got %v, want %+v", err, want)
	case want == nil:
		return
	}
	if got.Status != want.Status || got.Reason != want.Reason || got.Connected != want.Connected || got.GrantLost != want.GrantLost {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if strings.Contains(fault.Text(err), "example.com") {
		t.Errorf("the error has an address: %v", err)
	}
}

// What fails before there is a connection has certainly not been sent.
func TestSendWithoutAConnection(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		_, client := sendingClient(t)
		client.sender.Transport.(*transport).base = witness{&http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, syscall.ECONNREFUSED
		}}}
		checkSend(t, client.Send(t.Context(), "acc", []byte(rawMail)), &SendError{})
	})
	t.Run("no token", func(t *testing.T) {
		t.Parallel()
		sim, client := sendingClient(t)
		if _, err := sim.AddFault(gmailsim.Fault{Method: "token", Status: 503}); err != nil {
			t.Fatal(err)
		}
		checkSend(t, client.Send(t.Context(), "acc", []byte(rawMail)), &SendError{})
	})
	t.Run("the grant is lost", func(t *testing.T) {
		t.Parallel()
		sim, client := sendingClient(t)
		box, _ := sim.Mailbox("sender@example.com")
		box.Revoke()
		checkSend(t, client.Send(t.Context(), "acc", []byte(rawMail)), &SendError{GrantLost: true})
	})
	t.Run("the units of the minute are used up", func(t *testing.T) {
		t.Parallel()
		sim, client := sendingClient(t)
		client.quotas = newQuotas(leastPerUser, time.Now) // a burst of one send, and 12 seconds to the next
		checkSend(t, client.Send(t.Context(), "acc", []byte(rawMail)), nil)
		err := client.Send(t.Context(), "acc", []byte(rawMail))
		checkSend(t, err, &SendError{})
		if at, named := fault.RetryAt(err); !named || time.Until(at) < time.Second || len(sim.Sent()) != 1 {
			t.Errorf("the moment is %v, and %d mails went out", at, len(sim.Sent()))
		}
	})
}

func sendingClient(t *testing.T) (*gmailsim.Sim, *Client) {
	t.Helper()
	sim := gmailsim.New(gmailsim.Config{})
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	if _, err := sim.AddMailbox("sender@example.com", "refresh"); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"GOOGLE_CLOUD_PROJECT": "p", "MAILYARD_GMAIL_ENDPOINT": server.URL, "MAILYARD_OAUTH_TOKEN_URL": server.URL + "/token",
		"MAILYARD_OAUTH_CLIENT_ID": "client", "MAILYARD_OAUTH_CLIENT_SECRET": "secret",
	}
	c, err := config.Load(func(name string) (string, bool) { value, ok := env[name]; return value, ok })
	if err != nil {
		t.Fatal(err)
	}
	token := &held{credential: mail.Credential{Kind: mail.CredentialOAuth, Secret: []byte("refresh")}}
	client, err := New(c, unmarked{}, token, unsealed{}, time.Now, WithQuota(1e9), WithSendTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return sim, client
}
