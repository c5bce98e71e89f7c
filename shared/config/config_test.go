package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/config"
)

// load reads an environment that is written as name, value, name, value…
func load(variables ...string) (config.Config, error) {
	env := map[string]string{}
	for i := 0; i < len(variables); i += 2 {
		env[variables[i]] = variables[i+1]
	}
	return config.Load(func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load("GOOGLE_CLOUD_PROJECT", "yard")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Project: "yard", Database: "(default)",
		GmailEndpoint: "https://gmail.googleapis.com/", OAuthTokenURL: "https://oauth2.googleapis.com/token",
		PushAuth: config.PushAuthIAM, OIDCCertsURL: "https://www.googleapis.com/oauth2/v3/certs",
		KeepBodies: true, Revision: "local",
	}
	// Variables that later functions read may come with defaults of their own.
	got := config.Config{
		Project: c.Project, Database: c.Database, GmailEndpoint: c.GmailEndpoint, OAuthTokenURL: c.OAuthTokenURL,
		PushAuth: c.PushAuth, OIDCCertsURL: c.OIDCCertsURL, KeepBodies: c.KeepBodies, Revision: c.Revision,
		OAuthClientID: c.OAuthClientID, OAuthClientSecret: c.OAuthClientSecret, KeysetFile: c.KeysetFile,
		PushAudience: c.PushAudience, PushServiceAccount: c.PushServiceAccount,
		PubSubEmulator: c.PubSubEmulator, FirestoreEmulator: c.FirestoreEmulator,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestEveryVariableIsRead(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name, value, want string
		of                func(config.Config) string
	}{
		{"FIRESTORE_DATABASE", " mail ", "mail", func(c config.Config) string { return c.Database }},
		{"FIRESTORE_DATABASE", "  ", "(default)", func(c config.Config) string { return c.Database }},
		{"PUBSUB_EMULATOR_HOST", "127.0.0.1:8085", "127.0.0.1:8085", func(c config.Config) string { return c.PubSubEmulator }},
		{"FIRESTORE_EMULATOR_HOST", "127.0.0.1:8086", "127.0.0.1:8086", func(c config.Config) string { return c.FirestoreEmulator }},
		{"MAILYARD_GMAIL_ENDPOINT", "http://127.0.0.1:9", "http://127.0.0.1:9/", func(c config.Config) string { return c.GmailEndpoint }},
		{"MAILYARD_GMAIL_ENDPOINT", "http://127.0.0.1:9/sim/", "http://127.0.0.1:9/sim/", func(c config.Config) string { return c.GmailEndpoint }},
		{"MAILYARD_OAUTH_TOKEN_URL", "http://127.0.0.1:9/token", "http://127.0.0.1:9/token", func(c config.Config) string { return c.OAuthTokenURL }},
		{"MAILYARD_OAUTH_CLIENT_ID", "id", "id", func(c config.Config) string { return c.OAuthClientID }},
		{"MAILYARD_OAUTH_CLIENT_SECRET", "secret", "secret", func(c config.Config) string { return c.OAuthClientSecret }},
		{"MAILYARD_KEYSET_FILE", "/k.json", "/k.json", func(c config.Config) string { return c.KeysetFile }},
		{"MAILYARD_PUSH_AUTH", "oidc", "oidc", func(c config.Config) string { return string(c.PushAuth) }},
		{"MAILYARD_PUSH_AUDIENCE", "yard", "yard", func(c config.Config) string { return c.PushAudience }},
		{"MAILYARD_PUSH_SERVICE_ACCOUNT", "push@yard.iam.gserviceaccount.com", "push@yard.iam.gserviceaccount.com", func(c config.Config) string { return c.PushServiceAccount }},
		{"MAILYARD_OIDC_CERTS_URL", "http://127.0.0.1:9/certs", "http://127.0.0.1:9/certs", func(c config.Config) string { return c.OIDCCertsURL }},
		{"MAILYARD_CONTENT", "headers", "false", func(c config.Config) string { return map[bool]string{true: "true", false: "false"}[c.KeepBodies] }},
		{"K_REVISION", "ingest-00007", "ingest-00007", func(c config.Config) string { return c.Revision }},
	} {
		t.Run(v.name+" "+v.value, func(t *testing.T) {
			t.Parallel()
			c, err := load("GOOGLE_CLOUD_PROJECT", "yard", v.name, v.value)
			if err != nil {
				t.Fatal(err)
			}
			if got := v.of(c); got != v.want {
				t.Errorf("read as %q, want %q", got, v.want)
			}
		})
	}
}

func TestMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := load(
		"MAILYARD_GMAIL_ENDPOINT", "gmail.googleapis.com",
		"MAILYARD_OAUTH_TOKEN_URL", "ftp://secret.example/token",
		"MAILYARD_OIDC_CERTS_URL", "://",
		"MAILYARD_PUSH_AUTH", "none",
		"MAILYARD_CONTENT", "some",
	)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"GOOGLE_CLOUD_PROJECT is not set", "MAILYARD_GMAIL_ENDPOINT is not", "MAILYARD_OAUTH_TOKEN_URL is not",
		"MAILYARD_OIDC_CERTS_URL is not", "MAILYARD_PUSH_AUTH is none of iam, oidc, off", "MAILYARD_CONTENT is none of full, headers",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%q is not said once in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows a value:\n%v", err)
	}
}

func TestPushAuthOffNeedsTheEmulator(t *testing.T) {
	t.Parallel()
	if _, err := load("GOOGLE_CLOUD_PROJECT", "yard", "MAILYARD_PUSH_AUTH", "off"); err == nil || !strings.Contains(err.Error(), "PUBSUB_EMULATOR_HOST") {
		t.Errorf("off without the emulator: %v", err)
	}
	if _, err := load("GOOGLE_CLOUD_PROJECT", "yard", "MAILYARD_PUSH_AUTH", "off", "FIRESTORE_EMULATOR_HOST", "127.0.0.1:1"); err == nil {
		t.Error("off with the wrong emulator is accepted")
	}
	c, err := load("GOOGLE_CLOUD_PROJECT", "yard", "MAILYARD_PUSH_AUTH", "off", "PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
	if err != nil || c.PushAuth != config.PushAuthOff || c.CheckPush() != nil {
		t.Errorf("off with the emulator: %v, %v", err, c.CheckPush())
	}
}

func TestCheckPush(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config config.Config
		want   string
	}{
		{"iam, no account", config.Config{PushAuth: config.PushAuthIAM}, "MAILYARD_PUSH_SERVICE_ACCOUNT"},
		{"iam, no audience", config.Config{PushAuth: config.PushAuthIAM, PushServiceAccount: "push"}, ""},
		{"oidc, no account", config.Config{PushAuth: config.PushAuthOIDC, PushAudience: "yard"}, "MAILYARD_PUSH_SERVICE_ACCOUNT"},
		{"oidc, no audience", config.Config{PushAuth: config.PushAuthOIDC, PushServiceAccount: "push"}, "MAILYARD_PUSH_AUDIENCE"},
		{"oidc", config.Config{PushAuth: config.PushAuthOIDC, PushServiceAccount: "push", PushAudience: "yard"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.config.CheckPush()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one about %q", err, c.want)
			}
		})
	}
}

func TestCheckGmail(t *testing.T) {
	t.Parallel()
	err := config.Config{}.CheckGmail()
	for _, name := range []string{"MAILYARD_OAUTH_CLIENT_ID", "MAILYARD_OAUTH_CLIENT_SECRET", "MAILYARD_KEYSET_FILE"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in %v", name, err)
		}
	}
	if err := (config.Config{OAuthClientID: "i", OAuthClientSecret: "s", KeysetFile: "k"}).CheckGmail(); err != nil {
		t.Error(err)
	}
}
