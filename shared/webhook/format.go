package webhook

import (
	"strings"

	"mailyard.internal/mailyard/shared/alert"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
)

// A format is the JSON that a chat takes.
type format func(alert.Message) any

var formats = map[config.AlertKind]format{
	config.AlertDiscord:    discord,
	config.AlertSlack:      slack,
	config.AlertGoogleChat: googleChat,
}

// maxContent is Discord's limit for a message, in characters; the other two take more.
const maxContent = 2000

// discord is an Execute Webhook body. Nobody is to be mentioned, whatever a text holds.
func discord(m alert.Message) any {
	lines := append([]string{"**" + m.Title + "**"}, m.Lines...)
	if m.Link != "" {
		lines = append(lines, "<"+m.Link+">") // without a preview
	}
	if m.Typed != "" {
		lines = append(lines, "`"+m.Typed+"`")
	}
	return map[string]any{
		"content":          fault.Cut(strings.Join(lines, "\n"), maxContent),
		"allowed_mentions": map[string]any{"parse": []string{}},
	}
}

// escape keeps Slack from reading a text as markup.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slack is an incoming webhook's body in mrkdwn.
func slack(m alert.Message) any {
	lines := []string{"*" + escape.Replace(m.Title) + "*"}
	for _, line := range m.Lines {
		lines = append(lines, escape.Replace(line))
	}
	if m.Link != "" {
		lines = append(lines, "<"+escape.Replace(m.Link)+"|Look at it in the Cloud Console>")
	}
	if m.Typed != "" {
		lines = append(lines, "`"+escape.Replace(m.Typed)+"`")
	}
	return map[string]any{"text": strings.Join(lines, "\n")}
}

// googleChat is a text message's body, whose links are written as Slack's are, and which escapes nothing.
func googleChat(m alert.Message) any {
	lines := append([]string{"*" + m.Title + "*"}, m.Lines...)
	if m.Link != "" {
		lines = append(lines, "<"+m.Link+"|Look at it in the Cloud Console>")
	}
	if m.Typed != "" {
		lines = append(lines, "`"+m.Typed+"`")
	}
	return map[string]any{"text": strings.Join(lines, "\n")}
}
