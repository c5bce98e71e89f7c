package terraform_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// rulesEmulator is the Firestore emulator under the product's rules. They hold for a whole project, so it
// has one of its own.
type rulesEmulator struct {
	t             *testing.T
	host, project string
}

func newRulesEmulator(t *testing.T) rulesEmulator {
	t.Helper()
	host := os.Getenv("FIRESTORE_EMULATOR_HOST")
	if host == "" {
		t.Skip("needs the emulators: run make test")
	}
	e := rulesEmulator{t, host, "rules-" + strings.ToLower(rand.Text()[:12])}
	rules, err := os.ReadFile("firestore.rules")
	if err != nil {
		t.Fatal(err)
	}
	type file struct {
		Name    string `json:"name"`
		Content string `json:"content"`
	}
	body := map[string]any{"rules": map[string]any{"files": []file{{"firestore.rules", string(rules)}}}}
	if status, answer := e.call(http.MethodPut, "/emulator/v1/projects/"+e.project+":securityRules", "", body); status != http.StatusOK {
		t.Fatalf("the emulator does not take the rules: %d %s", status, answer)
	}
	return e
}

func (e rulesEmulator) call(method, path, token string, body any) (int, string) {
	e.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		e.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(e.t.Context(), method, "http://"+e.host+path, bytes.NewReader(data))
	if err != nil {
		e.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func (e rulesEmulator) documents() string {
	return "/v1/projects/" + e.project + "/databases/(default)/documents"
}

// admin is let through whatever the rules say, as server libraries are.
const admin = "owner"

// user is a signed-in user's token; the emulator takes it without a signature. Nobody has none.
func (e rulesEmulator) user(uid string) string {
	if uid == "" {
		return ""
	}
	encode := func(v map[string]any) string {
		data, err := json.Marshal(v)
		if err != nil {
			e.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return encode(map[string]any{"alg": "none", "typ": "JWT"}) + "." + encode(map[string]any{
		"iss": "https://securetoken.google.com/" + e.project, "aud": e.project, "sub": uid, "user_id": uid, "iat": 1, "exp": 1 << 40,
	}) + "."
}

func text(s string) map[string]any { return map[string]any{"stringValue": s} }

func TestRules(t *testing.T) {
	t.Parallel()
	e := newRulesEmulator(t)
	owned := []string{"accounts/a", "accounts/a/messages/m", "accounts/a/messages/m/parts/body", "accounts/a/labels/Label_1"}
	hidden := []string{
		"accounts/a/resyncs/r", "accounts/a/resyncs/r/listed/000000", "credentials/a", "failures/a.message-read.m.7", "redrives/o",
		"subscribers/s", "mailings/s.1", "mailingRuns/2026-12-01", "connects/c", "removals/a", "alerts/k", "anything/else",
	}
	for _, path := range append(owned, hidden...) {
		fields := map[string]any{"owner": text("kim"), "accountId": text("a")}
		if status, answer := e.call(http.MethodPatch, e.documents()+"/"+path, admin, map[string]any{"fields": fields}); status != http.StatusOK {
			t.Fatalf("write %s: %d %s", path, status, answer)
		}
	}

	expect := func(uid, method, path string, body any, want int) {
		t.Helper()
		if status, answer := e.call(method, e.documents()+path, e.user(uid), body); status != want {
			t.Errorf("%q: %s %s was answered %d, want %d: %s", uid, method, path, status, want, answer)
		}
	}
	for _, path := range owned {
		expect("kim", http.MethodGet, "/"+path, nil, http.StatusOK)
		expect("alex", http.MethodGet, "/"+path, nil, http.StatusForbidden)
		expect("", http.MethodGet, "/"+path, nil, http.StatusForbidden)
	}
	for _, path := range hidden {
		for _, uid := range []string{"kim", "alex", ""} {
			expect(uid, http.MethodGet, "/"+path, nil, http.StatusForbidden)
		}
	}
	for _, path := range append(owned, hidden...) {
		for _, uid := range []string{"kim", "alex", ""} {
			expect(uid, http.MethodPatch, "/"+path, map[string]any{"fields": map[string]any{"owner": text(uid)}}, http.StatusForbidden)
			expect(uid, http.MethodDelete, "/"+path, nil, http.StatusForbidden)
		}
	}
	expect("kim", http.MethodPatch, "/accounts/new", map[string]any{"fields": map[string]any{"owner": text("kim")}}, http.StatusForbidden)
	expect("kim", http.MethodGet, "/accounts/nobody/messages/m", nil, http.StatusForbidden)

	// Listing
	expect("kim", http.MethodGet, "/accounts/a/messages", nil, http.StatusOK)
	expect("alex", http.MethodGet, "/accounts/a/messages", nil, http.StatusForbidden)
	expect("kim", http.MethodGet, "/accounts", nil, http.StatusForbidden)
	expect("kim", http.MethodGet, "/failures", nil, http.StatusForbidden)
	accountsOf := func(owner string) any {
		return map[string]any{"structuredQuery": map[string]any{
			"from": []any{map[string]any{"collectionId": "accounts"}},
			"where": map[string]any{"fieldFilter": map[string]any{
				"field": map[string]any{"fieldPath": "owner"}, "op": "EQUAL", "value": text(owner),
			}},
		}}
	}
	expect("kim", http.MethodPost, ":runQuery", accountsOf("kim"), http.StatusOK)
	expect("alex", http.MethodPost, ":runQuery", accountsOf("kim"), http.StatusForbidden)
	everyMessage := map[string]any{"structuredQuery": map[string]any{
		"from": []any{map[string]any{"collectionId": "messages", "allDescendants": true}},
	}}
	expect("kim", http.MethodPost, ":runQuery", everyMessage, http.StatusForbidden)
}
