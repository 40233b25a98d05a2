package receipt

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC)

func key(t testing.TB, b byte) (signing.PrivateKey, signing.KeySet) {
	t.Helper()
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k, signing.KeySet{k.ID: k.Public()}
}

var args = []byte(`{"amount":10,"to":"a@example.com"}`)

func claims(t testing.TB) Claims {
	t.Helper()
	c := Claims{
		DecisionID: "01939d5e-0000-7000-8000-000000000001", Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_mail",
		Verdict: events.Allow, Policy: events.PolicyRef{Name: "mail", Revision: 3, Digest: "sha256:00"},
		IssuedAt: events.At(noon), ExpiresAt: events.At(noon.Add(DefaultLifetime)), Nonce: "n-1",
	}
	if err := c.BindArguments(bytes.Repeat([]byte{7}, SaltSize), args); err != nil {
		t.Fatal(err)
	}
	return c
}

func want() Expectation {
	return Expectation{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_mail", ArgsCanonical: args}
}

func issue(t testing.TB, c Claims) (string, signing.KeySet) {
	t.Helper()
	k, ks := key(t, 1)
	token, hash, err := Issue(k, c)
	if err != nil {
		t.Fatal(err)
	}
	if hash != Hash(token) || !strings.HasPrefix(hash, "sha256:") {
		t.Fatalf("hash %s", hash)
	}
	return token, ks
}

func TestGoldenPayload(t *testing.T) {
	token, ks := issue(t, claims(t))
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	const golden = `{"args_hash":"salted-sha256:c38fdcdd6b53ec5b894bec4d8459499dbc19c6c31e796acbdb5102893a611db9","args_salt":"BwcHBwcHBwcHBwcHBwcHBw","decision_id":"01939d5e-0000-7000-8000-000000000001","expires_at":"2026-11-20T12:01:00.123456789Z","issued_at":"2026-11-20T12:00:00.123456789Z","nonce":"n-1","policy":{"digest":"sha256:00","name":"mail","revision":3},"session":"s1","source":"rt1","tenant":"acme","tool":"send_mail","tool_call_id":"c1","v":1,"verdict":"allow"}`
	if string(payload) != golden {
		t.Errorf("payload\n%s", payload)
	}
	if strings.Contains(string(payload), "a@example.com") {
		t.Error("a raw argument is in the receipt")
	}
	again, _ := issue(t, claims(t))
	if again != token {
		t.Error("the same claims gave another token")
	}
	if _, err := Open(ks, token); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	none := func(c *Claims, _ *Expectation) { c.ArgsSalt, c.ArgsHash = "", "" }
	for name, c := range map[string]struct {
		change func(*Claims, *Expectation)
		after  time.Duration
		err    error
	}{
		"good":                       {},
		"last instant":               {after: DefaultLifetime - 1},
		"expired":                    {after: DefaultLifetime, err: ErrExpired},
		"clock behind":               {after: -Leeway},
		"from the future":            {after: -Leeway - 1, err: ErrNotYetValid},
		"verdict ask":                {func(c *Claims, _ *Expectation) { c.Verdict = events.Ask }, 0, ErrNotAllowed},
		"verdict defer":              {func(c *Claims, _ *Expectation) { c.Verdict = events.Defer }, 0, ErrNotAllowed},
		"verdict deny":               {func(c *Claims, _ *Expectation) { c.Verdict = events.Deny }, 0, ErrNotAllowed},
		"other tenant":               {func(_ *Claims, w *Expectation) { w.Tenant = "evil" }, 0, ErrOtherCall},
		"other source":               {func(_ *Claims, w *Expectation) { w.Source = "rt2" }, 0, ErrOtherCall},
		"replayed for other session": {func(_ *Claims, w *Expectation) { w.Session = "s2" }, 0, ErrOtherCall},
		"replayed for other call":    {func(_ *Claims, w *Expectation) { w.ToolCallID = "c2" }, 0, ErrOtherCall},
		"other tool":                 {func(_ *Claims, w *Expectation) { w.Tool = "rm" }, 0, ErrOtherCall},
		"tool in other case":         {func(_ *Claims, w *Expectation) { w.Tool = "Send_mail" }, 0, ErrOtherCall},
		"call forgotten":             {func(_ *Claims, w *Expectation) { w.ToolCallID = "" }, 0, ErrOtherCall},
		"receipt without call":       {func(c *Claims, _ *Expectation) { c.ToolCallID = "" }, 0, ErrOtherCall},
		"receipt without session":    {func(c *Claims, _ *Expectation) { c.Session = "" }, 0, ErrOtherCall},
		"arguments changed":          {func(_ *Claims, w *Expectation) { w.ArgsCanonical = []byte(`{"amount":11,"to":"a@example.com"}`) }, 0, ErrOtherArguments},
		"arguments emptied":          {func(_ *Claims, w *Expectation) { w.ArgsCanonical = []byte(`{}`) }, 0, ErrOtherArguments},
		"arguments of no bytes":      {func(_ *Claims, w *Expectation) { w.ArgsCanonical = []byte{} }, 0, ErrOtherArguments},
		"arguments left out":         {func(_ *Claims, w *Expectation) { w.ArgsCanonical = nil }, 0, ErrOtherArguments},
		"arguments nobody bound":     {none, 0, ErrNoArguments},
		"no arguments (AAEP)":        {func(c *Claims, w *Expectation) { none(c, w); w.ArgsCanonical = nil }, 0, nil},
		"no arguments, other call":   {func(c *Claims, w *Expectation) { none(c, w); w.ArgsCanonical, w.ToolCallID = nil, "c2" }, 0, ErrOtherCall},
		"replay of a denied verdict": {func(c *Claims, w *Expectation) { c.Verdict, w.ToolCallID = events.Deny, "c2" }, 0, ErrOtherCall},
		"both expired and denied":    {func(c *Claims, _ *Expectation) { c.Verdict = events.Deny }, time.Hour, ErrNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			cl, w := claims(t), want()
			if c.change != nil {
				c.change(&cl, &w)
			}
			token, ks := issue(t, cl)
			got, err := Verify(ks, token, w, noon.Add(c.after))
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if got.DecisionID != cl.DecisionID {
				t.Errorf("claims %+v", got)
			}
			if err != nil && strings.Contains(err.Error(), "example.com") {
				t.Errorf("the error quotes an argument: %v", err)
			}
		})
	}
}

func TestForgedReceipts(t *testing.T) {
	token, ks := issue(t, claims(t))
	k, _ := key(t, 1)
	other, otherKeys := key(t, 2)
	sign := func(k signing.PrivateKey, typ, payload string) string {
		tok, err := k.Sign(typ, []byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	parts := strings.Split(token, ".")
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	edit := func(old, with string) string {
		s := strings.Replace(string(payload), old, with, 1)
		if s == string(payload) {
			t.Fatalf("no %q", old)
		}
		return s
	}
	b64 := base64.RawURLEncoding.EncodeToString
	last := parts[2][len(parts[2])-1]
	for name, c := range map[string]struct {
		token string
		ks    signing.KeySet
		err   error
	}{
		"empty": {"", ks, ErrMalformed}, "words": {"not a receipt", ks, ErrMalformed}, "two parts": {"a.b", ks, ErrMalformed},
		"four parts": {token + ".", ks, ErrMalformed}, "huge": {strings.Repeat("a", maxToken+1), ks, ErrMalformed},
		"white space":            {token + "\n", ks, ErrMalformed},
		"padding":                {token + "=", ks, ErrMalformed},
		"loose last bits":        {strings.TrimSuffix(token, string(last)) + string(last+1), ks, ErrMalformed},
		"no keys":                {token, nil, ErrUntrusted},
		"other keys":             {token, otherKeys, ErrUntrusted},
		"signed by somebody":     {sign(other, signing.TypeReceipt, string(payload)), ks, ErrUntrusted},
		"payload changed":        {parts[0] + "." + b64([]byte(edit("s1", "s2"))) + "." + parts[2], ks, ErrUntrusted},
		"record as receipt":      {sign(k, signing.TypeRecord, string(payload)), ks, ErrMalformed},
		"alg none":               {b64([]byte(`{"alg":"none","typ":"countersign-receipt+jwt"}`)) + "." + parts[1] + ".", ks, ErrMalformed},
		"not an object":          {sign(k, signing.TypeReceipt, `[]`), ks, ErrMalformed},
		"unknown claim":          {sign(k, signing.TypeReceipt, edit(`"v":1`, `"v":1,"x":1`)), ks, ErrMalformed},
		"claim twice":            {sign(k, signing.TypeReceipt, edit(`"v":1`, `"v":1,"v":1`)), ks, ErrMalformed},
		"claim in other case":    {sign(k, signing.TypeReceipt, edit(`"tool":`, `"Tool":`)), ks, ErrMalformed},
		"not canonical":          {sign(k, signing.TypeReceipt, edit(`"v":1`, `"v": 1`)), ks, ErrMalformed},
		"null claim":             {sign(k, signing.TypeReceipt, edit(`"tool":"send_mail"`, `"tool":null`)), ks, ErrMalformed},
		"other version":          {sign(k, signing.TypeReceipt, edit(`"v":1`, `"v":2`)), ks, ErrMalformed},
		"unknown verdict":        {sign(k, signing.TypeReceipt, edit(`"allow"`, `"Allow"`)), ks, ErrMalformed},
		"no tenant":              {sign(k, signing.TypeReceipt, edit(`"acme"`, `""`)), ks, ErrMalformed},
		"no expiry":              {sign(k, signing.TypeReceipt, edit(`"expires_at":"2026-11-20T12:01:00.123456789Z"`, `"expires_at":""`)), ks, ErrMalformed},
		"lives too long":         {sign(k, signing.TypeReceipt, edit(`2026-11-20T12:01`, `2027-11-20T12:01`)), ks, ErrMalformed},
		"half the arguments":     {sign(k, signing.TypeReceipt, edit(`"args_salt":"BwcHBwcHBwcHBwcHBwcHBw",`, ``)), ks, ErrMalformed},
		"short salt":             {sign(k, signing.TypeReceipt, edit(`"BwcHBwcHBwcHBwcHBwcHBw"`, `"Bwc"`)), ks, ErrMalformed},
		"time in another layout": {sign(k, signing.TypeReceipt, edit(`12:01:00.123456789Z`, `12:01:00Z`)), ks, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Verify(c.ks, c.token, want(), noon)
			if !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			if got.DecisionID != "" {
				t.Errorf("claims nobody vouches for were returned: %+v", got)
			}
		})
	}
}

func TestIncompleteClaimsAreNotSigned(t *testing.T) {
	k, _ := key(t, 1)
	for name, spoil := range map[string]func(*Claims){
		"zero": func(c *Claims) { *c = Claims{} }, "decision": func(c *Claims) { c.DecisionID = "" }, "tenant": func(c *Claims) { c.Tenant = "" },
		"source": func(c *Claims) { c.Source = "" }, "nonce": func(c *Claims) { c.Nonce = "" }, "verdict": func(c *Claims) { c.Verdict = "maybe" },
		"no verdict": func(c *Claims) { c.Verdict = "" }, "issued": func(c *Claims) { c.IssuedAt = events.Time{} },
		"backwards": func(c *Claims) { c.ExpiresAt = c.IssuedAt }, "salt": func(c *Claims) { c.ArgsSalt = "" }, "too long": func(c *Claims) { c.Session = strings.Repeat("x", maxToken) },
	} {
		c := claims(t)
		spoil(&c)
		if token, hash, err := Issue(k, c); !errors.Is(err, ErrIncomplete) || token != "" || hash != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := claims(t)
	if err := c.BindArguments([]byte("short"), args); !errors.Is(err, ErrIncomplete) {
		t.Error(err)
	}
	if err := c.BindArguments(nil, nil); err != nil || c.ArgsHash != "" || c.ArgsSalt != "" {
		t.Errorf("%v %+v", err, c)
	}
	if _, _, err := Issue(signing.PrivateKey{}, claims(t)); !errors.Is(err, ErrIncomplete) {
		t.Error("signed without a key")
	}
}

func TestSaltHidesArguments(t *testing.T) {
	a, b := claims(t), claims(t)
	if err := b.BindArguments(bytes.Repeat([]byte{8}, SaltSize), args); err != nil {
		t.Fatal(err)
	}
	if a.ArgsHash == b.ArgsHash {
		t.Error("another salt gave the same hash")
	}
}

func FuzzVerify(f *testing.F) {
	token, ks := issue(f, claims(f))
	f.Add(token)
	f.Add("a.b.c")
	f.Add(strings.ToUpper(token))
	k, _ := key(f, 1)
	for _, p := range []string{`{}`, `{"v":1}`, `null`} {
		tok, err := k.Sign(signing.TypeReceipt, []byte(p))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(tok)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := Verify(ks, s, want(), noon); err == nil && s != token {
			t.Fatalf("verified %q", s)
		}
	})
}

func BenchmarkIssue(b *testing.B) {
	k, _ := key(b, 1)
	c := claims(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Issue(k, c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	token, ks := issue(b, claims(b))
	w := want()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(ks, token, w, noon); err != nil {
			b.Fatal(err)
		}
	}
}
