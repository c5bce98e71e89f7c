package mail

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	netmail "net/mail"
	"strings"
	"time"
)

// A Status says whether Mailyard may work on an account.
type Status string

const (
	// StatusActive accounts are listed, fetched and watched.
	StatusActive Status = "active"
	// StatusReauthRequired accounts have lost their grant; linking them again makes them active.
	StatusReauthRequired Status = "reauth_required"
	// StatusPaused accounts make no Gmail calls until an operator makes them active.
	StatusPaused Status = "paused"
)

// An Account is one owner's link to one Gmail mailbox. Two owners of a mailbox have two accounts.
type Account struct {
	ID     string
	Email  string // as NormalizeAddress gives it
	Owner  string
	Status Status

	// HistoryID is the cursor: everything up to it has been published. Zero where there is none yet.
	HistoryID HistoryID
	// RecheckFrom is the lowest cursor whose listing may have been incomplete, because Gmail's index
	// lags behind its pushes; from RecheckAt on it is to be listed again. Zero where nothing is due.
	RecheckFrom HistoryID
	RecheckAt   time.Time

	WatchExpiresAt    time.Time
	GmailBlockedUntil time.Time // Gmail asked for no calls before this moment
	LastNotifiedAt    time.Time
	AuditedAt         time.Time // the mailbox was last compared with its mirror
	CreatedAt         time.Time
	UpdatedAt         time.Time

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// Callable reports whether Gmail may be called for the account.
func (a Account) Callable() bool { return a.Status == StatusActive }

// A Credential is what an account's Gmail calls are made with. All of it but the kind and the moments
// is encrypted, with the account's id as associated data.
type Credential struct {
	Kind            CredentialKind
	Secret          []byte // the refresh token, or of a delegated mailbox its address
	AccessToken     []byte // the last one, kept until it expires
	AccessExpiresAt time.Time
	UpdatedAt       time.Time

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// A CredentialKind is a way of being let in.
type CredentialKind string

const (
	// CredentialOAuth is a refresh token that the mailbox's owner granted.
	CredentialOAuth CredentialKind = "oauth"
	// CredentialDelegated is a mailbox whose domain lets a service account act for its users.
	CredentialDelegated CredentialKind = "delegated"
)

// AccountID names the account of an owner and an address. It follows from both, so linking twice
// makes one account, and it holds neither: 20 lower-case hexadecimal digits.
func AccountID(owner, email string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + NormalizeAddress(email)))
	return hex.EncodeToString(sum[:10])
}

// NormalizeAddress gives the form in which addresses are compared: lower case, and for Gmail's own
// two domains without dots and +tag, since Gmail delivers all of those to one mailbox.
func NormalizeAddress(email string) string {
	email = strings.ToLower(strings.TrimSpace(email))
	at := strings.LastIndexByte(email, '@')
	if at < 0 {
		return email
	}
	local, domain := email[:at], email[at+1:]
	if domain != "gmail.com" && domain != "googlemail.com" {
		return email
	}
	local, _, _ = strings.Cut(local, "+")
	return strings.ReplaceAll(local, ".", "") + "@gmail.com"
}

// CheckAddress refuses what cannot be the address of a mailbox.
func CheckAddress(email string) error {
	address, err := netmail.ParseAddress(email)
	if err != nil || address.Address != strings.TrimSpace(email) {
		return fmt.Errorf("not a mail address; write it as name@example.com")
	}
	return nil
}
