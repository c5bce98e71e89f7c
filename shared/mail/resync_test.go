package mail_test

import (
	"testing"

	"mailyard.internal/mailyard/shared/mail"
)

func TestResyncIsOpenUntilItEnds(t *testing.T) {
	t.Parallel()
	for state, want := range map[mail.ResyncState]bool{
		mail.ResyncListing: true, mail.ResyncMending: true, mail.ResyncDone: false, mail.ResyncFailed: false, "": false,
	} {
		if got := (mail.Resync{State: state}).Open(); got != want {
			t.Errorf("a resync that is %q counts as open: %t", state, got)
		}
	}
}
