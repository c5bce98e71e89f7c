package app_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// answerWithin is the promise of design section 6: when something it needs is down, a push is answered
// within 10 seconds.
const answerWithin = 10 * time.Second

// hang makes every call to a service wait until its caller gives up.
func hang(service string) app.Option {
	hangs := func(method string) bool { return strings.Contains(method, service) }
	return app.WithGRPC(
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if hangs(method) {
				<-ctx.Done()
				return ctx.Err()
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if hangs(method) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return stream(ctx, desc, cc, method, opts...)
		}))
}

func TestAnswersInTimeWhenSomethingHangs(t *testing.T) {
	t.Parallel()
	for _, down := range []struct {
		what   string
		option app.Option
		fault  gmailsim.Fault
	}{
		{what: "Firestore", option: hang("google.firestore")},
		{what: "Pub/Sub", option: hang("google.pubsub")},
		{what: "everything Google", option: hang("google.")},
		{what: "Gmail", fault: gmailsim.Fault{Method: "messages.get", Hang: true}},
		{what: "listing", fault: gmailsim.Fault{Method: "history.list", Hang: true}},
		{what: "the token server", fault: gmailsim.Fault{Method: "token", Hang: true}},
	} {
		t.Run(down.what, func(t *testing.T) {
			t.Parallel()
			y := apptest.New(t, apptest.Options{})
			box := addMailbox(t, y, "kim@example.com", "refresh")
			account := y.Link(box, "refresh", mail.HistoryID(box.HistoryID()))
			id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"})
			if err != nil {
				t.Fatal(err)
			}
			var options []app.Option
			if down.option != nil {
				options = append(options, down.option)
			}
			if down.fault.Method != "" {
				if _, err := y.Gmail.AddFault(down.fault); err != nil {
					t.Fatal(err)
				}
			}
			instance := y.Instance(options...)
			for _, entryPoint := range []string{"Ingest", "MessageAdded", "MessageRead", "MessagePermanentlyDeleted", "DeadLetter"} {
				push := apptest.Push{Data: notification(box), MessageID: "1", Attempt: 2}
				for _, l := range y.Catalogue.Lanes {
					if l.EntryPoint == entryPoint {
						push.Data, push.Attributes = y.Encode(mail.Event{AccountID: account.ID, MessageID: id, Lane: l.Key, HistoryID: mail.HistoryID(box.HistoryID())})
					}
				}
				began := time.Now()
				status := y.PostTo(instance, entryPoint, y.Body(push), nil)
				if took := time.Since(began); took >= answerWithin {
					t.Errorf("%s was answered after %v", entryPoint, took)
				}
				if status != http.StatusServiceUnavailable && status != http.StatusNoContent {
					t.Errorf("%s was answered %d", entryPoint, status)
				}
			}
			// Nothing was acknowledged that had not been done: what was answered 503 comes back, and is.
			y.Gmail.ClearFaults()
			for _, l := range y.Catalogue.Lanes[:2] {
				data, attributes := y.Encode(mail.Event{AccountID: account.ID, MessageID: id, Lane: l.Key, HistoryID: mail.HistoryID(box.HistoryID())})
				if status := y.Post(l.EntryPoint, apptest.Push{Data: data, Attributes: attributes, Attempt: 2}); status != http.StatusNoContent {
					t.Errorf("%s, once all is up again, was answered %d", l.EntryPoint, status)
				}
			}
			if m := y.Message(account.ID, id); !m.HasContent {
				t.Errorf("the message is %+v", m)
			}
		})
	}
}
