package terraform_test

import (
	"context"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/firestoredb"
)

// Every query that the code can make has the index that it needs: the emulator answers without, and
// Firestore does not.
func TestQueriesHaveTheirIndexes(t *testing.T) {
	t.Parallel()
	known := readIndexes(t)
	made := 0
	for name, queries := range queriesByMethod(t) {
		for _, q := range queries {
			made++
			if problem := known.problem(q); problem != "" {
				t.Errorf("firestoredb.%s: %s", name, problem)
			}
		}
	}
	if made < 15 {
		t.Errorf("only %d queries were seen", made)
	}
}

// indexes are what Terraform makes.
type indexes struct {
	composite map[string][][]string // by collection: the fields of each, with " descending" where they do
	unindexed map[string][]string   // by collection
	due       map[string]string     // by collection: the one field that is indexed over all of them
}

func readIndexes(t *testing.T) indexes {
	t.Helper()
	var composite map[string]struct {
		Collection string
		Fields     []string
	}
	known := indexes{composite: map[string][][]string{}}
	local(t, "indexes", &composite)
	local(t, "unindexed", &known.unindexed)
	local(t, "due", &known.due)
	for _, index := range composite {
		known.composite[index.Collection] = append(known.composite[index.Collection], index.Fields)
	}
	for _, collection := range expiring(t) {
		known.unindexed[collection] = append(known.unindexed[collection], "expireAt")
	}
	return known
}

// expiring are the collections whose documents go by expireAt, which is not indexed.
func expiring(t *testing.T) []string {
	t.Helper()
	var collections []string
	local(t, "expiring_collections", &collections)
	return collections
}

// A query is what decides which index it needs.
type query struct {
	collection string
	all        bool     // of every account at once
	equal      []string // compared for equality
	order      []string // then ordered or compared, with " descending" where it is
}

// problem says what a query lacks. Fields that are compared for equality can be shared among several
// indexes, as long as each ends with what is ordered by: Firestore merges them.
func (known indexes) problem(q query) string {
	if len(q.equal) == 0 || len(q.order) == 0 {
		for _, field := range append(q.equal, q.order...) {
			name := strings.TrimSuffix(field, " descending")
			switch {
			case q.all && known.due[q.collection] != field:
				return "a query over all " + q.collection + " by " + field + " needs an entry in local.due"
			case slices.Contains(known.unindexed[q.collection], name):
				return q.collection + "." + name + " is compared, and local.unindexed takes it out"
			}
		}
		return ""
	}
	covered := map[string]bool{}
	for _, fields := range known.composite[q.collection] {
		prefix := len(fields) - len(q.order)
		if prefix < 1 || !slices.Equal(fields[prefix:], q.order) {
			continue
		}
		if slices.ContainsFunc(fields[:prefix], func(f string) bool { return !slices.Contains(q.equal, f) }) {
			continue
		}
		for _, f := range fields[:prefix] {
			covered[f] = true
		}
	}
	for _, f := range q.equal {
		if !covered[f] {
			return "a query of " + q.collection + " by " + strings.Join(q.equal, ", ") + " and then " + strings.Join(q.order, ", ") + " needs an entry in local.indexes"
		}
	}
	return ""
}

// queriesByMethod calls every method of the store with made-up arguments and returns the queries that it
// sent. Nothing answers them.
func queriesByMethod(t *testing.T) map[string][]query {
	t.Helper()
	var mu sync.Mutex
	var sent []query
	record := func(q *firestorepb.StructuredQuery) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, describe(q))
	}
	db, err := firestoredb.Open(t.Context(), config.Config{Project: "indexes", Database: "(default)", FirestoreEmulator: "127.0.0.1:1"}, time.Now,
		grpc.WithUnaryInterceptor(func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return status.Error(codes.PermissionDenied, "nothing is there")
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			return emptyStream{ctx, record}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	queries := map[string][]query{}
	store := reflect.ValueOf(db)
	for i := range store.NumMethod() {
		method := store.Type().Method(i)
		if method.Name == "Close" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		arguments := []reflect.Value{}
		for j := 1; j < method.Type.NumIn(); j++ {
			arguments = append(arguments, madeUp(ctx, method.Type.In(j)))
		}
		sent = nil
		store.Method(i).Call(arguments)
		cancel()
		queries[method.Name] = sent
	}
	return queries
}

// madeUp is a value in which no text is empty: an empty one may mean that nothing is asked for.
func madeUp(ctx context.Context, of reflect.Type) reflect.Value {
	value := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[context.Context]():
		value.Set(reflect.ValueOf(ctx))
	case of == reflect.TypeFor[time.Time]():
		value.Set(reflect.ValueOf(time.Now()))
	case of.Kind() == reflect.String:
		value.SetString("x")
	case of.Kind() == reflect.Int:
		value.SetInt(1)
	case of.Kind() == reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value {
			results := make([]reflect.Value, of.NumOut())
			for i := range results {
				results[i] = reflect.Zero(of.Out(i))
			}
			return results
		})
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		value.Set(reflect.Append(value, madeUp(ctx, of.Elem())))
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			if of.Field(i).IsExported() {
				value.Field(i).Set(madeUp(ctx, of.Field(i).Type))
			}
		}
	}
	return value
}

// An emptyStream tells of the query that is sent over it, and answers nothing.
type emptyStream struct {
	ctx    context.Context
	record func(*firestorepb.StructuredQuery)
}

func (s emptyStream) SendMsg(m any) error {
	switch request := m.(type) {
	case *firestorepb.RunQueryRequest:
		s.record(request.GetStructuredQuery())
	case *firestorepb.RunAggregationQueryRequest:
		s.record(request.GetStructuredAggregationQuery().GetStructuredQuery())
	}
	return nil
}

func (s emptyStream) RecvMsg(any) error            { return io.EOF }
func (s emptyStream) Header() (metadata.MD, error) { return nil, nil }
func (s emptyStream) Trailer() metadata.MD         { return nil }
func (s emptyStream) CloseSend() error             { return nil }
func (s emptyStream) Context() context.Context     { return s.ctx }

func describe(q *firestorepb.StructuredQuery) query {
	from := q.GetFrom()[0]
	equal, ranged := map[string]bool{}, map[string]bool{}
	filters := []*firestorepb.StructuredQuery_Filter{q.GetWhere()}
	for len(filters) > 0 {
		f := filters[0]
		filters = append(filters[1:], f.GetCompositeFilter().GetFilters()...)
		if compared := f.GetFieldFilter(); compared != nil {
			switch compared.GetOp() {
			case firestorepb.StructuredQuery_FieldFilter_EQUAL, firestorepb.StructuredQuery_FieldFilter_IN:
				equal[compared.GetField().GetFieldPath()] = true
			default:
				ranged[compared.GetField().GetFieldPath()] = true
			}
		}
	}
	described := query{collection: from.GetCollectionId(), all: from.GetAllDescendants(), equal: slices.Sorted(maps.Keys(equal))}
	for _, order := range q.GetOrderBy() {
		field := order.GetField().GetFieldPath()
		delete(ranged, field)
		if field == "__name__" { // every index ends with it
			continue
		}
		if order.GetDirection() == firestorepb.StructuredQuery_DESCENDING {
			field += " descending"
		}
		described.order = append(described.order, field)
	}
	described.order = append(described.order, slices.Sorted(maps.Keys(ranged))...)
	return described
}
