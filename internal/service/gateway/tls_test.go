package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// writeCertificate writes a certificate with a serial number, and its key. Its file is as old as the
// number says, so that two writes in one tick of the clock differ.
func writeCertificate(tb testing.TB, certFile, keyFile string, serial int64) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servicetest.OK(tb, err)
	now := time.Now()
	form := x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, &form, &form, &key.PublicKey, key)
	servicetest.OK(tb, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	servicetest.OK(tb, err)
	servicetest.OK(tb, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	servicetest.OK(tb, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	at := now.Add(time.Duration(serial) * time.Minute)
	servicetest.OK(tb, os.Chtimes(certFile, at, at))
}

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
	writeCertificate(t, certFile, keyFile, 1)
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
	writeCertificate(t, certFile, keyFile, 2)
	servicetest.Eventually(t, "the new certificate is shown", func() bool {
		n, err := serialAt(addr, trusting)
		return err == nil && n == 2
	})
}
