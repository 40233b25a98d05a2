package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// WriteCertificate writes a certificate of 127.0.0.1 with a serial number, and its key. Its file is as old
// as the number says, so that two writes in one tick of the clock differ.
func WriteCertificate(tb testing.TB, certFile, keyFile string, serial int64) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	OK(tb, err)
	now := time.Now()
	form := x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, &form, &form, &key.PublicKey, key)
	OK(tb, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	OK(tb, err)
	OK(tb, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	OK(tb, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	at := now.Add(time.Duration(serial) * time.Minute)
	OK(tb, os.Chtimes(certFile, at, at))
}
