package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/gmailsim"
)

// bareDigests is the barest program that sends the same digests: for each page of a hundred subscribers it
// reads their mailboxes, as many at once as we do, writes down what it sends, sends it, and writes down
// that it did. It claims nothing, checks nothing, and sends twice when it is run twice.
func (y *yard) bareDigests(ctx context.Context, box *gmailsim.Mailbox) (time.Duration, error) {
	token, err := y.accessToken(box)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	q := y.documents.Collection("subscribers").OrderBy(firestore.DocumentID, firestore.Asc).Limit(100)
	for page := q; ; {
		subscribers, err := page.Documents(ctx).GetAll()
		if err != nil {
			return 0, err
		}
		if len(subscribers) == 0 {
			return time.Since(began), nil
		}
		if err := y.barePage(ctx, token, subscribers); err != nil {
			return 0, err
		}
		page = q.StartAfter(subscribers[len(subscribers)-1].Ref.ID)
	}
}

func (y *yard) barePage(ctx context.Context, token string, subscribers []*firestore.DocumentSnapshot) error {
	digests := make([]map[string]any, len(subscribers))
	errs := make([]error, len(subscribers))
	slots := make(chan struct{}, 8)
	var wait sync.WaitGroup
	for i, s := range subscribers {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			digests[i], errs[i] = y.bareDigest(ctx, s.Data()["accountId"].(string))
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	ref := func(s *firestore.DocumentSnapshot) *firestore.DocumentRef {
		return y.documents.Collection("bareMailings").Doc(s.Ref.ID + ".1")
	}
	write := func(one func(*firestore.Transaction, int) error) error {
		return y.documents.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
			for i := range subscribers {
				if err := one(tx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := write(func(tx *firestore.Transaction, i int) error { return tx.Set(ref(subscribers[i]), digests[i]) }); err != nil {
		return err
	}
	for i, s := range subscribers {
		if err := y.bareSend(ctx, token, s.Data()["email"].(string), digests[i]); err != nil {
			return err
		}
	}
	return write(func(tx *firestore.Transaction, i int) error {
		return tx.Update(ref(subscribers[i]), []firestore.Update{{Path: "status", Value: "DONE"}})
	})
}

func (y *yard) bareDigest(ctx context.Context, account string) (map[string]any, error) {
	ref := y.documents.Collection("accounts").Doc(account)
	if _, err := ref.Get(ctx); err != nil {
		return nil, err
	}
	unreadMessages := ref.Collection("messages").Where("unread", "==", true)
	unread, err := unreadMessages.NewAggregationQuery().WithCount("n").Get(ctx)
	if err != nil {
		return nil, err
	}
	messages, err := ref.Collection("messages").Where("date", ">", time.Now().AddDate(0, 0, -1)).OrderBy("date", firestore.Desc).Limit(100).Documents(ctx).GetAll()
	if err != nil {
		return nil, err
	}
	open := y.documents.Collection("failures").Where("accountId", "==", account)
	failures, err := open.NewAggregationQuery().WithCount("n").Get(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"status": "PENDING", "account": account, "unread": fmt.Sprint(unread["n"]), "new": len(messages), "failures": fmt.Sprint(failures["n"])}, nil
}

func (y *yard) bareSend(ctx context.Context, token, to string, digest map[string]any) error {
	raw := fmt.Sprintf("From: %s\r\nTo: %s\r\nSubject: digest\r\n\r\n%v\r\n", digestSender, to, digest)
	body, err := json.Marshal(map[string]string{"raw": base64.URLEncoding.EncodeToString([]byte(raw))})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, y.env["MAILYARD_GMAIL_ENDPOINT"]+"/gmail/v1/users/me/messages/send", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("a mail was answered %d", response.StatusCode)
	}
	return nil
}
