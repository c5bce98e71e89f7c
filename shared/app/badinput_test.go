package app_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// Content that can never be read is kept whole as a dead letter, and acknowledged: no panic, no
// endless redelivery, no loss.
func TestUnreadableContentBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	event := func(lane string) ([]byte, map[string]string) {
		return y.Encode(mail.Event{AccountID: "a1", MessageID: "m1", Lane: lane, HistoryID: 5})
	}
	push := func(data []byte, attributes map[string]string) []byte {
		return y.Body(apptest.Push{Data: data, Attributes: attributes, MessageID: fmt.Sprint(time.Now().UnixNano()), Attempt: 1})
	}
	readData, readAttributes := event("message-read")
	wrongType := map[string]string{}
	for name, value := range readAttributes {
		wrongType[name] = value
	}
	wrongType["ce-type"] = "com.example.other.v1"
	unreadData, unreadAttributes := event("message-unread")
	bodies := map[string][]byte{
		"no body":                   nil,
		"text":                      []byte("hello"),
		"JSON of another shape":     []byte(`{"a": [1, 2]}`),
		"a JSON array":              []byte(`[]`),
		"null":                      []byte(`null`),
		"a message of another type": []byte(`{"message": "text"}`),
		"base64 of nothing":         push(nil, nil),
		"no base64":                 []byte(`{"message": {"data": "%%%"}}`),
		"binary":                    {0xff, 0xfe, 0x00, 0x80},
		"a wrong ce-type":           push(readData, wrongType),
	}
	for _, entryPoint := range []string{"Ingest", "MessageAdded", "MessageRead", "MessageUnread", "MessageTrashed", "MessageRestored", "MessagePermanentlyDeleted"} {
		bodies["another lane's event"] = push(unreadData, unreadAttributes)
		if entryPoint == "MessageUnread" {
			bodies["another lane's event"] = push(readData, readAttributes)
		}
		for name, body := range bodies {
			if status := y.PostBody(entryPoint, body, nil); status != http.StatusNoContent {
				t.Errorf("%s, given %s, answered %d", entryPoint, name, status)
			}
		}
		route := routeOf(t, y, entryPoint)
		letters := y.Pull(route.InspectSubscription())
		if len(letters) != len(bodies) {
			t.Errorf("%s: %d dead letters for %d bodies", entryPoint, len(letters), len(bodies))
		}
		kept := map[string]bool{}
		for _, letter := range letters {
			kept[string(letter.Data)] = true
			if letter.Attributes["dead-letter-code"] != "malformed" {
				t.Errorf("%s: the letter says %v", entryPoint, letter.Attributes)
			}
		}
		for _, name := range []string{"text", "binary", "null"} {
			if !kept[string(bodies[name])] {
				t.Errorf("%s: the raw bytes of %s are not kept", entryPoint, name)
			}
		}
		// The same again is known already.
		if status := y.PostBody(entryPoint, bodies["text"], nil); status != http.StatusNoContent || len(y.Pull(route.InspectSubscription())) != 0 {
			t.Errorf("%s: the same body again answered %d, or made another letter", entryPoint, status)
		}
	}
	for _, e := range y.Entries() {
		if e.State != ledger.Dead || e.Attempts != 1 && e.Attempts != 2 {
			t.Errorf("%s is %s after %d attempts", e.ID, e.State, e.Attempts)
		}
	}
	if n := len(y.Gmail.Calls()); n != 0 {
		t.Errorf("%d Gmail calls", n)
	}
	checkSecrets(t, y)
}

// A letter that cannot be read is kept in the ledger as raw bytes, and never dead-lettered itself.
func TestUnreadableLetterIsKept(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	for i, body := range [][]byte{nil, []byte("hello"), []byte(`{"message":{"data":"%"}}`), []byte(`[]`)} {
		if status := y.PostBody("DeadLetter", body, nil); status != http.StatusNoContent {
			t.Errorf("body %d answered %d", i, status)
		}
	}
	entries := y.Entries()
	if len(entries) != 4 {
		t.Fatalf("the ledger has %d entries, want 4", len(entries))
	}
	for _, e := range entries {
		if e.State != ledger.Dead || e.Code != "malformed" {
			t.Errorf("the entry is %+v", e)
		}
	}
}

// An event of an account that is gone helps nobody by coming back.
func TestUnknownAccountIsPermanent(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	for _, l := range y.Catalogue.Lanes {
		data, attributes := y.Encode(mail.Event{AccountID: "nobody", MessageID: "m1", Lane: l.Key, HistoryID: 5})
		if status := y.Post(l.EntryPoint, apptest.Push{Data: data, Attributes: attributes, Attempt: 1}); status != http.StatusNoContent {
			t.Errorf("%s answered %d", l.EntryPoint, status)
		}
		if letters := y.Pull(l.Route().InspectSubscription()); len(letters) != 1 || letters[0].Attributes["dead-letter-code"] != "account_gone" {
			t.Errorf("%s: the letters are %v", l.EntryPoint, letters)
		}
		if messages, err := y.DB.Messages(t.Context(), "nobody"); err != nil || len(messages) != 0 {
			t.Errorf("%s left %v behind (%v)", l.EntryPoint, messages, err)
		}
	}
}

// Method, token and size are refused with a 4xx, and nothing is touched.
func TestRefusedBeforeAnythingIsRead(t *testing.T) {
	t.Parallel()
	const pusher = "push@project.iam.gserviceaccount.com"
	y := apptest.New(t, apptest.Options{Env: map[string]string{
		"MAILYARD_PUSH_AUTH": "iam", "MAILYARD_PUSH_SERVICE_ACCOUNT": pusher, "MAILYARD_PUSH_AUDIENCE": "https://mailyard.example",
	}})
	soon := time.Now().Add(time.Hour).Unix()
	good := fmt.Sprintf(`{"iss":"https://accounts.google.com","aud":"https://mailyard.example","email":%q,"email_verified":true,"exp":%d}`, pusher, soon)
	tokens := map[string]struct {
		claims string
		status int
	}{
		"no token":       {"", http.StatusUnauthorized},
		"not a token":    {"rubbish", http.StatusUnauthorized},
		"expired":        {strings.Replace(good, fmt.Sprint(soon), "1000", 1), http.StatusUnauthorized},
		"wrong audience": {strings.Replace(good, "https://mailyard.example", "https://other.example", 1), http.StatusUnauthorized},
		"wrong account":  {strings.Replace(good, pusher, "someone@example.com", 1), http.StatusForbidden},
		"wrong issuer":   {strings.Replace(good, "https://accounts.google.com", "https://evil.example", 1), http.StatusUnauthorized},
	}
	for _, entryPoint := range []string{"Ingest", "MessageAdded", "MessageRead", "MessagePermanentlyDeleted", "DeadLetter"} {
		for name, token := range tokens {
			if status := y.PostBody(entryPoint, []byte(`{"message":{"data":"aGk="}}`), bearer(token.claims)); status != token.status {
				t.Errorf("%s with %s answered %d, want %d", entryPoint, name, status, token.status)
			}
		}
		if status := y.PostBody(entryPoint, bytes.Repeat([]byte("x"), 20<<20), bearer(good)); status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s, given 20 MiB, answered %d", entryPoint, status)
		}
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			request, err := http.NewRequestWithContext(t.Context(), method, y.Functions.URL+"/"+entryPoint, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header = bearer(good)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s answered %d", method, entryPoint, response.StatusCode)
			}
		}
	}
	for _, method := range []string{"BatchGetDocuments", "Commit", "RunQuery", "Publish"} {
		for _, consumer := range []string{"", "Ingest", "MessageAdded", "MessageRead", "DeadLetter"} {
			if n := y.Meter.Calls(consumer, method); n != 0 {
				t.Errorf("%s was called %d times for %q", method, n, consumer)
			}
		}
	}
	// The same with a good token comes in: its content is what is refused then.
	if status := y.PostBody("MessageRead", []byte("hello"), bearer(good)); status != http.StatusNoContent {
		t.Errorf("a good token was answered %d", status)
	}
	checkSecrets(t, y)
}

// bearer makes the header that a function sees behind Cloud Run, which has cut the signature off.
func bearer(claims string) http.Header {
	switch claims {
	case "":
		return http.Header{}
	case "rubbish":
		return http.Header{"Authorization": {"Bearer rubbish"}}
	}
	encode := base64.RawURLEncoding.EncodeToString
	return http.Header{"Authorization": {"Bearer " + encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode([]byte(claims)) + ".SIGNATURE_REMOVED_BY_GOOGLE"}}
}
