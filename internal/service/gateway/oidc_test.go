package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const audience, another = "countersign-gateway", "https://mcp.example/files"

// testIssuer is a small OIDC issuer: a discovery document and its public keys.
type testIssuer struct {
	tb   testing.TB
	srv  *httptest.Server
	away atomic.Bool
	// keysAway is away for the keys alone.
	keysAway atomic.Bool

	mu      sync.Mutex
	keys    map[string]*ecdsa.PrivateKey
	fetched int
}

func startIssuer(tb testing.TB) *testIssuer {
	tb.Helper()
	i := &testIssuer{tb: tb, keys: map[string]*ecdsa.PrivateKey{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.answer(w, map[string]any{"issuer": i.srv.URL, "jwks_uri": i.srv.URL + "/keys", "authorization_endpoint": i.srv.URL + "/auth",
			"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		if i.keysAway.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		i.answer(w, i.publicKeys())
	})
	i.srv = httptest.NewServer(mux)
	tb.Cleanup(i.srv.Close)
	i.addKey("k1")
	return i
}

func (i *testIssuer) answer(w http.ResponseWriter, v any) {
	if i.away.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *testIssuer) publicKeys() any {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fetched++
	list := []map[string]string{}
	for id, key := range i.keys {
		point, err := key.PublicKey.Bytes()
		servicetest.OK(i.tb, err)
		list = append(list, map[string]string{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id, "x": encode(point[1:33]), "y": encode(point[33:])})
	}
	return map[string]any{"keys": list}
}

func (i *testIssuer) addKey(id string) {
	i.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servicetest.OK(i.tb, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[id] = key
}

// rotate replaces all keys by a new one.
func (i *testIssuer) rotate(id string) {
	i.mu.Lock()
	clear(i.keys)
	i.mu.Unlock()
	i.addKey(id)
}

// claims are those of a JWT that holds, with changes; nil removes a claim.
func (i *testIssuer) claims(change map[string]any) []byte {
	now := time.Now()
	all := map[string]any{"iss": i.srv.URL, "aud": audience, "sub": "agent-7", "iat": now.Unix(), "exp": now.Add(24 * time.Hour).Unix()}
	maps.Copy(all, change)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	b, err := json.Marshal(all)
	servicetest.OK(i.tb, err)
	return b
}

// jwt signs claims with the key of an id; kid is the id in the header.
func (i *testIssuer) jwt(key, kid string, claims []byte) string {
	i.tb.Helper()
	i.mu.Lock()
	private := i.keys[key]
	i.mu.Unlock()
	return signES256(i.tb, private, kid, claims)
}

func signES256(tb testing.TB, key *ecdsa.PrivateKey, kid string, claims []byte) string {
	tb.Helper()
	text := encode(fmt.Appendf(nil, `{"alg":"ES256","kid":%q}`, kid)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	servicetest.OK(tb, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature)
}

// check is the gateway's check against the issuer, which may ask for keys at any time.
func (i *testIssuer) check() *issuer {
	c := newIssuer(Flags{Issuer: i.srv.URL, Audiences: []string{audience, another}}, daemon.Env{Health: daemon.NewHealth()})
	c.client.Transport.(*issuerTransport).limit = rate.NewLimiter(rate.Inf, 1)
	return c
}

// Only a JWT of the issuer, for this audience, in its time and with a signature of a published key,
// proves a subject.
func TestJWT(t *testing.T) {
	i := startIssuer(t)
	c := i.check()
	want, err := token.OIDCSubject(i.srv.URL, "agent-7")
	servicetest.OK(t, err)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	servicetest.OK(t, err)
	good := i.claims(nil)
	hs := encode([]byte(`{"alg":"HS256","kid":"k1"}`)) + "." + encode(good)
	i.mu.Lock()
	public, err := i.keys["k1"].PublicKey.Bytes()
	i.mu.Unlock()
	servicetest.OK(t, err)
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(hs))
	valid := i.jwt("k1", "k1", good)
	for name, text := range map[string]string{
		"expired":              i.jwt("k1", "k1", i.claims(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"without an expiry":    i.jwt("k1", "k1", i.claims(map[string]any{"exp": nil})),
		"not valid yet":        i.jwt("k1", "k1", i.claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"wrong audience":       i.jwt("k1", "k1", i.claims(map[string]any{"aud": []string{"others", ""}})),
		"without an audience":  i.jwt("k1", "k1", i.claims(map[string]any{"aud": nil})),
		"another issuer":       i.jwt("k1", "k1", i.claims(map[string]any{"iss": "https://login.example"})),
		"without a subject":    i.jwt("k1", "k1", i.claims(map[string]any{"sub": ""})),
		"alg none":             encode([]byte(`{"alg":"none"}`)) + "." + encode(good) + ".",
		"alg none, signed":     encode([]byte(`{"alg":"none","kid":"k1"}`)) + "." + encode(good) + "." + strings.Split(valid, ".")[2],
		"a shared secret":      hs + "." + encode(mac.Sum(nil)),
		"unknown kid":          signES256(t, stranger, "k9", good),
		"known kid, other key": signES256(t, stranger, "k1", good),
		"other claims":         strings.Split(valid, ".")[0] + "." + encode(i.claims(map[string]any{"sub": "admin"})) + "." + strings.Split(valid, ".")[2],
		"no JWT":               "a.b.c",
		"empty":                "",
	} {
		if got, err := c.subjectOf(text); got != "" || err != nil {
			t.Errorf("%s: proves %q, %v", name, got, err)
		}
	}
	for name, text := range map[string]string{
		"that holds": valid, "for the other audience": i.jwt("k1", "k1", i.claims(map[string]any{"aud": another})),
		"for one of the audiences": i.jwt("k1", "k1", i.claims(map[string]any{"aud": []string{"others", audience}})),
	} {
		if got, err := c.subjectOf(text); got != want || err != nil {
			t.Errorf("a JWT %s proves %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := (*issuer)(nil).subjectOf(valid); got != "" || err != nil {
		t.Errorf("without an issuer: %q, %v", got, err)
	}
}

// Keys are kept, read again for a new key, and forgotten when the issuer has withdrawn them. While the
// issuer is away nothing is accepted with keys that are old, and what cannot be checked is told from what proves nothing.
func TestIssuerKeys(t *testing.T) {
	i := startIssuer(t)
	c := i.check()
	var ahead time.Duration
	c.now = func() time.Time { return time.Now().Add(ahead) }
	holds := func(text string) bool { subject, _ := c.subjectOf(text); return subject != "" }
	unchecked := func(text string) bool { _, err := c.subjectOf(text); return errors.Is(err, errIssuer) }
	i.away.Store(true)
	first := i.jwt("k1", "k1", i.claims(nil))
	if !unchecked(first) {
		t.Fatal("checked before the issuer was ever read")
	}
	i.away.Store(false)
	ahead += issuerPause
	for range 2 {
		if !holds(first) || i.fetched != 1 {
			t.Fatalf("the issuer is back: keys read %d times", i.fetched)
		}
	}
	i.rotate("k2")
	second := i.jwt("k2", "k2", i.claims(nil))
	acceptedSoon(t, func() bool { return holds(second) })
	if holds(first) {
		t.Error("a withdrawn key is accepted after the keys were read again")
	}
	i.rotate("k3") // a caller with k3 has not come yet
	ahead += keysMaxAge
	if holds(second) {
		t.Error("a withdrawn key is accepted for ever")
	}
	third := i.jwt("k3", "k3", i.claims(nil))
	i.away.Store(true)
	if !holds(third) {
		t.Error("the keys are not kept while they are young")
	}
	ahead += keysRenewAge
	if !holds(third) {
		t.Error("the keys are not kept while they cannot be read again")
	}
	i.away.Store(false)
	i.keysAway.Store(true)
	ahead += issuerPause
	if holds("no.such.jwt") || !holds(third) {
		t.Error("the keys are not kept while the issuer says only where they are")
	}
	i.rotate("k4")
	if fourth := i.jwt("k4", "k4", i.claims(nil)); !unchecked(fourth) || holds(fourth) {
		t.Error("a key that cannot be read is no wrong key")
	}
	ahead += keysMaxAge - keysRenewAge
	if holds(third) || !unchecked(third) {
		t.Error("accepted with old keys while the issuer is away")
	}
	i.keysAway.Store(false)
	ahead += issuerPause
	if holds(third) || unchecked(third) {
		t.Error("a withdrawn key is accepted once the issuer is back")
	}
}

// A text that is no JWT of the issuer, or an expired one, does not make the gateway ask the issuer while it has keys, and
// keeps no other text from renewing them.
func TestATextThatReadsNoKeysRenewsNone(t *testing.T) {
	i := startIssuer(t)
	c := i.check()
	var ahead time.Duration
	c.now = func() time.Time { return time.Now().Add(ahead) }
	asked, inner := 0, c.client.Transport
	c.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		asked++
		return inner.RoundTrip(r)
	})
	holds := func(text string) bool { subject, _ := c.subjectOf(text); return subject != "" }
	good := i.jwt("k1", "k1", i.claims(nil))
	if !holds(good) || asked != 2 {
		t.Fatalf("the issuer is asked %d times at first", asked)
	}
	ahead = keysRenewAge
	for _, text := range []string{"no.such.jwt", i.jwt("k1", "k1", i.claims(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		i.jwt("k1", "k1", i.claims(map[string]any{"iss": "https://login.example"}))} {
		if holds(text) || asked != 2 {
			t.Errorf("the issuer is asked %d times", asked)
		}
	}
	if !holds(good) || asked != 4 {
		t.Errorf("the keys are not renewed: the issuer is asked %d times", asked)
	}
}

// Invented key ids do not make the gateway ask the issuer for each, and its answers are bounded.
func TestIssuerIsAskedSeldom(t *testing.T) {
	transport := newIssuer(Flags{Issuer: "https://login.example", Audiences: []string{audience, another}}, daemon.Env{Health: daemon.NewHealth()}).client.Transport.(*issuerTransport)
	if transport.limit.Limit() != rate.Every(issuerEvery) || transport.limit.Burst() != issuerBurst {
		t.Errorf("limit %v, burst %d", transport.limit.Limit(), transport.limit.Burst())
	}
	asked := 0
	few := &issuerTransport{health: daemon.NewHealth(), limit: rate.NewLimiter(rate.Every(time.Hour), 1), inner: roundTrip(func(*http.Request) (*http.Response, error) {
		asked++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://login.example/keys", nil)
		servicetest.OK(t, err)
		if res, err := few.RoundTrip(r); err == nil {
			_ = res.Body.Close()
		}
		cancel()
	}
	if asked != 1 {
		t.Errorf("the issuer was asked %d times for keys", asked)
	}
	large := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, issuerAnswer+1)) }))
	defer large.Close()
	c := newIssuer(Flags{Issuer: large.URL, Audiences: []string{audience, another}}, daemon.Env{Health: daemon.NewHealth()})
	if _, err := c.current(t.Context(), ""); err == nil {
		t.Error("an answer that is too large is read")
	}
	for url, safe := range map[string]bool{"https://a.example": true, "http://127.0.0.1:1": true, "http://a.example": false, "file:///etc/passwd": false, "https://": false, "": false} {
		if isSafeURL(url) != safe {
			t.Errorf("%q: safe %v", url, !safe)
		}
	}
}

// While one caller waits for new keys the others go on with those that are held.
func TestOneCallerWaitsForNewKeys(t *testing.T) {
	i := startIssuer(t)
	c := i.check()
	var ahead time.Duration
	c.now = func() time.Time { return time.Now().Add(ahead) }
	text := i.jwt("k1", "k1", i.claims(nil))
	held := func() bool { subject, err := c.subjectOf(text); return subject != "" && err == nil }
	if !held() {
		t.Fatal("the keys are not read")
	}
	ahead = keysRenewAge
	inner := c.client.Transport
	var once sync.Once
	arrived, answer, renewed := make(chan struct{}), make(chan struct{}), make(chan bool)
	c.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		once.Do(func() { close(arrived) })
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		return inner.RoundTrip(r)
	})
	go func() { renewed <- held() }()
	<-arrived
	for range 3 {
		if !held() {
			t.Error("the held keys are not in use meanwhile")
		}
	}
	select {
	case <-renewed:
		t.Error("the others waited, too")
	default:
		close(answer)
		if !<-renewed || c.youngerThan(keysRenewAge) == nil {
			t.Error("the keys are not new")
		}
	}
}

// The issuer is asked through the proxy that the environment names. Go reads that once in a process, so another one asks.
func TestIssuerThroughProxy(t *testing.T) {
	if os.Getenv("ASK_ISSUER") != "" {
		c := newIssuer(Flags{Issuer: "https://login.example", Audiences: []string{audience}}, daemon.Env{Health: daemon.NewHealth()})
		if _, err := c.current(t.Context(), ""); err == nil {
			t.Error("the proxy refuses, and the issuer is there")
		}
		return
	}
	asked := make(chan string, 8)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	self, err := os.Executable()
	servicetest.OK(t, err)
	asker := exec.CommandContext(t.Context(), self, "-test.run=^TestIssuerThroughProxy$")
	asker.Env = append(os.Environ(), "ASK_ISSUER=1", "HTTPS_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := asker.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case got := <-asked:
		if got != "CONNECT login.example:443" {
			t.Error(got)
		}
	default:
		t.Error("the proxy was not asked")
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A stream ends when its subject is mapped otherwise, though the subject is let in still.
func TestStreamEndsWithItsMapping(t *testing.T) {
	i := startIssuer(t)
	r := start(t, func(f *Flags) { f.Issuer, f.Audiences = i.srv.URL, []string{audience} })
	stop, err := follow.Serve(t.Context(), r.nats.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	who, err := token.OIDCSubject(i.srv.URL, "agent-7")
	servicetest.OK(t, err)
	r.mapSubject("m1", who, "sam", token.Subscriber, false)
	r.tokens["jwt"] = i.jwt("k1", "k1", i.claims(nil))
	var s *sse
	servicetest.Eventually(t, "a stream begins", func() bool { s = r.open("/v1/follow/decisions", "jwt", ""); return s.res.StatusCode == 200 })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, s.res.Body)
	}()
	r.mapSubject("m2", who, servicetest.Runtime, token.Runtime, false)
	r.mapSubject("m1", who, "sam", token.Subscriber, true)
	servicetest.Eventually(t, "the stream ends at a record", func() bool {
		r.nats.Publish("admitter", streams.Msg{Subject: subject.Space{Prefix: "gov"}.Decision("acme", "deny", "s"), Body: []byte(`{}`)})
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

// A JWT lets in what its subject is mapped to, in that role and until the mapping is revoked.
func TestJWTSignsIn(t *testing.T) {
	i := startIssuer(t)
	r := start(t, func(f *Flags) { f.Issuer, f.Audiences = i.srv.URL, []string{audience} })
	text := i.jwt("k1", "k1", i.claims(map[string]any{"role": "reviewer", "tenant": "globex"}))
	status := func(path string) int {
		res, _ := r.do("POST", path, "", []byte(`{}`), "Authorization", "Bearer "+text)
		return res.StatusCode
	}
	if got := status("/validate-tool-precheck"); got != 401 {
		t.Errorf("an unmapped subject: %d", got)
	}
	subject, err := token.OIDCSubject(i.srv.URL, "agent-7")
	servicetest.OK(t, err)
	r.mapSubject("m1", subject, servicetest.Runtime, token.Runtime, false)
	servicetest.Eventually(t, "the mapped subject is let in", func() bool { return status("/validate-tool-precheck") == 200 })
	r.mapSubject("m1", subject, servicetest.Runtime, token.Runtime, true)
	servicetest.Eventually(t, "the revoked mapping counts no more", func() bool { return status("/validate-tool-precheck") == 401 })
	r.mapSubject("m2", subject, "sam", token.Subscriber, false)
	servicetest.Eventually(t, "a subscriber may not ask", func() bool { return status("/event") == 403 })
}

// acceptedSoon waits for a JWT by a rotated key. go-oidc gives a caller who comes in the instant between the end of a
// request for keys and its being forgotten the keys of that request once more.
func acceptedSoon(t *testing.T, accepted func() bool) {
	t.Helper()
	servicetest.Eventually(t, "a JWT by a rotated key is accepted", accepted)
}

// While the issuer is away the gateway serves everybody else: it starts without the issuer, lets JWTs in once it
// is back, and with keys that it has while it is away again. Health says so. A rotated key counts.
func TestIssuerAway(t *testing.T) {
	i := startIssuer(t)
	i.away.Store(true)
	r := start(t, func(f *Flags) { f.Issuer, f.Audiences = i.srv.URL, []string{audience} })
	who, err := token.OIDCSubject(i.srv.URL, "agent-7")
	servicetest.OK(t, err)
	r.mapSubject("m1", who, servicetest.Runtime, token.Runtime, false)
	status := func(jwt string) int {
		res, _ := r.do("GET", "/v1/caller", "", nil, "Authorization", "Bearer "+jwt)
		return res.StatusCode
	}
	first := i.jwt("k1", "k1", i.claims(nil))
	healthy := func() bool { return r.service.Health.Report().Problems["oidc"] == "" }
	if got := status(first); got != 503 || healthy() {
		t.Errorf("away at the start: %d, healthy %v", got, healthy())
	}
	if res, body := r.do("GET", "/v1/caller", "runtime", nil); res.StatusCode != 200 {
		t.Errorf("a token meanwhile: %d %s", res.StatusCode, body)
	}
	i.away.Store(false)
	servicetest.Eventually(t, "the issuer is back", func() bool { return status(first) == 200 })
	if !healthy() {
		t.Error("unhealthy though the issuer answers")
	}
	i.rotate("k2")
	second := i.jwt("k2", "k2", i.claims(nil))
	acceptedSoon(t, func() bool { return status(second) == 200 })
	i.away.Store(true)
	i.rotate("k3")
	third := i.jwt("k3", "k3", i.claims(nil))
	if got := status(second); got != 200 {
		t.Errorf("away later: %d by a key that is known", got)
	}
	servicetest.Eventually(t, "a new key is asked for in vain, and health says so", func() bool { return status(third) == 503 && !healthy() })
	i.away.Store(false)
	if got := status(third); got != 200 || !healthy() {
		t.Errorf("back again: %d, healthy %v", got, healthy())
	}
}
