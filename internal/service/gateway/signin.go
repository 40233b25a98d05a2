package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/quota"
)

// signIn returns the caller by its bearer token, its JWT or its client certificate. All refusals of what proves no caller
// are alike: one that the view does not let in may have been made a moment ago, so the caller waits for a new look. What
// cannot be checked now is no refusal of the caller.
func (s *server) signIn(r *http.Request) (token.Record, string, *endpoint.Problem) {
	find, err := s.credential(r) // before the view is read: it may have to ask the issuer for keys
	if err != nil {
		p := gateway.ProblemOf(gateway.NATSAway)
		p.Message = "the OIDC issuer does not answer; nothing is allowed"
		return token.Record{}, "", p
	}
	for looked := false; ; looked = true {
		set := s.tokens.current()
		if set == nil {
			return token.Record{}, "", gateway.ProblemOf(gateway.NATSAway)
		}
		if find == nil {
			break
		}
		if who, id, ok := find(set, time.Now()); ok {
			return who, id, nil
		}
		if looked {
			break
		}
		if !s.tokens.awaitLook(r.Context()) {
			return token.Record{}, "", gateway.ProblemOf(gateway.NATSAway)
		}
	}
	return token.Record{}, "", gateway.ProblemOf(gateway.BadToken)
}

// rateBurst bounds a burst: the requests of so much time may come at once.
const rateBurst = 2 * time.Second

func newRates(limit int) *quota.Meter {
	return quota.NewMeter(quota.Quotas{Publisher: quota.Rate{Messages: limit}, Burst: rateBurst})
}

// takesRequest counts a caller's request if it is within the rate. There is an entry for each user with a valid token.
func (s *server) takesRequest(who token.Record) bool {
	_, ok := s.rates.Take(time.Now(), "", who.Role+" "+who.User, 0)
	return ok
}

// admitCaller signs a caller in and holds it to its role, its rate and a running gateway.
func (s *server) admitCaller(r *http.Request, may func(token.Record) bool) (who token.Record, id string, p *endpoint.Problem) {
	if s.stopping.Load() {
		return who, "", gateway.ProblemOf(gateway.Stopping)
	}
	if who, id, p = s.signIn(r); p != nil {
		return who, "", p
	}
	switch {
	case !may(who):
		p = gateway.ProblemOf(gateway.WrongRole)
		p.Role = who.Role
	case !s.takesRequest(who):
		p = gateway.ProblemOf(gateway.RateLimited)
		p.Limit = int64(s.flags.Rate)
	}
	if p != nil {
		return who, "", p
	}
	return who, id, nil
}

// finder looks a caller up in a view of the tokens.
type finder func(*token.Set, time.Time) (token.Record, string, bool)

// credential reads what a request proves about its caller; nil if it proves nothing. The error says that it cannot be
// checked now. A request with the header Authorization stands by it alone: a certificate mends no bad token.
func (s *server) credential(r *http.Request) (finder, error) {
	values := r.Header.Values("Authorization")
	switch len(values) {
	case 0:
		return bySubject(certificateOf(r.TLS, time.Now())), nil
	case 1:
	default:
		return nil, nil
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if text = strings.TrimSpace(text); !strings.EqualFold(scheme, "Bearer") {
		return nil, nil
	}
	if _, formed := token.IDOf(text); formed {
		return func(set *token.Set, now time.Time) (token.Record, string, bool) { return set.Find(text, now) }, nil
	}
	subject, err := s.issuer.subjectOf(text)
	return bySubject(subject), err
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

// tokenStore is a view of the tenant's tokens in memory, so that a request with an invented token
// costs no request to NATS.
type tokenStore struct {
	view
	set atomic.Pointer[token.Set]
}

func newTokenStore(f Flags, nc *nats.Conn) *tokenStore {
	t := &tokenStore{view: view{name: "tokens", nc: nc, read: readTokens(nc, f.Space().Tokens(f.Tenant)), wanted: make(chan struct{}, 1)}}
	t.apply = func(records map[string][]byte) { t.set.Store(token.NewSet(f.Tenant, records)) }
	return t
}

// current is the view; nil if it is stale: a revoked token might still be in it.
func (t *tokenStore) current() *token.Set {
	if !t.isCurrent() {
		return nil
	}
	return t.set.Load()
}

// endingSoon counts the tokens that end soon, for the metrics.
func (t *tokenStore) endingSoon() (n int, known bool) {
	set := t.current()
	if set == nil {
		return 0, false
	}
	return set.EndingSoon(time.Now()), true
}

// callerAnswer says how the caller is known. It has nothing that the caller's token does not permit.
type callerAnswer struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	Role   string `json:"role"`
}

const callerPattern = "GET /v1/caller"

// reportCaller tells a caller how it is known: gates that speak for several callers keep them apart by
// it. Nothing is recorded.
func (s *server) reportCaller(w http.ResponseWriter, r *http.Request) {
	who, _, p := s.admitCaller(r, func(token.Record) bool { return true })
	if p != nil {
		s.write(w, callerPattern, p.Response())
		return
	}
	s.write(w, callerPattern, endpoint.JSON(http.StatusOK, callerAnswer{s.flags.Tenant, who.User, who.Role}))
}
