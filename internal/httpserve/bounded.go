package httpserve

import (
	"net"
	"sync"
)

// boundedListener closes connections beyond the bounds as soon as they come: there is no queue that
// strangers could fill.
type boundedListener struct {
	net.Listener
	most, mostOfRemote int

	mu   sync.Mutex
	open map[string]int // by remote address
	all  int
}

// Limit bounds the connections of a listener: all of them, and those from one address that is not this machine's.
func Limit(l net.Listener, most, mostOfRemote int) net.Listener {
	return &boundedListener{Listener: l, most: most, mostOfRemote: mostOfRemote, open: map[string]int{}}
}

// Accept returns the next connection within the bounds.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		remote := remoteOf(c)
		if b.take(remote) {
			return &boundedConn{Conn: c, free: sync.OnceFunc(func() { b.free(remote) })}, nil
		}
		_ = c.Close() // it has said nothing yet
	}
}

// remoteOf is the address of a connection's other side, "" for this machine.
func remoteOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // of TCP
	if net.ParseIP(host).IsLoopback() {
		return ""
	}
	return host
}

func (b *boundedListener) take(remote string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= b.most || remote != "" && b.open[remote] >= b.mostOfRemote {
		return false
	}
	b.all++
	b.open[remote]++
	return true
}

func (b *boundedListener) free(remote string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.open[remote]--; b.open[remote] == 0 {
		delete(b.open, remote)
	}
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	free func()
}

func (c *boundedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
