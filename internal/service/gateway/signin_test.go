package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
)

// mapSubject stores a mapping, as `countersign token create --certificate-subject` does.
func (r *rig) mapSubject(id, subject, user, role string, revoked bool) {
	r.tb.Helper()
	now := time.Now()
	proof, err := token.ProofOf(subject)
	servicetest.OK(r.tb, err)
	rec := token.Record{Hash: token.Hash(subject), Proof: proof, Tenant: servicetest.Tenant, User: user, Role: role, CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour)}
	if revoked {
		rec.RevokedAt = &now
	}
	body, err := json.Marshal(rec)
	servicetest.OK(r.tb, err)
	r.put(streams.BucketTokens, token.Key(servicetest.Tenant, id), body)
}

// authority is a certificate authority of a test.
type authority struct {
	tb   testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servicetest.OK(tb, err)
	form := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, &form, &form, &key.PublicKey, key)
	servicetest.OK(tb, err)
	cert, err := x509.ParseCertificate(der)
	servicetest.OK(tb, err)
	return &authority{tb, key, cert}
}

// client issues a client certificate with the common names, in order.
func (a *authority) client(change func(*x509.Certificate), names ...string) tls.Certificate {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servicetest.OK(a.tb, err)
	var rdn pkix.RDNSequence
	for _, n := range names {
		rdn = append(rdn, pkix.RelativeDistinguishedNameSET{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: n}})
	}
	raw, err := asn1.Marshal(rdn)
	servicetest.OK(a.tb, err)
	form := x509.Certificate{SerialNumber: big.NewInt(2), RawSubject: raw, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * time.Minute),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(&form)
	}
	der, err := x509.CreateCertificate(rand.Reader, &form, a.cert, &key.PublicKey, a.key)
	servicetest.OK(a.tb, err)
	leaf, err := x509.ParseCertificate(der)
	servicetest.OK(a.tb, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// A client certificate lets in what its whole subject is mapped to, and nothing more.
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, caFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	testkit.WriteCertificate(t, certFile, keyFile, 1)
	ours, others := newAuthority(t), newAuthority(t)
	servicetest.OK(t, os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.cert.Raw}), 0o600))
	r := start(t, func(f *Flags) { f.TLSCert, f.TLSKey, f.ClientCA = certFile, keyFile, caFile })
	r.mapSubject("m1", token.CertificateNamed("CN=web1"), servicetest.Runtime, token.Runtime, false)
	r.mapSubject("m2", token.CertificateNamed("CN=sam"), "sam", token.Subscriber, false)
	r.mapSubject("m3", token.CertificateNamed("CN=both"), "sam", token.Subscriber, false)
	r.mapSubject("m4", token.CertificateNamed("CN=both"), servicetest.Runtime, token.Runtime, false)
	client := func(certs ...tls.Certificate) *http.Client {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, //nolint:gosec // G402: the test is about the client's certificate
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &certs[0], nil
			}}}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	post := func(c *http.Client, path, authorization string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, strings.NewReader(`{}`))
		servicetest.OK(t, err)
		req.Header.Set("Content-Type", "application/json")
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		res, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Body.Close()
	}
	web1 := client(ours.client(nil, "web1"))
	servicetest.Eventually(t, "the mapped certificate is let in", func() bool {
		status, err := post(web1, "/validate-tool-precheck", "")
		return err == nil && status == 200
	})
	for name, c := range map[string]struct {
		client              *http.Client
		path, authorization string
		status              int
	}{
		"a token without a certificate":     {client(), "/validate-tool-precheck", "Bearer " + r.tokens["runtime"], 200},
		"neither":                           {client(), "/validate-tool-precheck", "", 401},
		"unmapped":                          {client(ours.client(nil, "web2")), "/validate-tool-precheck", "", 401},
		"a second common name":              {client(ours.client(nil, "web2", "web1")), "/validate-tool-precheck", "", 401},
		"a name that looks like two parts":  {client(ours.client(nil, "web1,CN=x")), "/validate-tool-precheck", "", 401},
		"no name":                           {client(ours.client(nil)), "/validate-tool-precheck", "", 401},
		"mapped twice":                      {client(ours.client(nil, "both")), "/validate-tool-precheck", "", 401},
		"a subscriber may not ask":          {client(ours.client(nil, "sam")), "/event", "", 403},
		"a certificate mends no bad token":  {web1, "/validate-tool-precheck", "Bearer " + r.tokens["expired"], 401},
		"a token counts, not a certificate": {web1, "/validate-tool-precheck", "Bearer " + r.tokens["subscriber"], 403},
		"the subject as a token":            {client(), "/validate-tool-precheck", "Bearer certificate:CN=web1", 401},
	} {
		if status, err := post(c.client, c.path, c.authorization); err != nil || status != c.status {
			t.Errorf("%s: %d, %v", name, status, err)
		}
	}
	for name, cert := range map[string]tls.Certificate{
		"another authority's":  others.client(nil, "web1"),
		"expired":              ours.client(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "web1"),
		"a server certificate": ours.client(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "web1"),
	} {
		if status, err := post(client(cert), "/validate-tool-precheck", ""); err == nil {
			t.Errorf("%s: answered %d", name, status)
		}
	}
	r.mapSubject("m1", token.CertificateNamed("CN=web1"), servicetest.Runtime, token.Runtime, true)
	servicetest.Eventually(t, "a revoked mapping counts no more, on an open connection either", func() bool {
		status, err := post(web1, "/validate-tool-precheck", "")
		return err == nil && status == 401
	})
}

// A connection that outlives its certificate proves nothing any more.
func TestCertificateExpiresOnOpenConnection(t *testing.T) {
	a := newAuthority(t)
	leaf := a.client(nil, "web1").Leaf
	state := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, a.cert}}}
	if got := certificateOf(state, time.Now()); got != token.CertificateNamed("CN=web1") {
		t.Error(got)
	}
	if got := certificateOf(state, leaf.NotAfter.Add(time.Second)); got != "" {
		t.Error(got)
	}
	if got := certificateOf(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}, time.Now()); got != "" {
		t.Errorf("unverified: %s", got)
	}
}

// Flags that would accept less than they seem to, or send secrets in the open, do not start.
func TestIdentityFlags(t *testing.T) {
	good := Flags{Listen: "127.0.0.1:0", MaxBody: 1, Timeout: time.Second, ReadTimeout: time.Second, MaxInflight: 1, MaxStreams: 1, UserStreams: 1}
	servicetest.OK(t, good.check())
	for name, change := range map[string]func(*Flags){
		"--client-ca needs":      func(f *Flags) { f.ClientCA = "ca.pem" },
		"belong together":        func(f *Flags) { f.Issuer = "https://login.example" },
		"must be an https URL":   func(f *Flags) { f.Issuer, f.Audiences = "http://login.example", []string{"x"} },
		"--oidc-audience belong": func(f *Flags) { f.Audiences = []string{"x"} },
		"--oidc-issuer and":      func(f *Flags) { f.Issuer, f.Audiences = "https://login.example", []string{"x", ""} },
		"is not on loopback":     func(f *Flags) { f.Listen = "192.0.2.7:8466" },
	} {
		f := good
		change(&f)
		if err := f.check(); err == nil || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if err := (Flags{ClientCA: filepath.Join(t.TempDir(), "none.pem")}).askForCertificates(c); err == nil {
		t.Error("a missing file is taken")
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	servicetest.OK(t, os.WriteFile(empty, []byte("x"), 0o600))
	if err := (Flags{ClientCA: empty}).askForCertificates(c); err == nil {
		t.Error("a file without a certificate is taken")
	}
}

// A view that nobody confirms says nothing about tokens that end.
func TestTokensEndingAreUnknownWithoutAView(t *testing.T) {
	if n, known := newTokenStore(Flags{}, nil).endingSoon(); known {
		t.Errorf("%d tokens end soon, and there is no view", n)
	}
}
