package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
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
	keysRenewAge  = 4 * time.Minute // from here on keys are read again, and the old ones are in use meanwhile
	keysMaxAge    = 5 * time.Minute // a key that the issuer has withdrawn is in use no longer than this
)

// algorithms are the signatures that a JWT may have: never "none", never a shared secret.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// issuer checks the JWTs of an OIDC issuer. It keeps the issuer's keys, and asks again for a key that it
// does not know and when the keys are old.
type issuer struct {
	url       string
	audiences []string // a JWT must name one of them
	env       daemon.Env
	client    *http.Client
	now       func() time.Time

	renewing sync.Mutex // held by the caller that makes a verifier, and while failed is used
	failed   time.Time  // when the last attempt failed

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	made     time.Time // when the verifier was, without keys
}

func newIssuer(f Flags, env daemon.Env) *issuer {
	if f.Issuer == "" {
		return nil
	}
	client := &http.Client{
		Timeout:       issuerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("an issuer must not redirect") },
		Transport:     &issuerTransport{inner: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}, limit: rate.NewLimiter(rate.Every(issuerEvery), issuerBurst), health: env.Health},
	}
	return &issuer{url: f.Issuer, audiences: f.Audiences, env: env, client: client, now: time.Now}
}

// subjectOf is the subject of a JWT that holds; "" for every other text. The error is errIssuer if the JWT cannot be
// checked, because the issuer does not answer. No other error of the check is told or logged: it may quote the JWT.
func (i *issuer) subjectOf(text string) (string, error) {
	if i == nil || text == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*issuerTimeout)
	defer cancel()
	verifier, err := i.current(ctx, text)
	if err != nil {
		i.env.Health.Set("oidc", "the issuer's configuration cannot be read; no JWT is accepted")
		return "", errIssuer
	}
	held, err := verifier.Verify(ctx, text)
	switch {
	case isKeysAway(err):
		return "", errIssuer
	case err != nil, !slices.ContainsFunc(held.Audience, func(name string) bool { return slices.Contains(i.audiences, name) }):
		return "", nil
	}
	subject, err := token.OIDCSubject(i.url, held.Subject)
	if err != nil {
		return "", nil
	}
	return subject, nil
}

// isKeysAway reports whether the verifier could not read the issuer's keys. go-oidc says so by the text alone, in front of
// which no text of a JWT can come.
func isKeysAway(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "failed to verify signature: fetching keys")
}

// readsKeys reports whether a verifier has read its keys for a text with this outcome. It does not for a text that is no
// JWT of the issuer, or one that has expired.
func readsKeys(err error) bool {
	return err == nil || strings.HasPrefix(err.Error(), "failed to verify signature") && !isKeysAway(err)
}

// current is the verifier. An old one is made anew, without the keys that it has; so a key that was
// withdrawn is forgotten, and while the issuer is away no JWT is accepted for longer than keysMaxAge. The new
// one reads its keys by text, so a text by which the old one reads none, such as one that is no JWT, renews nothing.
func (i *issuer) current(ctx context.Context, text string) (*oidc.IDTokenVerifier, error) {
	if v := i.youngerThan(keysRenewAge); v != nil {
		return v, nil
	}
	if !i.renewing.TryLock() { // another caller makes a new one
		if v := i.youngerThan(keysMaxAge); v != nil {
			return v, nil
		}
		i.renewing.Lock()
	}
	defer i.renewing.Unlock()
	if v := i.youngerThan(keysRenewAge); v != nil { // meanwhile
		return v, nil
	}
	old := i.youngerThan(keysMaxAge)
	if old != nil {
		if _, err := old.Verify(ctx, text); !readsKeys(err) {
			return old, nil
		}
	}
	if v, err := i.renew(ctx, text); err == nil {
		return v, nil
	}
	if old != nil {
		return old, nil
	}
	return nil, errIssuer
}

// youngerThan is the verifier if it is younger than age; nil if not.
func (i *issuer) youngerThan(age time.Duration) *oidc.IDTokenVerifier {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier == nil || i.now().Sub(i.made) >= age {
		return nil
	}
	return i.verifier
}

// renew makes a verifier, unless the last attempt failed a moment ago: callers that waited for each other do not try
// one after the other.
func (i *issuer) renew(ctx context.Context, text string) (*oidc.IDTokenVerifier, error) {
	if i.now().Sub(i.failed) < issuerPause {
		return nil, errIssuer
	}
	begun := i.now()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.url)
	if err != nil {
		i.failed = i.now()
		return nil, err
	}
	next := provider.VerifierContext(oidc.ClientContext(context.Background(), i.client),
		&oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: algorithms, Now: i.now}) // subjectOf looks at the audience
	if _, err := next.Verify(ctx, text); isKeysAway(err) {
		i.failed = i.now()
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verifier, i.made = next, begun
	return next, nil
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
