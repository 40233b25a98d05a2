package httpserve

import (
	"net"
	"testing"
)

// from is a connection from an address.
type from struct {
	net.Conn
	remote string
	closed *int
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.remote), Port: 1} }
func (f from) Close() error         { *f.closed++; return nil }

// incoming is a listener with connections from addresses.
type incoming struct {
	net.Listener
	remotes []string
	closed  int
}

func (l *incoming) Accept() (net.Conn, error) {
	if len(l.remotes) == 0 {
		return nil, net.ErrClosed
	}
	c := from{nil, l.remotes[0], &l.closed}
	l.remotes = l.remotes[1:]
	return c, nil
}

// Connections are bounded, of all and of one address; there is room again once they are closed.
func TestConnectionsAreBounded(t *testing.T) {
	const most, mostOfRemote = 9, 4
	inner := &incoming{}
	l := Limit(inner, most, mostOfRemote)
	accept := func(n int, remote string) (open []net.Conn) {
		for range n {
			inner.remotes = append(inner.remotes, remote)
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return open
			}
			open = append(open, c)
		}
	}
	far := accept(mostOfRemote+3, "192.0.2.1")
	near := accept(most, "127.0.0.1")
	if len(far) != mostOfRemote || len(near) != most-mostOfRemote || inner.closed != 3+mostOfRemote {
		t.Fatalf("%d from one address, %d from this machine, %d refused", len(far), len(near), inner.closed)
	}
	for range 2 { // a server may close twice
		if err := far[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := accept(2, "192.0.2.1"); len(got) != 1 {
		t.Errorf("after one was closed there is room for %d", len(got))
	}
}
