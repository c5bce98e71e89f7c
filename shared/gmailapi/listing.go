package gmailapi

import (
	"context"
	"fmt"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// ListMessages gets one page, of 500 ids at most, of the messages that carry a label, all messages for
// an empty one, spam and trash included, newest first: 5 quota units. The next page's token is empty on
// the last one. A listing may lag behind what a fetch shows.
func (c *Client) ListMessages(ctx context.Context, account, label, pageToken string) (ids []string, next string, err error) {
	call := c.service.Users.Messages.List(me).IncludeSpamTrash(true).MaxResults(pageSize).Fields("messages/id", "nextPageToken")
	if label != "" {
		call = call.LabelIds(label)
	}
	if pageToken != "" {
		call = call.PageToken(pageToken)
	}
	answer, err := do(ctx, c, account, unitsListing, fault.NotPermitted, call.Context, call.Do)
	if err != nil {
		return nil, "", fmt.Errorf("messages.list of account %s: %w", account, err)
	}
	ids = make([]string, 0, len(answer.Messages))
	for _, m := range answer.Messages {
		if m != nil && m.Id != "" {
			ids = append(ids, m.Id)
		}
	}
	return ids, answer.NextPageToken, nil
}

// Labels gets every label of the mailbox, Gmail's own and the user's: 1 quota unit.
func (c *Client) Labels(ctx context.Context, account string) ([]mail.Label, error) {
	call := c.service.Users.Labels.List(me)
	answer, err := do(ctx, c, account, unitsLabels, fault.NotPermitted, call.Context, call.Do)
	if err != nil {
		return nil, fmt.Errorf("labels.list of account %s: %w", account, err)
	}
	var labels []mail.Label
	for _, l := range answer.Labels {
		if l != nil && l.Id != "" {
			labels = append(labels, mail.Label{ID: l.Id, Name: l.Name})
		}
	}
	return labels, nil
}
