// Package config reads the environment: all of it, once, in one place. Every mistake is reported
// together, each in a sentence that says what to write.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the platform's image need not have the zones
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
	OAuthAuthURL      string // MAILYARD_OAUTH_AUTH_URL
	OAuthTokenURL     string // MAILYARD_OAUTH_TOKEN_URL
	OAuthRevokeURL    string // MAILYARD_OAUTH_REVOKE_URL
	OAuthClientID     string // MAILYARD_OAUTH_CLIENT_ID; only functions that call Gmail have it
	OAuthClientSecret string // MAILYARD_OAUTH_CLIENT_SECRET; likewise
	// DelegationServiceAccount signs for mailboxes of domains that have delegated them to it:
	// MAILYARD_DELEGATION_SERVICE_ACCOUNT. Empty where no domain has.
	DelegationServiceAccount string
	Keyset                   string // MAILYARD_KEYSET, wrapped; only functions that call Gmail have it
	KMSKey                   string // MAILYARD_KMS_KEY, as gcp-kms://projects/…; likewise
	KeysetFile               string // MAILYARD_KEYSET_FILE, instead of these two on one machine

	ConnectKey     string   // MAILYARD_CONNECT_KEY
	ConnectOrigins []string // MAILYARD_CONNECT_ORIGINS, parted by commas: where a person may be sent back to
	PublicURL      string   // MAILYARD_PUBLIC_URL, without a slash at its end; Connect answers at /Connect below it

	DigestSender string         // MAILYARD_DIGEST_SENDER: the address of the linked mailbox that sends digests
	DigestZone   *time.Location // MAILYARD_DIGEST_ZONE: in which a digest's day begins

	PushAuth           PushAuth // MAILYARD_PUSH_AUTH
	PushAudience       string   // MAILYARD_PUSH_AUDIENCE; empty: any
	PushServiceAccount string   // MAILYARD_PUSH_SERVICE_ACCOUNT
	OIDCCertsURL       string   // MAILYARD_OIDC_CERTS_URL

	AlertWebhook string    // MAILYARD_ALERT_WEBHOOK; empty: nobody is told
	AlertKind    AlertKind // MAILYARD_ALERT_KIND, or what the webhook's host says

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
		OAuthAuthURL:       r.url("MAILYARD_OAUTH_AUTH_URL", "https://accounts.google.com/o/oauth2/v2/auth"),
		OAuthRevokeURL:     r.url("MAILYARD_OAUTH_REVOKE_URL", "https://oauth2.googleapis.com/revoke"),
		OAuthTokenURL:      r.url("MAILYARD_OAUTH_TOKEN_URL", "https://oauth2.googleapis.com/token"),
		OAuthClientID:      r.text("MAILYARD_OAUTH_CLIENT_ID", ""),
		OAuthClientSecret:  r.text("MAILYARD_OAUTH_CLIENT_SECRET", ""),
		Keyset:             r.text("MAILYARD_KEYSET", ""),
		KMSKey:             r.text("MAILYARD_KMS_KEY", ""),
		KeysetFile:         r.text("MAILYARD_KEYSET_FILE", ""),
		ConnectKey:         r.text("MAILYARD_CONNECT_KEY", ""),
		ConnectOrigins:     r.origins("MAILYARD_CONNECT_ORIGINS"),
		PublicURL:          r.public("MAILYARD_PUBLIC_URL"),
		DigestSender:       r.address("MAILYARD_DIGEST_SENDER"),
		DigestZone:         r.zone("MAILYARD_DIGEST_ZONE", "UTC"),
		PushAuth:           PushAuth(r.oneOf("MAILYARD_PUSH_AUTH", string(PushAuthIAM), string(PushAuthOIDC), string(PushAuthOff))),
		PushAudience:       r.text("MAILYARD_PUSH_AUDIENCE", ""),
		PushServiceAccount: r.text("MAILYARD_PUSH_SERVICE_ACCOUNT", ""),
		OIDCCertsURL:       r.url("MAILYARD_OIDC_CERTS_URL", "https://www.googleapis.com/oauth2/v3/certs"),
		Lanes:              r.list("MAILYARD_LANES"),
		KeepBodies:         r.oneOf("MAILYARD_CONTENT", "full", "headers") == "full",
		Revision:           r.text("K_REVISION", "local"),

		DelegationServiceAccount: r.text("MAILYARD_DELEGATION_SERVICE_ACCOUNT", ""),
	}
	c.AlertWebhook, c.AlertKind = r.webhook(c.PubSubEmulator != "" && c.FirestoreEmulator != "")
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
	return errors.Join(append(
		missing(" is not set, and without it Gmail cannot be called",
			"MAILYARD_OAUTH_CLIENT_ID", c.OAuthClientID, "MAILYARD_OAUTH_CLIENT_SECRET", c.OAuthClientSecret),
		c.checkKeyset())...)
}

// checkKeyset refuses a configuration that does not say once, and whole, what encrypts credentials.
func (c Config) checkKeyset() error {
	switch {
	case c.KeysetFile != "" && c.Keyset != "":
		return errors.New("MAILYARD_KEYSET and MAILYARD_KEYSET_FILE are both set; write one of them: the file is for one machine")
	case c.KeysetFile != "":
		return nil
	case c.Keyset == "":
		return errors.New("neither MAILYARD_KEYSET nor MAILYARD_KEYSET_FILE is set, and without a keyset no credential can be read; mailyard keyset new makes one for MAILYARD_KEYSET")
	}
	return c.CheckKMS()
}

// CheckKMS refuses a configuration that does not name the key which wraps the keyset.
func (c Config) CheckKMS() error {
	if !kmsKey().MatchString(c.KMSKey) {
		return errors.New("MAILYARD_KMS_KEY does not name the key that wraps MAILYARD_KEYSET; write it as gcp-kms://projects/P/locations/L/keyRings/R/cryptoKeys/K")
	}
	return nil
}

var kmsKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^gcp-kms://projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$`)
})

// CheckDelegation refuses a configuration that cannot read delegated mailboxes.
func (c Config) CheckDelegation() error {
	return errors.Join(missing(" is not set; write the service account to which the domains have delegated their mailboxes",
		"MAILYARD_DELEGATION_SERVICE_ACCOUNT", c.DelegationServiceAccount)...)
}

// CheckDigests refuses a configuration that cannot send digests.
func (c Config) CheckDigests() error {
	return errors.Join(append(
		missing(" is not set; write the address of the linked mailbox that sends the digests", "MAILYARD_DIGEST_SENDER", c.DigestSender),
		c.CheckUnsubscribe())...)
}

// CheckUnsubscribe refuses a configuration that cannot make or take the links by which digests are ended.
func (c Config) CheckUnsubscribe() error {
	return errors.Join(append(
		missing(" is not set, and without it no digest has a link to unsubscribe",
			"MAILYARD_CONNECT_KEY", c.ConnectKey, "MAILYARD_PUBLIC_URL", c.PublicURL),
		c.checkConnectKey())...)
}

// checkConnectKey refuses a key that could be guessed; where there is none somebody else has said so.
func (c Config) checkConnectKey() error {
	if c.ConnectKey != "" && len(c.ConnectKey) < minConnectKey {
		return fmt.Errorf("MAILYARD_CONNECT_KEY is too short to be safe; write at least %d random characters, as openssl rand -hex 32 makes them", minConnectKey)
	}
	return nil
}

// CheckLinks refuses a configuration that cannot make or take the links by which mailboxes are linked.
func (c Config) CheckLinks() error {
	errs := missing(" is not set, and without it no mailbox can be linked by its owner",
		"MAILYARD_CONNECT_KEY", c.ConnectKey, "MAILYARD_PUBLIC_URL", c.PublicURL)
	return errors.Join(append(errs, c.checkConnectKey())...)
}

// minConnectKey is in bytes: a shorter key could be guessed.
const minConnectKey = 32

// MayReturnTo reports whether a person may be sent there: a URL of an allowed origin.
func (c Config) MayReturnTo(link string) bool {
	u, err := url.Parse(link)
	return err == nil && u.User == nil && slices.Contains(c.ConnectOrigins, origin(u))
}

// missing returns a sentence for each variable that is empty; they come as name, value, name, value…
func missing(sentence string, variables ...string) []error {
	var errs []error
	for i := 0; i < len(variables); i += 2 {
		if variables[i+1] == "" {
			errs = append(errs, errors.New(variables[i]+sentence))
		}
	}
	return errs
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

// public reads the URL under which people reach the functions. Nothing that a person is sent to may be
// read on its way, but on this machine.
func (r *reader) public(name string) string {
	value := strings.TrimRight(r.text(name, ""), "/")
	if value == "" {
		return ""
	}
	u, err := url.Parse(value)
	if err != nil || !safe(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		r.refuse("%s is not an https URL without a query (http is for this machine alone)", name)
	}
	return value
}

// origins reads origins, in the one way of writing them.
func (r *reader) origins(name string) []string {
	var origins []string
	for _, value := range r.list(name) {
		u, err := url.Parse(value)
		if err != nil || !safe(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
			r.refuse("%s: %q is not an origin; write each as https://app.example.com, without a path, parted by commas (http is for this machine alone)", name, value)
			continue
		}
		origins = append(origins, origin(u))
	}
	return origins
}

// origin is scheme, host and port, the port only where it is not the scheme's own.
func origin(u *url.URL) string {
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && !(scheme == "https" && port == "443") && !(scheme == "http" && port == "80") {
		host += ":" + port
	}
	return scheme + "://" + host
}

// safe reports whether nobody can read or change on its way what goes there.
func safe(u *url.URL) bool {
	return u.Hostname() != "" && (u.Scheme == "https" || u.Scheme == "http" && here(u))
}

// here reports whether a URL is of this machine.
func here(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// address reads a mail address.
func (r *reader) address(name string) string {
	value := r.text(name, "")
	if parsed, err := mail.ParseAddress(value); value != "" && (err != nil || parsed.Address != value) {
		r.refuse("%s is not a mail address; write it as name@example.com", name)
	}
	return value
}

// zone reads a zone of the tz database.
func (r *reader) zone(name, otherwise string) *time.Location {
	zone, err := time.LoadLocation(r.text(name, otherwise))
	if err != nil || zone == time.Local {
		r.refuse("%s is no timezone; write one of the tz database, as Europe/Zurich", name)
		return time.UTC
	}
	return zone
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
