package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/httpserve"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// Bounds of what the gateway asks an issuer for.
const (
	issuerTimeout = 5 * time.Second // of one answer
	issuerEvery   = 2 * time.Second // between two requests for keys: a JWT with an invented key id asks for keys, too
	issuerBurst   = 2
	issuerPause   = 2 * time.Second // after a discovery that failed
	issuerAnswer  = 1 << 20         // bytes
	keysMaxAge    = 5 * time.Minute // a key that the issuer has withdrawn is in use no longer than this
)

// algorithms are the signatures that a JWT may have: never "none", never a shared secret.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// issuer checks the JWTs of an OIDC issuer. It keeps the issuer's keys, and asks again for a key that it
// does not know and when the keys are old. A JWT that cannot be checked proves nothing.
type issuer struct {
	url, audience string
	env           daemon.Env
	client        *http.Client
	now           func() time.Time

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	made     time.Time // when the verifier was, without keys
	failed   time.Time // when the last discovery failed
}

func newIssuer(f Flags, env daemon.Env) *issuer {
	if f.Issuer == "" {
		return nil
	}
	client := &http.Client{
		Timeout:       issuerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("an issuer must not redirect") },
		Transport:     &issuerTransport{inner: &http.Transport{DisableKeepAlives: true}, limit: rate.NewLimiter(rate.Every(issuerEvery), issuerBurst), health: env.Health},
	}
	return &issuer{url: f.Issuer, audience: f.Audience, env: env, client: client, now: time.Now}
}

// subjectOf is the subject of a JWT that holds; "" for every other text. No error of the check is
// logged: it may quote the JWT.
func (i *issuer) subjectOf(text string) string {
	if i == nil || text == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*issuerTimeout)
	defer cancel()
	verifier, err := i.current(ctx)
	if err != nil {
		i.env.Health.Set("oidc", "the issuer's configuration cannot be read; no JWT is accepted")
		return ""
	}
	held, err := verifier.Verify(ctx, text)
	if err != nil {
		return ""
	}
	subject, err := token.OIDCSubject(i.url, held.Subject)
	if err != nil {
		return ""
	}
	return subject
}

// current is the verifier. An old one is made anew, without the keys that it has; so a key that was
// withdrawn is forgotten, and while the issuer is away no JWT is accepted for longer than keysMaxAge.
func (i *issuer) current(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil && i.now().Sub(i.made) < keysMaxAge {
		return i.verifier, nil
	}
	if i.now().Sub(i.failed) < issuerPause { // those that waited for the lock do not try one after the other
		return nil, errIssuer
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.url)
	if err != nil {
		i.verifier, i.failed = nil, i.now()
		return nil, err
	}
	i.verifier = provider.VerifierContext(oidc.ClientContext(context.Background(), i.client),
		&oidc.Config{ClientID: i.audience, SupportedSigningAlgs: algorithms, Now: i.now})
	i.made = i.now()
	return i.verifier, nil
}

// issuerTransport bounds what is asked of an issuer, and what it may answer. Its keys come over https,
// or from loopback. Callers that need the keys at the same time share one request for them, which
// waits for its turn.
type issuerTransport struct {
	inner http.RoundTripper
	limit *rate.Limiter

	health *daemon.Health
}

var errIssuer = errors.New("the issuer is not asked")

func (t *issuerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isSafeURL(r.URL.String()) {
		return nil, errIssuer
	}
	if !strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		if err := t.limit.Wait(r.Context()); err != nil {
			return nil, errIssuer
		}
	}
	res, err := t.inner.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.health.Set("oidc", "the issuer does not answer; a JWT by a new key is refused, and after five minutes every JWT")
	} else {
		t.health.Set("oidc", "")
	}
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, issuerAnswer)
	}
	return res, err
}

// isSafeURL reports whether a URL is https, or http on loopback.
func isSafeURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && httpserve.IsLoopback(u.Hostname()))
}
