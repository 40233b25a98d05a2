package gateway

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/testkit"
)

// serialAt is the serial number of the certificate that a server shows.
func serialAt(addr string, c *tls.Config) (int64, error) {
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// The gateway speaks TLS 1.3 and no older one, and shows a certificate that was replaced while it runs.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testkit.WriteCertificate(t, certFile, keyFile, 1)
	r := start(t, func(f *Flags) { f.TLSCert, f.TLSKey = certFile, keyFile })
	addr, https := strings.CutPrefix(r.url, "https://")
	if !https {
		t.Fatal(r.url)
	}
	trusting := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // G402: the certificate is compared by its number
	if n, err := serialAt(addr, trusting); err != nil || n != 1 {
		t.Fatalf("certificate %d, %v", n, err)
	}
	old := trusting.Clone()
	old.MaxVersion = tls.VersionTLS12
	if _, err := serialAt(addr, old); err == nil {
		t.Error("a client of TLS 1.2 is served")
	}
	s, err := newServer(Flags{TLSCert: certFile, TLSKey: keyFile}, daemon.Env{}, nil)
	servicetest.OK(t, err)
	if at, known := s.certificateEnds(); !known || time.Until(at) <= 0 || time.Until(at) > time.Hour {
		t.Errorf("the certificate ends at %v, known: %v", at, known)
	}
	testkit.WriteCertificate(t, certFile, keyFile, 2)
	servicetest.Eventually(t, "the new certificate is shown", func() bool {
		n, err := serialAt(addr, trusting)
		return err == nil && n == 2
	})
}
