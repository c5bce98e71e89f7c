package mailbox

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/ticket"
)

// connects keeps who is on the way, and which tickets are spent.
type connects interface {
	StartConnect(ctx context.Context, c mail.Connect) error
	Connect(ctx context.Context, id string) (mail.Connect, bool, error)
	// UseConnect gives the way that was read to one callback. It returns false where another came first.
	UseConnect(ctx context.Context, read mail.Connect, by string) (bool, error)
	// SpendTicket gives a ticket to one callback. It returns false where another has it.
	SpendTicket(ctx context.Context, c mail.Connect, by string) (bool, error)
	TicketSpent(ctx context.Context, ticket string) (bool, error)
	// ReturnTicket lets a ticket be used again by which nothing was linked.
	ReturnTicket(ctx context.Context, ticket string) error
}

// consent is Google's part.
type consent interface {
	// Page is the consent page's URL; of the digests' sender it asks for the permission to send, too.
	Page(state, verifier string, sender bool) string
	// RefreshToken exchanges a code: a fault.CodeSpent, fault.NotPermitted or fault.NotLasting says why
	// there is none to be had.
	RefreshToken(ctx context.Context, code, verifier string, sender bool) (string, error)
}

// ConnectPorts are what a Connector works with.
type ConnectPorts struct {
	Tickets interface {
		Open(text string) (ticket.Ticket, error)
	}
	// MayReturnTo reports whether a person may be sent to that URL.
	MayReturnTo func(link string) bool
	Connects    connects
	Consent     consent
	Linker      interface {
		Link(ctx context.Context, g Grant) (mail.Account, error)
	}
	// Sender is the address of the digests' sender: no other mailbox is linked by a ticket for it.
	Sender string
	Now    func() time.Time
}

// A Connector lets a person link their mailbox: from the app's ticket to Google's consent page, and from
// there back to an account.
//
// A ticket links one mailbox, a state is good for one callback in the browser that set out, and the
// address is the one that Gmail says. Whatever is forged, late, used before or another's links nothing.
// No secret is stored: of state, cookie and nonce only digests, and the PKCE verifier follows from state
// and cookie.
type Connector struct{ ConnectPorts }

// NewConnector returns a connector.
func NewConnector(p ConnectPorts) *Connector { return &Connector{p} }

// wayLife is how long a person may take on Google's pages.
const wayLife = 15 * time.Minute

// A Visit is what became of one request of a person's browser.
type Visit struct {
	Outcome VisitOutcome
	// To is where the browser goes: Google's page, or back to the app; empty where a page says the rest.
	To string
	// Back is the app's URL for the link on a page; empty where there is none.
	Back string
	// Way names the cookie of a person who sets out, and Secret is its value.
	Way, Secret string
	Account     mail.Account // the one that was linked
	Err         error        // for the log
}

// A VisitOutcome names what became of a visit, for page, log and metrics.
type VisitOutcome string

// The outcomes of a visit.
const (
	SetOut          VisitOutcome = "set_out" // on the way to Google's page
	VisitLinked     VisitOutcome = "linked"
	VisitDeclined   VisitOutcome = "declined"
	NothingAsked    VisitOutcome = "nothing_asked"    // neither ticket nor state
	TicketForged    VisitOutcome = "ticket_forged"    // not signed with our key
	TicketLate      VisitOutcome = "ticket_late"      // expired
	TicketUsed      VisitOutcome = "ticket_used"      // has linked a mailbox already
	ReturnForbidden VisitOutcome = "return_forbidden" // the ticket names a URL that is not allowed
	WayUnknown      VisitOutcome = "way_unknown"      // no such state: forged, or long ago
	WayLate         VisitOutcome = "way_late"         // too long on Google's pages
	WayUsed         VisitOutcome = "way_used"         // a callback that came before
	OtherBrowser    VisitOutcome = "other_browser"    // not the one that set out
	CodeLate        VisitOutcome = "code_late"        // Google no longer takes the code
	NotReadable     VisitOutcome = "not_readable"     // without the permission to read mail, or of a sender to send it
	OtherMailbox    VisitOutcome = "other_mailbox"    // not the one that the ticket is for
	NotLasting      VisitOutcome = "not_lasting"      // without a refresh token
	VisitFailed     VisitOutcome = "failed"           // something is down, or wrong here
)

// digest stands for a secret where it must not be kept. what keeps digests of different things apart.
func digest(what, secret string) string {
	sum := sha256.Sum256([]byte(what + "\x00" + secret))
	return hex.EncodeToString(sum[:16])
}

// verifierOf gives the PKCE verifier of a way, which only the browser that set out can bring back.
func verifierOf(state, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("pkce\x00" + state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Begin takes a ticket, and sends its bearer to Google's consent page.
func (c *Connector) Begin(ctx context.Context, text string) Visit {
	t, err := c.Tickets.Open(text)
	back := ""
	if t.ReturnTo != "" && c.MayReturnTo(t.ReturnTo) {
		back = withResult(t.ReturnTo, "failed", "")
	}
	switch {
	case errors.Is(err, ticket.ErrExpired):
		return Visit{Outcome: TicketLate, Back: back, Err: err}
	case err != nil:
		return Visit{Outcome: TicketForged, Err: err}
	case t.Sender && c.Sender == "":
		return Visit{Outcome: VisitFailed, Back: back, Err: errors.New("the ticket is for the digests' sender, and MAILYARD_DIGEST_SENDER does not say who that is")}
	case t.ReturnTo != "" && back == "":
		return Visit{Outcome: ReturnForbidden, Err: errors.New("MAILYARD_CONNECT_ORIGINS does not have the origin that the ticket returns to")}
	}
	way := mail.Connect{
		Owner: t.Owner, ReturnTo: t.ReturnTo, Sender: t.Sender, Ticket: digest("ticket", t.Nonce), TicketExpiresAt: t.ExpiresAt,
		ExpiresAt: c.Now().Add(wayLife),
	}
	if spent, err := c.Connects.TicketSpent(ctx, way.Ticket); err != nil || spent {
		return visitOr(err, Visit{Outcome: TicketUsed, Back: back})
	}
	state, secret := rand.Text(), rand.Text()
	way.ID, way.Browser = digest("state", state), digest("cookie", secret)
	if err := c.Connects.StartConnect(ctx, way); err != nil {
		return Visit{Outcome: VisitFailed, Back: back, Err: err}
	}
	return Visit{Outcome: SetOut, To: c.Consent.Page(state, verifierOf(state, secret), t.Sender), Way: way.ID, Secret: secret}
}

func visitOr(err error, otherwise Visit) Visit {
	if err != nil {
		return Visit{Outcome: VisitFailed, Back: otherwise.Back, Err: err}
	}
	return otherwise
}

// A Callback is what a browser brings back from Google.
type Callback struct {
	State, Code string
	// Refusal is Google's word where the person did not consent.
	Refusal string
	// Secret finds the cookie of a way; empty where the browser has none.
	Secret func(way string) string
}

// Finish takes a callback, and links the mailbox.
func (c *Connector) Finish(ctx context.Context, back Callback) Visit {
	id := digest("state", back.State)
	way, known, err := c.Connects.Connect(ctx, id)
	if err != nil || !known {
		return visitOr(err, Visit{Outcome: WayUnknown})
	}
	secret := back.Secret(id)
	if subtle.ConstantTimeCompare([]byte(digest("cookie", secret)), []byte(way.Browser)) != 1 {
		// Nothing of the way is told to who did not set out on it, and it stays open for who did.
		return Visit{Outcome: OtherBrowser}
	}
	var v Visit
	if way.ReturnTo != "" && c.MayReturnTo(way.ReturnTo) {
		v.Back = withResult(way.ReturnTo, "failed", "")
	}
	switch {
	case way.UsedBy != "":
		v.Outcome = WayUsed
		return v
	case !c.Now().Before(way.ExpiresAt):
		v.Outcome = WayLate
		return v
	}
	me := rand.Text()
	mine, err := c.Connects.UseConnect(ctx, way, me)
	switch {
	case err != nil:
		v.Outcome, v.Err = VisitFailed, err
	case !mine:
		v.Outcome = WayUsed
	case back.Refusal == "access_denied":
		v.Outcome = VisitDeclined
	case back.Refusal != "" || back.Code == "":
		v.Outcome, v.Err = VisitFailed, errors.New("the consent page came back with neither a code nor access_denied")
	default:
		v.Account, v.Outcome, v.Err = c.link(ctx, way, me, back.Code, verifierOf(back.State, secret))
	}
	if v.Back != "" && (v.Outcome == VisitLinked || v.Outcome == VisitDeclined) {
		v.To = withResult(way.ReturnTo, string(v.Outcome), v.Account.ID)
	}
	return v
}

// link spends the ticket and links the mailbox; a ticket by which nothing was linked is given back.
func (c *Connector) link(ctx context.Context, way mail.Connect, me, code, verifier string) (mail.Account, VisitOutcome, error) {
	mine, err := c.Connects.SpendTicket(ctx, way, me)
	switch {
	case err != nil:
		return mail.Account{}, VisitFailed, err
	case !mine:
		return mail.Account{}, TicketUsed, nil
	}
	outcome := VisitFailed
	token, err := c.Consent.RefreshToken(ctx, code, verifier, way.Sender)
	switch {
	case fault.Is(err, fault.CodeSpent):
		outcome = CodeLate
	case fault.Is(err, fault.NotPermitted):
		outcome = NotReadable
	case fault.Is(err, fault.NotLasting):
		outcome = NotLasting
	case err == nil:
		var account mail.Account
		grant := Grant{Owner: way.Owner, RefreshToken: token}
		if way.Sender {
			grant.Email = c.Sender
		}
		if account, err = c.Linker.Link(ctx, grant); err == nil {
			return account, VisitLinked, nil
		}
		if errors.Is(err, ErrOtherMailbox) {
			outcome = OtherMailbox
		}
	}
	if back := c.Connects.ReturnTicket(ctx, way.Ticket); back != nil {
		err = errors.Join(err, fmt.Errorf("give the ticket back: %w", back))
	}
	return mail.Account{}, outcome, err
}

// withResult adds to a URL what became of it: mailyard, and mailyard_account where one was linked.
func withResult(link, result, account string) string {
	u, err := url.Parse(link)
	if err != nil {
		return "" // MayReturnTo has parsed it
	}
	q := u.Query()
	q.Set("mailyard", result)
	if account != "" {
		q.Set("mailyard_account", account)
	}
	u.RawQuery = q.Encode()
	return u.String()
}
