package gmailsim_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"google.golang.org/api/iamcredentials/v1"
	"google.golang.org/api/option"
)

const back = "https://app.example.com/back"

func (w *world) oauth() *oauth2.Config {
	return &oauth2.Config{
		ClientID: "id", ClientSecret: "secret", RedirectURL: back, Scopes: []string{"https://www.googleapis.com/auth/gmail.readonly"},
		Endpoint: oauth2.Endpoint{AuthURL: w.server.URL + "/auth", TokenURL: w.server.URL + "/token", AuthStyle: oauth2.AuthStyleInParams},
	}
}

// visit opens the consent page and returns where it sends the person, or its text.
func visit(t *testing.T, page string) (*url.URL, string) {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text := must[[]byte](t)(io.ReadAll(response.Body))
	to, err := response.Location()
	if err != nil {
		return nil, string(text)
	}
	return to, ""
}

func (w *world) allow(t *testing.T, address, verifier string, options ...oauth2.AuthCodeOption) string {
	t.Helper()
	options = append([]oauth2.AuthCodeOption{oauth2.AccessTypeOffline, oauth2.ApprovalForce, oauth2.S256ChallengeOption(verifier)}, options...)
	to, text := visit(t, w.oauth().AuthCodeURL("st", options...)+"&answer=allow&account="+url.QueryEscape(address))
	if to == nil || to.Query().Get("state") != "st" || !strings.HasPrefix(to.String(), back) {
		t.Fatalf("sent to %v: %s", to, text)
	}
	return to.Query().Get("code")
}

func oauthCode(err error) string {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) {
		return answer.ErrorCode
	}
	return ""
}

func TestConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.box(t, "ann@example.com")
	verifier := oauth2.GenerateVerifier()
	code := w.allow(t, "ann@example.com", verifier)
	token, err := w.oauth().Exchange(t.Context(), code, oauth2.VerifierOption(verifier))
	if err != nil || token.RefreshToken == "" {
		t.Fatalf("%+v, %v", token, err)
	}
	if p, err := w.client(t, token.RefreshToken).GetProfile("me").Do(); err != nil || p.EmailAddress != "ann@example.com" {
		t.Errorf("the refresh token reaches %+v, %v", p, err)
	}
	if _, err := w.oauth().Exchange(t.Context(), code, oauth2.VerifierOption(verifier)); oauthCode(err) != "invalid_grant" {
		t.Errorf("the same code again: %v", err)
	}
	code = w.allow(t, "ann@example.com", verifier)
	if _, err := w.oauth().Exchange(t.Context(), code, oauth2.VerifierOption(oauth2.GenerateVerifier())); oauthCode(err) != "invalid_grant" {
		t.Errorf("another verifier: %v", err)
	}
	code = w.allow(t, "ann@example.com", verifier)
	other := w.oauth()
	other.RedirectURL = "https://elsewhere.example.com"
	if _, err := other.Exchange(t.Context(), code, oauth2.VerifierOption(verifier)); oauthCode(err) != "redirect_uri_mismatch" {
		t.Errorf("another redirect: %v", err)
	}
	code = w.allow(t, "ann@example.com", verifier)
	w.pass(time.Hour)
	if _, err := w.oauth().Exchange(t.Context(), code, oauth2.VerifierOption(verifier)); oauthCode(err) != "invalid_grant" {
		t.Errorf("a late code: %v", err)
	}
}

// A refresh token comes only with offline access, and again only to who asks anew.
func TestConsentForAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.box(t, "ann@example.com")
	verifier := oauth2.GenerateVerifier()
	lasting := func(options ...oauth2.AuthCodeOption) bool {
		token, err := w.oauth().Exchange(t.Context(), w.allow(t, "ann@example.com", verifier, options...), oauth2.VerifierOption(verifier))
		if err != nil {
			t.Fatal(err)
		}
		return token.RefreshToken != ""
	}
	if lasting(oauth2.AccessTypeOnline) || !lasting() || lasting(oauth2.SetAuthURLParam("prompt", "none")) {
		t.Error("refresh tokens are not given as Google gives them")
	}
	box.WithholdRefreshTokens(true)
	if lasting() {
		t.Error("a refresh token was given that was to be withheld")
	}
}

func TestConsentPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.box(t, "ann@example.com")
	page := w.oauth().AuthCodeURL("st")
	if _, text := visit(t, page); !strings.Contains(text, "ann@example.com") || !strings.Contains(text, "answer=allow") {
		t.Errorf("the page is %s", text)
	}
	if to, _ := visit(t, page+"&account=ann@example.com&answer=deny"); to == nil || to.Query().Get("error") != "access_denied" || to.Query().Get("code") != "" {
		t.Errorf("denied, sent to %v", to)
	}
	for name, wrong := range map[string]string{
		"no client": strings.Replace(page, "client_id=id", "", 1), "no scope": strings.Replace(page, "gmail.readonly", "x", 1),
		"no redirect": strings.Replace(page, "redirect_uri", "x", 1), "a plain challenge": page + "&code_challenge=x&code_challenge_method=plain",
		"nobody": page + "&account=nobody@example.com&answer=allow",
	} {
		if to, _ := visit(t, wrong); to != nil {
			t.Errorf("%s: sent to %v", name, to)
		}
	}
}

func TestDelegation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.box(t, "ann@example.com")
	const account = "reader@p.iam.gserviceaccount.com"
	iam, err := iamcredentials.NewService(t.Context(), option.WithEndpoint(w.server.URL), option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	w.Delegate(account, "example.com")
	exchange := func(claims string, edit func(string) string) (string, error) {
		signed, err := iam.Projects.ServiceAccounts.SignJwt("projects/-/serviceAccounts/"+account, &iamcredentials.SignJwtRequest{Payload: claims}).Do()
		if err != nil {
			return "", err
		}
		config := clientcredentials.Config{TokenURL: w.server.URL + "/token", AuthStyle: oauth2.AuthStyleInParams, EndpointParams: url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {edit(signed.SignedJwt)},
		}}
		token, err := config.Token(t.Context())
		if err != nil {
			return "", err
		}
		return token.AccessToken, nil
	}
	same := func(s string) string { return s }
	claims := `{"iss":"` + account + `","sub":"ann@example.com","scope":"https://www.googleapis.com/auth/gmail.readonly","aud":"x","iat":1796040000,"exp":1796043600}`
	if token, err := exchange(claims, same); err != nil || token == "" {
		t.Errorf("%q, %v", token, err)
	}
	for name, c := range map[string]struct {
		claims string
		edit   func(string) string
		want   string
	}{
		"nobody":           {strings.Replace(claims, "ann@", "nobody@", 1), same, "invalid_grant"},
		"another domain":   {strings.Replace(claims, "example.com", "example.org", 1), same, "unauthorized_client"},
		"another scope":    {strings.Replace(claims, "readonly", "modify", 1), same, "unauthorized_client"},
		"too late":         {strings.NewReplacer("1796040000", "1", "1796043600", "3601").Replace(claims), same, "invalid_grant"},
		"a broken one":     {claims, func(s string) string { return s + "x" }, "invalid_grant"},
		"another's claims": {strings.Replace(claims, account, "other@p.iam.gserviceaccount.com", 1), same, "invalid_grant"},
	} {
		if _, err := exchange(c.claims, c.edit); oauthCode(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := exchange("no JSON", same); err == nil {
		t.Error("nonsense was signed")
	}
	w.Delegate(account)
	if _, err := exchange(claims, same); oauthCode(err) != "unauthorized_client" {
		t.Errorf("after the administrator's change: %v", err)
	}
}
