package app_test

import (
	"strings"
	"testing"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

func linkDelegated(t *testing.T, y *apptest.Yard, owner, address string) mail.Account {
	t.Helper()
	linker, err := y.App.Linker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	account, err := linker.Link(t.Context(), mailbox.Grant{Owner: owner, Email: address, Delegated: true})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// A delegated mailbox is like any other, though nobody has granted anything and no key is kept.
func TestDelegatedMailbox(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	box := addMailbox(t, y, "Kim@example.com", "refresh")
	y.Gmail.Delegate(apptest.DelegationServiceAccount, "example.com")
	deliverMany(t, box, 3)
	account := linkDelegated(t, y, "acme", "Kim@example.com")
	credential, err := y.DB.Credential(t.Context(), account.ID)
	if err != nil || credential.Kind != mail.CredentialDelegated || strings.Contains(string(credential.Secret), "example.com") {
		t.Errorf("stored %+v, %v", credential, err)
	}
	y.Settle()
	y.AssertMirror(account.ID, box)

	// A refused access token is replaced, and IAM and token server may be down for a moment.
	box.ExpireAccessTokens()
	for _, f := range []gmailsim.Fault{{Method: "signJwt", Status: 503, Times: 1}, {Method: "token", Status: 500, Times: 1}} {
		if _, err := y.Gmail.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	deliverMany(t, box, 2)
	y.Settle()
	y.AssertMirror(account.ID, box)
	if got := y.Account(account.ID).Status; got != mail.StatusActive {
		t.Errorf("after a moment's trouble the account is %s", got)
	}

	// The administrator takes the delegation back, and gives it again.
	y.Gmail.Delegate(apptest.DelegationServiceAccount)
	box.ExpireAccessTokens()
	deliverMany(t, box, 2)
	y.Settle()
	if got := y.Account(account.ID).Status; got != mail.StatusReauthRequired {
		t.Errorf("without delegation the account is %s", got)
	}
	if entries := y.Entries(); len(entries) > 0 {
		for _, e := range entries {
			if e.Unresolved() {
				t.Errorf("left in the ledger: %+v", e)
			}
		}
	}
	y.Gmail.Delegate(apptest.DelegationServiceAccount, "example.com")
	linkDelegated(t, y, "acme", "kim@example.com")
	y.Settle()
	y.AssertMirror(account.ID, box)

	if _, err := unlink(t, y, account.ID, nil); err != nil {
		t.Fatal(err)
	}
	if calls := y.Gmail.Stats().Calls; calls["stop"] != 1 || calls["revoke"] != 0 {
		t.Errorf("unlinked by %v", calls)
	}
	assertGone(t, y, account.ID)
}

func TestDelegatedRefused(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	addMailbox(t, y, "kim@example.com", "refresh")
	y.Gmail.Delegate(apptest.DelegationServiceAccount, "example.com")
	linker, err := y.App.Linker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(address string, code fault.Code) {
		t.Helper()
		if _, err := linker.Link(t.Context(), mailbox.Grant{Email: address, Delegated: true}); !fault.Is(err, code) || strings.Contains(fault.Text(err), address) {
			t.Errorf("%s: %v, want %s and no address", address, err, code)
		}
		nothingLinked(t, y, address)
	}
	refused("nobody@example.com", fault.ReauthRequired)
	refused("kim@example.org", fault.ReauthRequired)
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "signJwt", Status: 403}); err != nil {
		t.Fatal(err)
	}
	refused("kim@example.com", fault.TokenUnavailable)
}
