package guard_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

// foreign is an issuer whose receipt key another checkpoint key vouches for.
func foreign(t testing.TB, seed byte) issuer {
	t.Helper()
	i := newIssuer(t, seed)
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{seed + 100}, 32)))
	ok(t, err)
	i.publicKey = public
	i.voucher, err = signing.CheckpointSigner(private)
	ok(t, err)
	return i
}

// reheaded is a receipt with another protected header and the same signature.
func reheaded(t testing.TB, token string, change func(map[string]any)) string {
	t.Helper()
	parts := strings.Split(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[0])
	ok(t, err)
	var h map[string]any
	ok(t, json.Unmarshal(raw, &h))
	change(h)
	raw, err = json.Marshal(h)
	ok(t, err)
	parts[0] = base64.RawURLEncoding.EncodeToString(raw)
	return strings.Join(parts, ".")
}

// rekeyed is a key record with members of another one in place of its own.
func rekeyed(t testing.TB, record, other []byte, members ...string) string {
	t.Helper()
	var to, from map[string]any
	ok(t, json.Unmarshal(record, &to))
	ok(t, json.Unmarshal(other, &from))
	for _, m := range members {
		to[m] = from[m]
	}
	b, err := json.Marshal(to)
	ok(t, err)
	return string(b)
}

// A runtime that holds a good receipt signs what it says again by a key of its own, and
// brings whatever key record it can make. The guard knows the right key already or
// does not, and learns nothing wrong for the next receipt.
func TestAttackGuardByKeys(t *testing.T) {
	i, vouched, stranger := newIssuer(t, 1), newIssuer(t, 2), foreign(t, 3)
	same := foreign(t, 1) // the right key, but a stranger vouches for it
	good := i.execution(t, "n", nil)
	signed := func(by issuer, key string) guard.Execution {
		e := by.execution(t, "n", nil)
		e.Key = key
		return e
	}
	with := func(e guard.Execution, token string) guard.Execution { e.Receipt = token; return e }
	for name, c := range map[string]struct {
		e    guard.Execution
		code string
	}{
		"signed again, a foreign voucher":         {signed(stranger, string(stranger.record(t))), "receipt_key_unknown"},
		"signed again, the right record":          {signed(stranger, string(i.record(t))), "receipt_key_unknown"},
		"signed again, the vouch of the right":    {signed(stranger, rekeyed(t, stranger.record(t), i.record(t), "vouch")), "receipt_key_unknown"},
		"signed again, a key under the right id":  {signed(stranger, rekeyed(t, i.record(t), stranger.record(t), "public_key")), "receipt_key_unknown"},
		"signed again, an id under the right key": {signed(stranger, rekeyed(t, i.record(t), stranger.record(t), "key_id", "kid")), "receipt_key_unknown"},
		"the right key, a foreign voucher":        {func() guard.Execution { e := good; e.Key = string(same.record(t)); return e }(), "receipt_key_unknown"},
		"the record of another vouched key":       {func() guard.Execution { e := good; e.Key = string(vouched.record(t)); return e }(), "receipt_key_unknown"},
		"a retirement for a record":               {func() guard.Execution { e := good; e.Key = string(i.retirement(t)); return e }(), "receipt_key_unknown"},
		"another vouched key in the header": {func() guard.Execution {
			e := with(good, reheaded(t, good.Receipt, func(h map[string]any) { h["kid"] = vouched.key.ID }))
			e.Key = string(vouched.record(t))
			return e
		}(), "receipt_signature_invalid"},
		"no algorithm":   {with(good, reheaded(t, good.Receipt, func(h map[string]any) { h["alg"] = "none" })), "receipt_malformed"},
		"another type":   {with(good, reheaded(t, good.Receipt, func(h map[string]any) { h["typ"] = "JWT" })), "receipt_malformed"},
		"no signature":   {with(good, good.Receipt[:strings.LastIndexByte(good.Receipt, '.')+1]), "receipt_signature_invalid"},
		"something more": {with(good, good.Receipt+".x"), "receipt_malformed"},
	} {
		g := i.guard(t, nil)
		if ran, err := ran(g, c.e); ran || guard.Code(err) != c.code {
			t.Errorf("%s: ran %t, code %q, want %s", name, ran, guard.Code(err), c.code)
		}
		if ran, err := ran(g, good); !ran {
			t.Errorf("%s: then the good one: %v", name, err)
		}
		if ran, _ := ran(g, signed(stranger, "")); ran {
			t.Errorf("%s: then one that the stranger signed ran", name)
		}
	}
}

// The same document in another spelling is the same arguments; what is no strict JSON
// is none, whatever a lenient reader makes of it.
func TestAttackGuardBySpelling(t *testing.T) {
	i := newIssuer(t, 1)
	for name, c := range map[string]struct{ args, code string }{
		"members in another order": {`{"amount":10,"to":"dana@acme.example"}`, ""},
		"blanks":                   {" {\n\"to\" : \"dana@acme.example\",\t\"amount\":10 } \r\n", ""},
		"escapes":                  {`{"t\u006f":"d\u0061na@acme.example","amount":10}`, ""},
		"another number form":      {`{"to":"dana@acme.example","amount":1.0e1}`, ""},
		"a number as text":         {`{"to":"dana@acme.example","amount":"10"}`, "receipt_other_arguments"},
		"a member more":            {`{"to":"dana@acme.example","amount":10,"cc":null}`, "receipt_other_arguments"},
		"a blank in a value":       {`{"to":"dana@acme.example ","amount":10}`, "receipt_other_arguments"},
		"a key twice, right last":  {`{"amount":1000,"to":"dana@acme.example","amount":10}`, "bad_arguments"},
		"a key twice, right first": {`{"amount":10,"to":"dana@acme.example","amount":1000}`, "bad_arguments"},
		"a key twice, escaped":     {`{"amount":10,"to":"dana@acme.example","\u0061mount":1000}`, "bad_arguments"},
		"a key in two cases":       {`{"amount":10,"to":"dana@acme.example","Amount":1000}`, "bad_arguments"},
		"another document behind":  {`{"to":"dana@acme.example","amount":10}{"amount":1000}`, "bad_arguments"},
		"a comment":                {`{"to":"dana@acme.example","amount":10/*00*/}`, "bad_arguments"},
		"not UTF-8":                {"{\"to\":\"dana@acme.example\",\"amount\":10,\"\xff\":1}", "bad_arguments"},
		"a byte order mark":        {"\ufeff" + `{"to":"dana@acme.example","amount":10}`, "bad_arguments"},
		"nothing":                  {"", "bad_arguments"},
	} {
		e := i.execution(t, "n", nil)
		e.Arguments = []byte(c.args)
		if ran, err := ran(i.guard(t, nil), e); ran != (c.code == "") || guard.Code(err) != c.code {
			t.Errorf("%s: ran %t, code %q (%v), want %q", name, ran, guard.Code(err), err, c.code)
		}
	}
}

// usesThat does something while it is asked, and knows of no use.
type usesThat struct{ do func() }

func (u usesThat) MarkUsed(context.Context, guard.Use) (bool, error) { u.do(); return true, nil }

// The caller changes the arguments in the slice that it gave: after they were admitted,
// and after they were checked.
func TestAttackGuardByChangedArguments(t *testing.T) {
	i := newIssuer(t, 1)
	change := func(e guard.Execution) { copy(e.Arguments[bytes.Index(e.Arguments, []byte("dana")):], "evil") }
	own := func() guard.Execution {
		e := i.execution(t, "n", nil)
		e.Arguments = bytes.Clone(e.Arguments)
		return e
	}
	before := own()
	change(before)
	if ran, err := ran(i.guard(t, nil), before); ran || guard.Code(err) != "receipt_other_arguments" {
		t.Errorf("before: ran %t, %v", ran, err)
	}
	meanwhile := own()
	g := i.guard(t, func(o *guard.Options) { o.Uses = usesThat{func() { change(meanwhile) }} })
	if ran, err := ran(g, meanwhile); ran || guard.Code(err) != "receipt_other_arguments" {
		t.Errorf("while the memory is asked: ran %t, %v", ran, err)
	}
	untouched := own()
	g = i.guard(t, func(o *guard.Options) { o.Uses = usesThat{func() {}} })
	if ran, err := ran(g, untouched); !ran {
		t.Errorf("untouched: %v", err)
	}
}

// A tool that panics, and one whose context ends while it runs, have used the receipt.
func TestAttackGuardByTheFunction(t *testing.T) {
	i := newIssuer(t, 1)
	g, e := i.guard(t, nil), i.execution(t, "n", nil)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not come through")
			}
		}()
		_ = g.Run(t.Context(), e, func(context.Context) error { panic("boom") })
	}()
	if ran, err := ran(g, e); ran || guard.Code(err) != guard.CodeUsed {
		t.Errorf("after a panic: ran %t, %v", ran, err)
	}
	e = i.execution(t, "n2", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := g.Run(ctx, e, func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) || guard.Code(err) != "" {
		t.Errorf("cancelled while it ran: %v, code %q", err, guard.Code(err))
	}
	if ran, err := ran(g, e); ran || guard.Code(err) != guard.CodeUsed {
		t.Errorf("after it was cancelled: ran %t, %v", ran, err)
	}
	e = i.execution(t, "n3", nil)
	err = g.Run(t.Context(), e, func(context.Context) error { // it tries again from inside
		_, err := ran(g, e)
		return err
	})
	if guard.Code(err) != guard.CodeUsed {
		t.Errorf("from inside: %v", err)
	}
}

// One receipt at the same time in several spellings and by several guards that share a
// memory: one of them runs.
func TestAttackGuardInParallel(t *testing.T) {
	i := newIssuer(t, 1)
	memory := guard.NewMemory(0)
	e := i.execution(t, "n", nil)
	var runs atomic.Int32
	var wg sync.WaitGroup
	for n := range 24 {
		g := i.guard(t, func(o *guard.Options) { o.Uses = memory })
		mine := e
		mine.Arguments = append(bytes.Repeat([]byte(" "), n%5), e.Arguments...)
		if n%3 == 0 {
			mine.Key = "{" + strings.Repeat(" ", n) + mine.Key[1:]
		}
		wg.Go(func() {
			err := g.Run(context.Background(), mine, func(context.Context) error { runs.Add(1); return nil })
			if err != nil && guard.Code(err) != guard.CodeUsed {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("it ran %d times", runs.Load())
	}
}

// The executor's clock goes forward until the memory has forgotten the receipt, and
// back to when the receipt held.
func TestAttackGuardByTheClock(t *testing.T) {
	i := newIssuer(t, 1)
	path := t.TempDir()
	directory, err := guard.NewDirectory(path)
	ok(t, err)
	elsewhere, err := guard.NewDirectory(path) // another process of this machine
	ok(t, err)
	for name, uses := range map[string][]guard.UseStore{"memory": {guard.NewMemory(0)}, "directory": {directory, elsewhere}} {
		clock := noon
		var guards []*guard.Guard
		for _, u := range uses {
			guards = append(guards, i.guard(t, func(o *guard.Options) { o.Uses, o.Now = u, func() time.Time { return clock } }))
		}
		g := guards[0]
		at := func(id string, expires time.Duration) guard.Execution {
			return i.execution(t, id, func(c *receipt.Claims) {
				c.IssuedAt, c.ExpiresAt = events.At(clock), events.At(clock.Add(expires))
			})
		}
		e, unused := at("n", time.Minute), at("unused", time.Minute)
		if ran, err := ran(g, e); !ran {
			t.Errorf("%s: %v", name, err)
		}
		for _, leap := range []time.Duration{3 * time.Hour, 30 * time.Hour} {
			clock = noon.Add(leap)
			if ran, err := ran(g, unused); ran || guard.Code(err) != "receipt_expired" {
				t.Errorf("%s: an expired one: ran %t, %v", name, ran, err)
			}
			if ran, err := ran(g, at("later"+leap.String(), time.Minute)); !ran { // what has expired is forgotten
				t.Errorf("%s: %v", name, err)
			}
			clock = noon
			for _, g := range slices.Backward(guards) { // first the one that removed nothing
				if ran, err := ran(g, e); ran || guard.Code(err) != guard.CodeUsed {
					t.Errorf("%s: the clock went back by %v: ran %t, %v", name, leap, ran, err)
				}
			}
		}
	}
}

// A receipt that proves an ask, signed by the right key, runs nothing, however the
// verdict is spelled.
func TestAttackGuardByVerdicts(t *testing.T) {
	i := newIssuer(t, 1)
	for _, v := range []events.Verdict{"ask", "ALLOW", "Allow", " allow", "allow\x00", "true", ""} {
		c := receipt.Claims{DecisionID: "d", Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Verdict: v,
			IssuedAt: events.At(noon), ExpiresAt: events.At(noon.Add(time.Minute)), Nonce: "n"}
		token, _, err := receipt.Issue(i.key, c)
		if err != nil {
			continue // it cannot even be issued
		}
		e := i.execution(t, "n", nil)
		e.Receipt, e.Arguments = token, nil
		if ran, _ := ran(i.guard(t, nil), e); ran {
			t.Errorf("verdict %q ran", v)
		}
	}
}
