// Package httpserve holds what the HTTP servers of the gateway and of the MCP gate share.
package httpserve

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"
)

// IsLoopback reports whether a host, a name or an address, is this machine.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Certificates reads a certificate again when its file has changed. It is safe for concurrent use.
type Certificates struct {
	cert, key string
	failed    func(error)

	mu      sync.Mutex
	held    *tls.Certificate
	read    time.Time // modification time of the file
	checked time.Time
}

// lookEvery is the least time between two looks at the file.
const lookEvery = time.Second

// NewCertificates reads a certificate and its key. failed is told when they cannot be read again.
func NewCertificates(cert, key string, failed func(error)) (*Certificates, error) {
	c := &Certificates{cert: cert, key: key, failed: failed}
	return c, c.reload(time.Now())
}

// reload reads the certificate if its file has changed; the caller holds mu, or is the only one.
func (c *Certificates) reload(now time.Time) error {
	c.checked = now
	info, err := os.Stat(c.cert)
	if err != nil || c.held != nil && info.ModTime().Equal(c.read) {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.held, c.read = &pair, info.ModTime()
	return nil
}

// Current is the certificate for a handshake (tls.Config.GetCertificate). One that cannot be read leaves
// the earlier one in use. The error is always nil.
func (c *Certificates) Current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= lookEvery {
		if err := c.reload(now); err != nil {
			c.failed(err)
		}
	}
	return c.held, nil
}

// Ends is when the certificate ends that handshakes get now.
func (c *Certificates) Ends() time.Time {
	held, _ := c.Current(nil)
	return held.Leaf.NotAfter
}
