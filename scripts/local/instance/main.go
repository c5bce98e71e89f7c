// Command instance is one instance of every function, for tests that end it at any moment and for
// benchmarks. It reads its environment as the functions do, and differs from what is deployed by its
// flags alone: a sender that is not Gmail need not be waited for. It serves on an address, or on the
// listener that it is started with as its file 3.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"mailyard.internal/mailyard/functions/digest"
	"mailyard.internal/mailyard/shared/app"
)

func main() {
	ahead := flag.Duration("ahead", 0, "how far its clock is ahead")
	pace := flag.Duration("pace", 0, "time between two sends of a digest")
	patience := flag.Duration("send-timeout", time.Second, "how long a send may take")
	chunk := flag.Int("chunk", digest.ChunkSize, "how many subscribers or mailings a step of a digest works on")
	refused := flag.Float64("refused", 0, "the share of connections to Gmail that are refused")
	seed := flag.Uint64("seed", 0, "decides which ones")
	address := flag.String("listen", "", "where it answers; without it, on file 3")
	flag.Parse()
	http.DefaultTransport = &http.Transport{DialContext: dialer(*refused, *seed), MaxIdleConnsPerHost: 10}
	a := app.New(os.LookupEnv, os.Stderr,
		app.WithClock(func() time.Time { return time.Now().Add(*ahead) }), app.WithGmailQuota(1e9),
		app.WithDigestPace(*pace, time.Millisecond), app.WithDigestChunk(*chunk), app.WithSendTimeout(*patience))
	entryPoints, err := a.EntryPoints()
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, e := range entryPoints {
		mux.Handle("/"+e.Name, e.Handler)
	}
	listen := func() (net.Listener, error) { return net.FileListener(os.NewFile(3, "listener")) }
	if *address != "" {
		listen = func() (net.Listener, error) { return net.Listen("tcp", *address) }
	}
	listener, err := listen()
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, mux))
}

// dialer refuses a share of connections, as nobody listening does.
func dialer(share float64, seed uint64) func(ctx context.Context, network, address string) (net.Conn, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	turn := make(chan struct{}, 1)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		turn <- struct{}{}
		refused := random.Float64() < share
		<-turn
		if refused {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.Join(errors.New("refused by the test"), syscall.ECONNREFUSED)}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}
