package httpserve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bound is a server and the listener that it serves.
type Bound struct {
	Listener net.Listener
	Server   *http.Server
}

// Serve serves until ctx ends or a server fails, which is the error that it returns. Then it calls stopping
// and gives the requests under way the time stopTime; what is left of them is cut off. It changes the servers' handlers.
func Serve(ctx context.Context, stopTime time.Duration, stopping func(), servers ...Bound) (err error) {
	served := make(chan error, len(servers))
	for _, b := range servers {
		b.Server.Handler = closeBehindChunks(b.Server.Handler)
		go func() { served <- b.Server.Serve(b.Listener) }()
	}
	select {
	case err = <-served:
		err = fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	stopping()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	var stopped sync.WaitGroup
	for _, b := range servers {
		stopped.Go(func() {
			if b.Server.Shutdown(last) != nil {
				_ = b.Server.Close() // clients that do not read
			}
		})
	}
	stopped.Wait()
	return err
}

// closeBehindChunks ends a connection with a chunked request: the library ignores a Content-Length beside the chunks and
// does not tell, so what follows may be what a proxy in front took for the body.
func closeBehindChunks(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
