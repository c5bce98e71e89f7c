package config_test

import (
	"slices"
	"strings"
	"testing"

	"mailyard.internal/mailyard/shared/config"
)

const key = "gcp-kms://projects/p/locations/l/keyRings/r/cryptoKeys/k"

func TestKeysetIsSaidOnce(t *testing.T) {
	t.Parallel()
	whole := config.Config{OAuthClientID: "id", OAuthClientSecret: "secret"}
	for name, c := range map[string]struct {
		file, keyset, key string
		want              string
	}{
		"a file":              {"k.json", "", "", ""},
		"a wrapped one":       {"", "wrapped", key, ""},
		"none":                {"", "", "", "mailyard keyset new"},
		"both":                {"k.json", "wrapped", key, "both set"},
		"no key":              {"", "wrapped", "", "MAILYARD_KMS_KEY does not name the key"},
		"a version":           {"", "wrapped", key + "/cryptoKeyVersions/1", "MAILYARD_KMS_KEY"},
		"another's":           {"", "wrapped", "aws-kms://k", "MAILYARD_KMS_KEY"},
		"a file, and its key": {"k.json", "", key, ""},
	} {
		of := whole
		of.KeysetFile, of.Keyset, of.KMSKey = c.file, c.keyset, c.key
		err := of.CheckGmail()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "wrapped\"") {
			t.Errorf("%s: the error repeats the keyset", name)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	c, err := load("GOOGLE_CLOUD_PROJECT", "yard", "MAILYARD_PUBLIC_URL", "https://yard.example.com/mail/",
		"MAILYARD_CONNECT_KEY", strings.Repeat("k", 32), "MAILYARD_CONNECT_ORIGINS", "https://App.example.com:443/, http://localhost:3000,https://[::1]:8443")
	if err != nil || c.CheckLinks() != nil {
		t.Fatal(err, c.CheckLinks())
	}
	if want := []string{"https://app.example.com", "http://localhost:3000", "https://[::1]:8443"}; !slices.Equal(c.ConnectOrigins, want) || c.PublicURL != "https://yard.example.com/mail" {
		t.Errorf("read %q, %q", c.ConnectOrigins, c.PublicURL)
	}
	for link, may := range map[string]bool{
		"https://app.example.com": true, "https://APP.example.com:443/a?b=c#d": true, "http://localhost:3000/": true, "https://[::1]:8443/x": true,
		"http://app.example.com": false, "https://app.example.com:8443": false, "https://sub.app.example.com": false, "https://app.example.com.evil.com": false,
		"https://u@app.example.com": false, "https://app.example.com@evil.com": false, "//app.example.com": false, "/x": false, "": false,
		"javascript:alert(1)//https://app.example.com": false, "https:app.example.com": false, "https:///app.example.com": false, "http://localhost:3001": false,
	} {
		if got := c.MayReturnTo(link); got != may {
			t.Errorf("%s: may return is %v", link, got)
		}
	}

	_, err = load("GOOGLE_CLOUD_PROJECT", "yard", "MAILYARD_PUBLIC_URL", "http://yard.example.com", "MAILYARD_CONNECT_ORIGINS", "app.example.com,https://a.example.com/path,http://a.example.com,*",
		"MAILYARD_OAUTH_AUTH_URL", "x", "MAILYARD_OAUTH_REVOKE_URL", "x")
	for _, want := range []string{
		"MAILYARD_PUBLIC_URL is not an https URL", `"app.example.com" is not an origin`, `"https://a.example.com/path" is not`, `"http://a.example.com" is not`, `"*" is not`,
		"MAILYARD_OAUTH_AUTH_URL is not", "MAILYARD_OAUTH_REVOKE_URL is not",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	short := config.Config{ConnectKey: "short-secret", PublicURL: "https://a.example.com"}
	if err := short.CheckLinks(); err == nil || !strings.Contains(err.Error(), "too short") || strings.Contains(err.Error(), "short-secret") {
		t.Errorf("a short key: %v", err)
	}
	if err := (config.Config{}).CheckDelegation(); err == nil {
		t.Error("delegation without a service account")
	}
}
