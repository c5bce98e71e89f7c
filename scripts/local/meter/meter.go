// Package meter counts what functions call: Firestore and Pub/Sub, by what for and by method. Calls
// that failed are not counted, so a conditional write that came too late is none.
package meter

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/delivery"
)

// A Meter counts calls. It may be used by many goroutines.
type Meter struct {
	mu    sync.Mutex
	calls map[call]int
}

type call struct {
	purpose delivery.Purpose
	method  string // without its service, such as Commit
}

// Options connect the meter: see app.WithGRPC.
func (m *Meter) Options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err == nil {
				m.count(ctx, method)
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := stream(ctx, desc, cc, method, opts...)
			if err == nil {
				m.count(ctx, method)
			}
			return s, err
		}),
	}
}

func (m *Meter) count(ctx context.Context, method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = map[call]int{}
	}
	m.calls[call{delivery.PurposeOf(ctx), method[strings.LastIndexByte(method, '/')+1:]}]++
}

// Calls returns how often any of the methods was called for a function.
func (m *Meter) Calls(consumer string, methods ...string) int {
	return m.CallsFor(func(p delivery.Purpose) bool { return p.Consumer == consumer }, methods...)
}

// CallsFor returns how often any of the methods was called for the purposes that are asked for.
func (m *Meter) CallsFor(asked func(delivery.Purpose) bool, methods ...string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for c, count := range m.calls {
		for _, method := range methods {
			if c.method == method && asked(c.purpose) {
				n += count
			}
		}
	}
	return n
}

// Reset starts counting anew.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = nil
}
