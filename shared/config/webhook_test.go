package config_test

import (
	"strings"
	"testing"

	"mailyard.internal/mailyard/shared/config"
)

func TestAlertWebhook(t *testing.T) {
	t.Parallel()
	emulated := map[string]string{"PUBSUB_EMULATOR_HOST": "h:1", "FIRESTORE_EMULATOR_HOST": "h:2"}
	for _, c := range []struct {
		url, kind string
		emulated  bool
		want      config.AlertKind
		refused   string
	}{
		{"", "", false, "", ""},
		{"", "discord", false, "", ""},
		{"https://discord.com/api/webhooks/1/secret", "", false, config.AlertDiscord, ""},
		{"https://DISCORD.com/api/webhooks/1/secret", "discord", false, config.AlertDiscord, ""},
		{"https://hooks.slack.com/services/secret", "", false, config.AlertSlack, ""},
		{"https://chat.googleapis.com/v1/spaces/x/messages?key=secret", "", false, config.AlertGoogleChat, ""},
		{"http://discord.com/api/secret", "", false, "", "must begin with https"},
		{"https://discord.com/api/secret", "slack", false, "", "leave MAILYARD_ALERT_KIND out"},
		{"https://discord.com.evil.example/secret", "", false, "", "at none of discord.com"},
		{"https://evil.example/secret", "slack", false, "", "at none of discord.com"},
		{"https://user@discord.com/secret", "", false, "", "not a URL"},
		{"secret", "", false, "", "not a URL"},
		{"http://127.0.0.1:9/secret", "slack", true, config.AlertSlack, ""},
		{"http://127.0.0.1:9/secret", "", true, "", "MAILYARD_ALERT_KIND is not set"},
		{"http://10.0.0.1:9/secret", "slack", true, "", "at none of discord.com"},
		{"https://hooks.slack.com/secret", "irc", false, "", "none of discord, slack, googlechat"},
	} {
		env := map[string]string{"GOOGLE_CLOUD_PROJECT": "p", "MAILYARD_ALERT_WEBHOOK": c.url, "MAILYARD_ALERT_KIND": c.kind}
		if c.emulated {
			for name, value := range emulated {
				env[name] = value
			}
		}
		got, err := config.Load(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if c.refused == "" {
			if err != nil || got.AlertKind != c.want || got.AlertWebhook != c.url {
				t.Errorf("%q, %q: %q, %v", c.url, c.kind, got.AlertKind, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q, %q: %v", c.url, c.kind, err)
		}
	}
}
