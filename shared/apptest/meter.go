package apptest

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/delivery"
)

// A Meter counts the calls to Firestore and Pub/Sub, by the function they were made for and by method.
type Meter struct {
	mu    sync.Mutex
	calls map[call]int
}

type call struct{ consumer, method string }

// Options connect the meter: see app.WithGRPC.
func (m *Meter) Options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			m.count(ctx, method)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			m.count(ctx, method)
			return stream(ctx, desc, cc, method, opts...)
		}),
	}
}

func (m *Meter) count(ctx context.Context, method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = map[call]int{}
	}
	m.calls[call{delivery.Consumer(ctx), method[strings.LastIndexByte(method, '/')+1:]}]++
}

// Calls returns how often a method was called for a function.
func (m *Meter) Calls(consumer, method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[call{consumer, method}]
}

// Reset starts counting anew.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = nil
}
