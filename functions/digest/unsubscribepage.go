package digest

import (
	"net/http"

	"mailyard.internal/mailyard/shared/notice"
)

// notices say what happened to who followed a link.
var notices = map[UnsubscribeOutcome]notice.Notice{
	ToConfirm: {
		Status: http.StatusOK, Title: "Unsubscribe from digests?", Button: "Unsubscribe",
		Text: "You will get no more digests of this mailbox at this address.",
	},
	HasUnsubscribed: {
		Status: http.StatusOK, Title: "You are unsubscribed",
		Text: "You will get no more digests of this mailbox at this address.", Next: "You can close this page.",
	},
	NoSuchToken: {
		Status: http.StatusForbidden, Title: "This link is not valid",
		Text: "A part of it is missing, or it is from somewhere else. Nothing was changed.", Next: "Copy the whole link from the mail.",
	},
	UnsubscribeFailed: {
		Status: http.StatusServiceUnavailable, Title: "Something went wrong",
		Text: "You are not unsubscribed yet. It is not your fault.", Next: "Open the link again in a few minutes.",
	},
}
