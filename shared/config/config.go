// Package config reads the environment: all of it, once, in one place. Every mistake is reported
// together, each in a sentence that says what to write.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A PushAuth says how the token of a push is checked.
type PushAuth string

// The ways of checking a push's token.
const (
	// PushAuthIAM is for Cloud Run, which has verified the token and cut its signature off.
	PushAuthIAM PushAuth = "iam"
	// PushAuthOIDC is for running elsewhere: signature and claims are verified here.
	PushAuthOIDC PushAuth = "oidc"
	// PushAuthOff checks nothing; only together with the Pub/Sub emulator.
	PushAuthOff PushAuth = "off"
)

// Config is the environment, read and checked.
type Config struct {
	Project  string // GOOGLE_CLOUD_PROJECT
	Database string // FIRESTORE_DATABASE

	PubSubEmulator    string // PUBSUB_EMULATOR_HOST, read by the client library too
	FirestoreEmulator string // FIRESTORE_EMULATOR_HOST, likewise

	GmailEndpoint     string // MAILYARD_GMAIL_ENDPOINT, ends with a slash
	OAuthTokenURL     string // MAILYARD_OAUTH_TOKEN_URL
	OAuthClientID     string // MAILYARD_OAUTH_CLIENT_ID; only functions that call Gmail have it
	OAuthClientSecret string // MAILYARD_OAUTH_CLIENT_SECRET; likewise
	KeysetFile        string // MAILYARD_KEYSET_FILE; likewise

	PushAuth           PushAuth // MAILYARD_PUSH_AUTH
	PushAudience       string   // MAILYARD_PUSH_AUDIENCE; empty: any
	PushServiceAccount string   // MAILYARD_PUSH_SERVICE_ACCOUNT
	OIDCCertsURL       string   // MAILYARD_OIDC_CERTS_URL

	// Lanes are the optional lanes that are on: MAILYARD_LANES, their keys parted by commas.
	Lanes []string
	// KeepBodies is false where MAILYARD_CONTENT is "headers".
	KeepBodies bool
	// Revision is K_REVISION, by which Cloud Run names what is running; "local" elsewhere.
	Revision string
}

// A Lookup finds a variable, as os.LookupEnv does.
type Lookup func(name string) (value string, ok bool)

// Load reads the environment. The error, if any, joins a sentence for each mistake.
func Load(lookup Lookup) (Config, error) {
	r := reader{lookup: lookup}
	c := Config{
		Project:            r.text("GOOGLE_CLOUD_PROJECT", ""),
		Database:           r.text("FIRESTORE_DATABASE", "(default)"),
		PubSubEmulator:     r.text("PUBSUB_EMULATOR_HOST", ""),
		FirestoreEmulator:  r.text("FIRESTORE_EMULATOR_HOST", ""),
		GmailEndpoint:      strings.TrimSuffix(r.url("MAILYARD_GMAIL_ENDPOINT", "https://gmail.googleapis.com"), "/") + "/",
		OAuthTokenURL:      r.url("MAILYARD_OAUTH_TOKEN_URL", "https://oauth2.googleapis.com/token"),
		OAuthClientID:      r.text("MAILYARD_OAUTH_CLIENT_ID", ""),
		OAuthClientSecret:  r.text("MAILYARD_OAUTH_CLIENT_SECRET", ""),
		KeysetFile:         r.text("MAILYARD_KEYSET_FILE", ""),
		PushAuth:           PushAuth(r.oneOf("MAILYARD_PUSH_AUTH", string(PushAuthIAM), string(PushAuthOIDC), string(PushAuthOff))),
		PushAudience:       r.text("MAILYARD_PUSH_AUDIENCE", ""),
		PushServiceAccount: r.text("MAILYARD_PUSH_SERVICE_ACCOUNT", ""),
		OIDCCertsURL:       r.url("MAILYARD_OIDC_CERTS_URL", "https://www.googleapis.com/oauth2/v3/certs"),
		Lanes:              r.list("MAILYARD_LANES"),
		KeepBodies:         r.oneOf("MAILYARD_CONTENT", "full", "headers") == "full",
		Revision:           r.text("K_REVISION", "local"),
	}
	if c.Project == "" {
		r.refuse("GOOGLE_CLOUD_PROJECT is not set; write the id of the Google Cloud project")
	}
	if c.PushAuth == PushAuthOff && c.PubSubEmulator == "" {
		r.refuse("MAILYARD_PUSH_AUTH is off, which is accepted only together with PUBSUB_EMULATOR_HOST; write iam or oidc")
	}
	return c, errors.Join(r.errs...)
}

// CheckPush refuses a configuration that cannot tell whose pushes to take. An operator's shell takes
// none, and need not know.
func (c Config) CheckPush() error {
	switch {
	case c.PushAuth != PushAuthOff && c.PushServiceAccount == "":
		return errors.New("MAILYARD_PUSH_SERVICE_ACCOUNT is not set; write the address of the service account that pushes")
	case c.PushAuth == PushAuthOIDC && c.PushAudience == "":
		return errors.New("MAILYARD_PUSH_AUDIENCE is not set; with MAILYARD_PUSH_AUTH=oidc write the audience of the push subscriptions")
	}
	return nil
}

// CheckGmail refuses a configuration that cannot call Gmail.
func (c Config) CheckGmail() error {
	var errs []error
	for name, value := range map[string]string{
		"MAILYARD_OAUTH_CLIENT_ID":     c.OAuthClientID,
		"MAILYARD_OAUTH_CLIENT_SECRET": c.OAuthClientSecret,
		"MAILYARD_KEYSET_FILE":         c.KeysetFile,
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set, and without it Gmail cannot be called", name))
		}
	}
	return errors.Join(errs...)
}

type reader struct {
	lookup Lookup
	errs   []error
}

func (r *reader) refuse(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *reader) text(name, otherwise string) string {
	if value, ok := r.lookup(name); ok && strings.TrimSpace(value) != "" {
		return strings.TrimSpace(value)
	}
	return otherwise
}

// list reads words that are parted by commas.
func (r *reader) list(name string) []string {
	return strings.FieldsFunc(r.text(name, ""), func(c rune) bool { return c == ',' || c == ' ' })
}

func (r *reader) url(name, otherwise string) string {
	value := r.text(name, otherwise)
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		r.refuse("%s is not an http or https URL", name)
	}
	return value
}

// oneOf returns the variable's value; the first of the words is the default.
func (r *reader) oneOf(name string, words ...string) string {
	value := r.text(name, words[0])
	for _, word := range words {
		if value == word {
			return value
		}
	}
	r.refuse("%s is none of %s", name, strings.Join(words, ", "))
	return words[0]
}
