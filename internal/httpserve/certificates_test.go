package httpserve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// writeCertificate writes a certificate with a serial number, and its key. Its file is as old as the
// number says, so that two writes in one tick of the clock differ.
func writeCertificate(tb testing.TB, certFile, keyFile string, serial int64) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	form := x509.Certificate{SerialNumber: big.NewInt(serial)}
	cert, err := x509.CreateCertificate(rand.Reader, &form, &form, &key.PublicKey, key)
	must(tb, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(tb, err)
	must(tb, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	must(tb, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	at := time.Now().Add(time.Duration(serial) * time.Minute)
	must(tb, os.Chtimes(certFile, at, at))
}

// A certificate that was replaced is shown. One that cannot be read leaves the earlier one in use; at the
// start it is an error.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, certFile, keyFile, 1)
	var failures []error
	c, err := NewCertificates(certFile, keyFile, func(err error) { failures = append(failures, err) })
	must(t, err)
	shown := func() int64 {
		c.checked = time.Time{} // as long ago as need be
		held, err := c.Current(nil)
		must(t, err)
		return held.Leaf.SerialNumber.Int64()
	}
	if n := shown(); n != 1 {
		t.Errorf("certificate %d, want the first", n)
	}
	writeCertificate(t, certFile, keyFile, 2)
	if n := shown(); n != 2 || len(failures) != 0 {
		t.Errorf("certificate %d, %v", n, failures)
	}
	must(t, os.WriteFile(certFile, []byte("broken"), 0o600))
	if n := shown(); n != 2 || len(failures) != 1 {
		t.Errorf("certificate %d, %v", n, failures)
	}
	if _, err := NewCertificates(certFile, keyFile, nil); err == nil {
		t.Error("a broken certificate starts")
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.8.8.8": true, "::1": true, "": false, "0.0.0.0": false, "::": false, "localhost.example": false, "10.0.0.1": false} {
		if IsLoopback(host) != want {
			t.Errorf("%q: want %t", host, want)
		}
	}
}
