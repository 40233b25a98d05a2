package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
)

// finder looks a caller up in a view of the tokens.
type finder func(*token.Set, time.Time) (token.Record, string, bool)

// credential reads what a request proves about its caller; nil if it proves nothing. A request with the
// header Authorization stands by it alone: a certificate mends no bad token.
func (s *server) credential(r *http.Request) finder {
	values := r.Header.Values("Authorization")
	switch len(values) {
	case 0:
		return bySubject(certificateOf(r.TLS, time.Now()))
	case 1:
	default:
		return nil
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if text = strings.TrimSpace(text); !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	if _, formed := token.IDOf(text); formed {
		return func(set *token.Set, now time.Time) (token.Record, string, bool) { return set.Find(text, now) }
	}
	return bySubject(s.issuer.subjectOf(text))
}

// readToken reads the token of a protocol's own header as if it came in Authorization, which is the one that
// counts where both are there.
func readToken(h http.Header, name string) {
	if values := h.Values(name); name != "" && len(values) > 0 && len(h.Values("Authorization")) == 0 {
		for _, v := range values {
			h.Add("Authorization", "Bearer "+v)
		}
	}
}

// bySubject looks up a subject that was proved; nil without one.
func bySubject(subject string) finder {
	if subject == "" {
		return nil
	}
	return func(set *token.Set, now time.Time) (token.Record, string, bool) { return set.FindSubject(subject, now) }
}

// certificateOf is the subject of the client certificate of a connection; "" without one. A connection
// may outlive its certificate, so the time is looked at for every request.
func certificateOf(state *tls.ConnectionState, now time.Time) string {
	if state == nil {
		return ""
	}
	for _, chain := range state.VerifiedChains {
		if len(chain) == 0 || !isCurrent(chain, now) {
			continue
		}
		subject, err := token.CertificateSubject(chain[0].RawSubject)
		if err != nil {
			return ""
		}
		return subject
	}
	return ""
}

func isCurrent(chain []*x509.Certificate, now time.Time) bool {
	for _, c := range chain {
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			return false
		}
	}
	return true
}

// askForCertificates makes a server ask for client certificates of the authorities of --client-ca. A
// certificate of another authority ends the handshake; callers without one may send a token.
func (f Flags) askForCertificates(c *tls.Config) error {
	if f.ClientCA == "" {
		return nil
	}
	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return fmt.Errorf("--client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("--client-ca %s holds no certificate in PEM", f.ClientCA)
	}
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, pool
	return nil
}
