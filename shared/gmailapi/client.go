// Package gmailapi calls Gmail. It reads mailboxes and never writes to them; it sends what it is given as
// the account that it is told.
//
// Each call is one attempt with a deadline: whether to try again is decided by who asked. Its errors
// are faults that say what the answer means. Throttling closes the account's gate, and a lost grant
// marks the account, before the error is returned.
package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/api/gmail/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gmailapi/content"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// Config is the part of the environment that the client needs.
type Config = config.Config

// accounts keeps what Gmail says about an account as a whole.
type accounts interface {
	// BlockGmail closes the account's gate until that moment.
	BlockGmail(ctx context.Context, account string, until time.Time) error
	// RequireReauth records that the account's grant is lost.
	RequireReauth(ctx context.Context, account string) error
}

const (
	callTimeout = 5 * time.Second
	// throttledFor is how long an account's gate is closed where Gmail names no moment: its quotas are
	// counted by the minute.
	throttledFor = time.Minute
	pageSize     = 500 // history records a page: Gmail's maximum
	me           = "me"
)

// A Client calls Gmail for every account. It may be used by many goroutines.
type Client struct {
	service    *gmail.Service
	tokens     *tokens
	iam        *IAM
	consent    *Consent
	accounts   accounts
	quotas     *quotas
	gate       *ProjectGate
	imports    bool // keeps to half of the quota
	keepBodies bool
	now        func() time.Time

	endpoint    string
	sender      *http.Client
	sendTimeout time.Duration
}

// An Option changes a client.
type Option func(*Client)

// WithQuota sets how many units may be spent for one user in a minute: 6,000 unless said, and never less
// than 600, as a watch costs 100 and a sixth may be spent at once.
func WithQuota(unitsPerMinute float64) Option {
	return func(c *Client) { c.quotas = newQuotas(unitsPerMinute, c.now) }
}

// WithProjectGate has clients share one gate for the project's quota: each has its own unless said.
func WithProjectGate(g *ProjectGate) Option { return func(c *Client) { c.gate = g } }

// WithIAM sets what signs for delegated mailboxes: Google's IAM unless said.
func WithIAM(iam *IAM) Option { return func(c *Client) { c.iam = iam } }

// New returns a client. It makes no call yet.
func New(c Config, accounts accounts, credentials credentials, keyset sealer, now func() time.Time, options ...Option) (*Client, error) {
	client := &Client{
		iam: NewIAM(), consent: NewConsent(c, ""), accounts: accounts, quotas: newQuotas(unitsPerUser, now),
		gate: new(ProjectGate), keepBodies: c.KeepBodies, now: now,
		endpoint: c.GmailEndpoint, sendTimeout: sendTimeout,
	}
	for _, option := range options {
		option(client)
	}
	client.quotas.project = client.gate
	client.tokens = newTokens(ways(c, client.iam.sign, now), credentials, keyset, now)
	service, err := gmail.NewService(context.Background(),
		option.WithEndpoint(c.GmailEndpoint),
		option.WithHTTPClient(&http.Client{Transport: &transport{client.tokens, http.DefaultTransport}}),
		option.WithUserAgent("mailyard"))
	if err != nil {
		return nil, fmt.Errorf("build the Gmail client: %w", err)
	}
	client.service, client.sender = service, newSender(client.tokens)
	return client, nil
}

// Importer returns the client as imports use it: with at most half of a user's quota, and more patience.
func (c *Client) Importer() *Client {
	importer := *c
	importer.imports = true
	return &importer
}

// History gets one page of what changed after start: 2 quota units. Only an expired start is a
// fault.HistoryExpired.
func (c *Client) History(ctx context.Context, account string, start mail.HistoryID, pageToken string) (lane.Page, error) {
	call := c.service.Users.History.List(me).StartHistoryId(uint64(start)).MaxResults(pageSize)
	if pageToken != "" {
		call = call.PageToken(pageToken)
	}
	answer, err := do(ctx, c, account, unitsHistory, fault.HistoryExpired, call.Context, call.Do)
	if err != nil {
		return lane.Page{}, fmt.Errorf("history.list: %w", err)
	}
	return pageOf(answer), nil
}

// FetchMessage gets a message: 20 quota units. One that Gmail does not have is a fault.NotFound.
func (c *Client) FetchMessage(ctx context.Context, account, message string) (mail.Fetch, error) {
	call := c.service.Users.Messages.Get(me, message).Format("full")
	m, err := do(ctx, c, account, unitsGet, fault.NotFound, call.Context, call.Do)
	if err != nil {
		return mail.Fetch{}, fmt.Errorf("messages.get of %s/%s: %w", account, message, err)
	}
	summary, body := content.Of(m, c.keepBodies)
	if !c.keepBodies {
		summary.Snippet = "" // it quotes the body
	}
	return mail.Fetch{
		ThreadID: m.ThreadId, HistoryID: mail.HistoryID(m.HistoryId), Labels: m.LabelIds, Summary: summary, Body: body,
	}, nil
}

// A Profile is what Gmail says about a mailbox.
type Profile struct {
	Email     string // as mail.NormalizeAddress gives it
	HistoryID mail.HistoryID
}

// Profile gets the mailbox's address and newest historyId: 1 quota unit.
func (c *Client) Profile(ctx context.Context, account string) (Profile, error) {
	call := c.service.Users.GetProfile(me)
	p, err := do(ctx, c, account, unitsProfile, fault.NotPermitted, call.Context, call.Do)
	if err != nil {
		return Profile{}, fmt.Errorf("getProfile of account %s: %w", account, err)
	}
	return Profile{mail.NormalizeAddress(p.EmailAddress), mail.HistoryID(p.HistoryId)}, nil
}

// Address gets the mailbox's address, as mail.NormalizeAddress gives it: 1 quota unit.
func (c *Client) Address(ctx context.Context, account string) (string, error) {
	p, err := c.Profile(ctx, account)
	return p.Email, err
}

// CurrentHistoryID gets the mailbox's newest historyId: 1 quota unit.
func (c *Client) CurrentHistoryID(ctx context.Context, account string) (mail.HistoryID, error) {
	p, err := c.Profile(ctx, account)
	return p.HistoryID, err
}

// Watch asks for notifications on a topic, by its full name: 100 quota units. It returns the newest
// historyId, and when the watch ends: 7 days from now.
func (c *Client) Watch(ctx context.Context, account, topic string) (mail.HistoryID, time.Time, error) {
	call := c.service.Users.Watch(me, &gmail.WatchRequest{TopicName: topic})
	answer, err := do(ctx, c, account, unitsWatch, fault.NotPermitted, call.Context, call.Do)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("watch of account %s: %w", account, err)
	}
	return mail.HistoryID(answer.HistoryId), time.UnixMilli(answer.Expiration).UTC(), nil
}

// do makes one call for an account, when its units may be spent. with sets the call's context.
func do[T, C any](
	ctx context.Context, c *Client, account string, units int, notFound fault.Code,
	with func(context.Context) C, call func(...googleapi.CallOption) (T, error),
) (T, error) {
	if err := c.quotas.take(ctx, account, units, c.imports); err != nil {
		var none T
		return none, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, accountKey{}, account), callTimeout)
	defer cancel()
	with(ctx)
	answer, err := call()
	err = c.classify(err, notFound)
	switch fault.CodeOf(err) {
	case fault.Throttled:
		c.quotas.close(account, c.until(err))
		err = errors.Join(err, c.accounts.BlockGmail(ctx, account, c.until(err)))
	case fault.ProjectThrottled:
		c.gate.close(c.until(err))
	case fault.ReauthRequired:
		c.tokens.forget(account)
		err = errors.Join(err, c.accounts.RequireReauth(ctx, account))
	}
	return answer, err
}

// until is the moment up to which throttling asks for patience.
func (c *Client) until(err error) time.Time {
	return fault.RetryAtOr(err, c.now().Add(throttledFor))
}

// accountKey carries the account from a call to the transport, which the Gmail client's interface
// leaves no other way to tell.
type accountKey struct{}

// A transport adds the account's access token. A token that Gmail refuses is replaced once.
type transport struct {
	tokens *tokens
	base   http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	account, _ := r.Context().Value(accountKey{}).(string)
	token, err := t.tokens.get(r.Context(), account, "")
	if err != nil {
		return nil, err
	}
	response, err := t.base.RoundTrip(authorized(r, token))
	if err != nil || response.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return response, err
	}
	response.Body.Close()
	if token, err = t.tokens.get(r.Context(), account, token); err != nil {
		return nil, err
	}
	again := authorized(r, token)
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return t.base.RoundTrip(again)
}

func authorized(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func pageOf(answer *gmail.ListHistoryResponse) lane.Page {
	page := lane.Page{
		Records:       make([]lane.Record, 0, len(answer.History)),
		NextPageToken: answer.NextPageToken,
		HistoryID:     mail.HistoryID(answer.HistoryId),
	}
	for _, h := range answer.History {
		if h == nil {
			continue
		}
		record := lane.Record{ID: mail.HistoryID(h.Id)}
		add := func(list lane.List, m *gmail.Message, labels []string) {
			if m == nil || m.Id == "" {
				return
			}
			record.Entries = append(record.Entries, lane.Entry{
				List: list, MessageID: m.Id, ThreadID: m.ThreadId, Labels: labels, MessageLabels: m.LabelIds,
			})
		}
		for _, e := range h.MessagesAdded {
			add(lane.MessagesAdded, e.Message, nil)
		}
		for _, e := range h.MessagesDeleted {
			add(lane.MessagesDeleted, e.Message, nil)
		}
		for _, e := range h.LabelsAdded {
			add(lane.LabelsAdded, e.Message, e.LabelIds)
		}
		for _, e := range h.LabelsRemoved {
			add(lane.LabelsRemoved, e.Message, e.LabelIds)
		}
		page.Records = append(page.Records, record)
	}
	return page
}
