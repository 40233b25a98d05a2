package httpserve

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// A certificate that was replaced is shown. One that cannot be read leaves the earlier one in use; at the
// start it is an error.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testkit.WriteCertificate(t, certFile, keyFile, 1)
	var failures []error
	c, err := NewCertificates(certFile, keyFile, func(err error) { failures = append(failures, err) })
	testkit.OK(t, err)
	shown := func() int64 {
		c.checked = time.Time{} // as long ago as need be
		held, err := c.Current(nil)
		testkit.OK(t, err)
		return held.Leaf.SerialNumber.Int64()
	}
	if n := shown(); n != 1 {
		t.Errorf("certificate %d, want the first", n)
	}
	if left := time.Until(c.Ends()); left <= 0 {
		t.Errorf("it ended %v ago", -left)
	}
	testkit.WriteCertificate(t, certFile, keyFile, 2)
	if n := shown(); n != 2 || len(failures) != 0 {
		t.Errorf("certificate %d, %v", n, failures)
	}
	testkit.OK(t, os.WriteFile(certFile, []byte("broken"), 0o600))
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
