package gmailapi

import (
	"context"
	"fmt"

	"mailyard.internal/mailyard/shared/fault"
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
	answer, err := do(ctx, c, account, fault.NotPermitted, call.Context, call.Do)
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
