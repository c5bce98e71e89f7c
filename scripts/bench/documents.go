package main

import (
	"context"
	"sync/atomic"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
)

// A documentMeter counts the documents that are read from and written to Firestore, as they are paid for:
// a count is a read, and what is asked for and not there is one, too.
type documentMeter struct{ reads, writes atomic.Int64 }

func (m *documentMeter) counts() (reads, writes int) {
	return int(m.reads.Load()), int(m.writes.Load())
}

func (m *documentMeter) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if commit, ok := req.(*firestorepb.CommitRequest); ok && err == nil {
				m.writes.Add(int64(len(commit.Writes)))
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, method, opts...)
			return &countedStream{stream, m}, err
		}),
	}
}

type countedStream struct {
	grpc.ClientStream
	meter *documentMeter
}

// RecvMsg counts what an answer brings.
func (s *countedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err != nil {
		return err
	}
	switch m := message.(type) {
	case *firestorepb.BatchGetDocumentsResponse:
		if m.GetFound() != nil || m.GetMissing() != "" {
			s.meter.reads.Add(1)
		}
	case *firestorepb.RunQueryResponse:
		if m.Document != nil {
			s.meter.reads.Add(1)
		}
	case *firestorepb.RunAggregationQueryResponse:
		if m.Result != nil {
			s.meter.reads.Add(1)
		}
	}
	return nil
}
