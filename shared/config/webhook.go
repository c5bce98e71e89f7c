package config

import (
	"net/url"
	"strings"
)

// An AlertKind is the chat that alerts go to.
type AlertKind string

// The chats.
const (
	AlertDiscord    AlertKind = "discord"
	AlertSlack      AlertKind = "slack"
	AlertGoogleChat AlertKind = "googlechat"
)

// chats are the only hosts that alerts are posted to, but for a stand-in beside the emulators.
var chats = map[string]AlertKind{
	"discord.com":         AlertDiscord,
	"discordapp.com":      AlertDiscord,
	"hooks.slack.com":     AlertSlack,
	"chat.googleapis.com": AlertGoogleChat,
}

// webhook reads where alerts go. Its sentences do not repeat the URL, which is a secret.
func (r *reader) webhook(emulated bool) (string, AlertKind) {
	value, named := r.text("MAILYARD_ALERT_WEBHOOK", ""), AlertKind(r.text("MAILYARD_ALERT_KIND", ""))
	switch named {
	case "", AlertDiscord, AlertSlack, AlertGoogleChat:
	default:
		r.refuse("MAILYARD_ALERT_KIND is none of discord, slack, googlechat")
		return "", ""
	}
	if value == "" {
		return "", ""
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User != nil {
		r.refuse("MAILYARD_ALERT_WEBHOOK is not a URL; copy it from Discord, Slack or Google Chat")
		return "", ""
	}
	kind, known := chats[strings.ToLower(u.Host)]
	switch {
	case known && u.Scheme != "https":
		r.refuse("MAILYARD_ALERT_WEBHOOK must begin with https")
	case known && named != "" && named != kind:
		r.refuse("MAILYARD_ALERT_KIND is %s, but the host of MAILYARD_ALERT_WEBHOOK is %s's; leave MAILYARD_ALERT_KIND out", named, kind)
	case known:
		return value, kind
	case !emulated || !here(u):
		r.refuse("MAILYARD_ALERT_WEBHOOK is at none of discord.com, hooks.slack.com and chat.googleapis.com; copy it from one of them")
	case named == "":
		r.refuse("MAILYARD_ALERT_KIND is not set; for a webhook of your own, beside the emulators, write discord, slack or googlechat")
	default:
		return value, named
	}
	return "", ""
}
