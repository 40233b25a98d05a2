package gateclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A request to a gateway from which nothing comes ends long before the call's time, and the next one does not use its
// connection, of a gateway or proxy that speaks HTTP/2 either.
func TestSilentGateway(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var conns, asked atomic.Int32
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client is gone
			<-r.Context().Done()
		}))
		s.EnableHTTP2 = http2
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns.Add(1)
			}
		}
		s.StartTLS()
		a := NewAsker(Peer{gateway: s.URL, token: "t"})
		trusting := transport.Clone()
		trusting.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
		trusting.TLSClientConfig.RootCAs.AddCert(s.Certificate())
		a.client.Transport, a.most = trusting, 100*time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.Propose(ctx, []byte(`{}`), ""); !errors.Is(err, ErrTooLate) || ctx.Err() != nil {
			t.Errorf("HTTP/2 %t, a proposal: %v", http2, err)
		}
		if _, err := a.status(ctx, "w", 0); !errors.Is(err, ErrTooLate) || ctx.Err() != nil {
			t.Errorf("HTTP/2 %t, a status: %v", http2, err)
		}
		if conns.Load() != 2 || asked.Load() > 2 { // fewer on a machine that is slow to shake hands
			t.Errorf("HTTP/2 %t: %d connections for 2 requests, %d arrived", http2, conns.Load(), asked.Load())
		}
		s.Close()
	}
}
