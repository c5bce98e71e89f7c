package app_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// After a run in which mailboxes were linked, refreshed, failed and were unlinked, neither token nor key
// is in any log, page, place a browser was sent to, message or document.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	var taps []string
	for _, r := range y.Catalogue.Routes() {
		taps = append(taps, y.Tap(r.Topic), y.Tap(r.DeadLetterTopic()))
	}
	taps = append(taps, y.Tap("mailbox-changes"))
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "1//secret-of-kim")
	box.RotateRefreshTokens(true)
	y.Gmail.Delegate(apptest.DelegationServiceAccount, "example.org")
	addMailbox(t, y, "bo@example.org", "1//secret-of-bo")

	// What the person and Google exchange.
	secrets := map[string]string{"connect key": apptest.ConnectKey, "client secret": y.Env["MAILYARD_OAUTH_CLIENT_SECRET"], "refresh token": "1//", "access token": "ya29."}
	b := newBrowser(t)
	protocol := map[string]bool{} // Google's pages, whose URLs hold what OAuth says they must
	visit := func(answer, returnTo string) {
		link := linkFor(t, y, "u-17", returnTo)
		begun := b.open(link)
		back := b.open(begun.to + "&" + url.Values{"account": {"kim@example.com"}, "answer": {answer}}.Encode())
		protocol[begun.to] = true
		addQuery(t, secrets, link, "ticket")
		addQuery(t, secrets, back.to, "state")
		addQuery(t, secrets, back.to, "code")
		b.open(back.to)
		b.open(back.to)
		newBrowser(t).open(back.to)
		b.open(link)
	}
	visit("deny", "")
	down, err := y.Gmail.AddFault(gmailsim.Fault{Method: "token", Status: 500, Message: "1//secret-in-a-body"})
	if err != nil {
		t.Fatal(err)
	}
	visit("allow", "https://app.example.com/")
	y.Gmail.RemoveFault(down)
	visit("allow", "https://app.example.com/")
	visit("allow", "")
	home, err := url.Parse(y.Functions.URL + "/Connect")
	if err != nil {
		t.Fatal(err)
	}
	cookies := b.client.Jar.Cookies(home)
	if len(cookies) == 0 {
		t.Fatal("the browser has no cookie")
	}
	for _, c := range cookies {
		secrets["cookie "+c.Name] = c.Value
	}

	// What Mailyard then does by itself: fetches, refreshes, fails.
	account := y.Account(mail.AccountID("u-17", "kim@example.com"))
	deliverMany(t, box, 3)
	y.Settle()
	box.ExpireAccessTokens()
	deliverMany(t, box, 2)
	y.Settle()
	y.AssertMirror(account.ID, box)
	delegated := linkDelegated(t, y, "u-18", "bo@example.org")
	for _, f := range []gmailsim.Fault{{Method: "token", Status: 400, Reason: "invalid_client", Message: "1//secret-in-a-body"}, {Method: "token", Status: 500}} {
		id, err := y.Gmail.AddFault(f)
		if err != nil {
			t.Fatal(err)
		}
		box.ExpireAccessTokens()
		deliverMany(t, box, 1)
		y.Settle()
		y.Gmail.RemoveFault(id)
	}
	box.Revoke()
	deliverMany(t, box, 1)
	y.Settle()
	if _, err := unlink(t, y, delegated.ID, nil); err != nil {
		t.Fatal(err)
	}
	y.Tick()
	y.Settle()

	for _, value := range keyMaterial(t, y.Env["MAILYARD_KEYSET_FILE"]) {
		secrets["key "+value[:4]] = value
	}
	look := func(where, text string) {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the %s: %.300q", where, name, text)
			}
		}
	}
	look("the log", y.Log.String())
	for _, s := range b.seen {
		if !protocol[s] {
			look("a page or redirect", s)
		}
	}
	docs := documents(t, y.Project, "")
	if len(docs) < 10 {
		t.Errorf("only %d documents were looked at", len(docs))
	}
	for path, text := range docs {
		look(path, path+text)
	}
	messages := 0
	for _, tap := range taps {
		for _, m := range y.Pull(tap) {
			messages++
			look(tap, string(m.Data))
			for name, value := range m.Attributes {
				look(tap, name+"="+value)
			}
		}
	}
	t.Logf("looked for %d secrets in %d bytes of log, %d pages, %d documents, %d messages", len(secrets), len(y.Log.String()), len(b.seen), len(docs), messages)
}

func addQuery(t *testing.T, secrets map[string]string, link, name string) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	if value := u.Query().Get(name); value != "" {
		secrets[name+" "+value] = value
	}
}

// keyMaterial returns the bytes of a keyset's keys, as they are and in base64.
func keyMaterial(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var keyset struct {
		Key []struct {
			KeyData struct{ Value string }
		}
	}
	if err := json.Unmarshal(data, &keyset); err != nil || len(keyset.Key) == 0 {
		t.Fatalf("no key in the keyset: %v", err)
	}
	var values []string
	for _, k := range keyset.Key {
		raw, err := base64.StdEncoding.DecodeString(k.KeyData.Value)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, k.KeyData.Value, string(raw[len(raw)-32:]))
	}
	return values
}
