// Package firestoredb keeps accounts, messages, credentials and the ledger in Firestore. It alone
// knows their documents.
//
// Every write checks what it replaces: it is made on the condition that the document is still the
// one that was read, and where it is not, the document is read again. The client library may repeat
// a commit whose reply was lost and then report a conflict with itself, so a conflict is never taken
// for somebody else's write: only reading again tells. Errors are transient faults.
package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// callTimeout bounds each call, so that a push is answered within 10 s when Firestore is down.
const callTimeout = 2500 * time.Millisecond

// maxWrites is how often a conditional write is tried before its caller is told to come again.
const maxWrites = 50

// A DB is one Firestore database. It may be used by many goroutines.
type DB struct {
	client *firestore.Client
	now    func() time.Time
}

// Open returns the configured database. With FIRESTORE_EMULATOR_HOST set it is the emulator's. It
// makes no call yet.
func Open(ctx context.Context, c config.Config, now func() time.Time, dial ...grpc.DialOption) (*DB, error) {
	options, err := clientOptions(c.FirestoreEmulator, dial)
	if err != nil {
		return nil, err
	}
	client, err := firestore.NewClientWithDatabase(ctx, c.Project, c.Database, options...)
	if err != nil {
		return nil, fmt.Errorf("open Firestore database %s of project %s: %w", c.Database, c.Project, err)
	}
	return &DB{client, now}, nil
}

func clientOptions(emulator string, dial []grpc.DialOption) ([]option.ClientOption, error) {
	if emulator == "" || len(dial) == 0 {
		options := make([]option.ClientOption, len(dial))
		for i, o := range dial {
			options[i] = option.WithGRPCDialOption(o)
		}
		return options, nil
	}
	// The client library dials the emulator without regard to options, so it is dialled here.
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(emulatorOwner{}))
	conn, err := grpc.NewClient(emulator, dial...)
	if err != nil {
		return nil, fmt.Errorf("open the Firestore emulator: %w", err)
	}
	return []option.ClientOption{option.WithGRPCConn(conn)}, nil
}

// emulatorOwner is let in by the emulator whatever its rules say, as server libraries are.
type emulatorOwner struct{}

func (emulatorOwner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer owner"}, nil
}

func (emulatorOwner) RequireTransportSecurity() bool { return false }

// Close releases the connections.
func (db *DB) Close() error { return db.client.Close() }

// fields are a document's, as Firestore holds them. What is empty is not there.
type fields map[string]any

func (f fields) set(name string, value any) {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.IsZero() || (v.Kind() == reflect.Slice && v.Len() == 0) || (v.Kind() == reflect.Map && v.Len() == 0) {
		return
	}
	f[name] = value
}

func (f fields) text(name string) string      { s, _ := f[name].(string); return s }
func (f fields) flag(name string) bool        { b, _ := f[name].(bool); return b }
func (f fields) number(name string) int64     { n, _ := f[name].(int64); return n }
func (f fields) moment(name string) time.Time { t, _ := f[name].(time.Time); return t }
func (f fields) bytes(name string) []byte     { b, _ := f[name].([]byte); return b }
func (f fields) group(name string) fields     { m, _ := f[name].(map[string]any); return m }
func (f fields) historyID(name string) mail.HistoryID {
	return mail.HistoryID(max(f.number(name), 0))
}

func (f fields) list(name string) []any { l, _ := f[name].([]any); return l }

func (f fields) texts(name string) []string {
	var texts []string
	for _, item := range f.list(name) {
		if s, ok := item.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}

// changes gives the updates that make the document f into become.
func (f fields) changes(become fields) []firestore.Update {
	var updates []firestore.Update
	for name, value := range become {
		if !reflect.DeepEqual(f[name], value) {
			updates = append(updates, firestore.Update{FieldPath: firestore.FieldPath{name}, Value: value})
		}
	}
	for name := range f {
		if _, stays := become[name]; !stays {
			updates = append(updates, firestore.Update{FieldPath: firestore.FieldPath{name}, Value: firestore.Delete})
		}
	}
	return updates
}

// written tells a conflict, which is answered by reading again, from a failure.
func written(err error, what string, args ...any) (bool, error) {
	switch status.Code(err) {
	case codes.OK:
		return true, nil
	case codes.FailedPrecondition, codes.AlreadyExists, codes.NotFound, codes.Aborted:
		return false, nil
	}
	return false, failed(err, what, args...)
}

func failed(err error, what string, args ...any) error {
	return fault.Transient(fault.FirestoreUnavailable, fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err))
}

// replace is the conditional write of one document: create where nothing was read, else update.
func (db *DB) replace(ctx context.Context, ref *firestore.DocumentRef, version time.Time, read, become fields) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	if version.IsZero() {
		_, err = ref.Create(ctx, map[string]any(become))
	} else if updates := read.changes(become); len(updates) > 0 {
		_, err = ref.Update(ctx, updates, firestore.LastUpdateTime(version))
	}
	return written(err, "write %s", ref.ID)
}

// get reads one document; nil where there is none.
func (db *DB) get(ctx context.Context, ref *firestore.DocumentRef) (*firestore.DocumentSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	snapshot, err := ref.Get(ctx)
	switch status.Code(err) {
	case codes.OK:
		return snapshot, nil
	case codes.NotFound:
		return nil, nil
	}
	return nil, failed(err, "read %s", ref.ID)
}

// query reads all documents that a query finds.
func (db *DB) query(ctx context.Context, q firestore.Query, what string) ([]*firestore.DocumentSnapshot, error) {
	return db.queryWithin(ctx, callTimeout, q, what)
}

func (db *DB) queryWithin(ctx context.Context, limit time.Duration, q firestore.Query, what string) ([]*firestore.DocumentSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	snapshots, err := q.Documents(ctx).GetAll()
	if err != nil {
		return nil, failed(err, "find %s", what)
	}
	return snapshots, nil
}

// count counts what a query finds, at a thousandth of what reading it costs.
func (db *DB) count(ctx context.Context, limit time.Duration, q firestore.Query, what string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
	if err != nil {
		return 0, failed(err, "count %s", what)
	}
	n, ok := result["n"].(*firestorepb.Value)
	if !ok {
		return 0, failed(errors.New("the answer holds no number"), "count %s", what)
	}
	return int(n.GetIntegerValue()), nil
}

// change repeats read, next, conditional write until nobody comes in between.
func change[T any](
	ctx context.Context,
	read func() (T, error),
	next func(T) (T, bool),
	write func(read, become T) (bool, error),
	what string,
) (T, error) {
	var none T
	for range maxWrites {
		before, err := read()
		if err != nil {
			return none, err
		}
		become, changes := next(before)
		if !changes {
			return before, nil
		}
		done, err := write(before, become)
		if err != nil {
			return none, err
		}
		if done {
			return become, nil
		}
		if err := ctx.Err(); err != nil {
			return none, failed(err, "write %s", what)
		}
	}
	return none, fault.Transient(fault.Conflict, fmt.Errorf("%s kept changing under %d writes", what, maxWrites))
}
