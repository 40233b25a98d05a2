package guard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/testkit"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// issuer is an admitter's key, and a checkpoint key that vouches for it.
type issuer struct {
	key       signing.PrivateKey
	voucher   note.Signer
	publicKey string
}

var arguments = []byte(`{"to":"dana@acme.example","amount":10}`)

var ok = testkit.OK

func newIssuer(t testing.TB, seed byte) issuer {
	t.Helper()
	var i issuer
	var err error
	i.key, err = signing.NewPrivateKey(bytes.Repeat([]byte{seed}, 32))
	ok(t, err)
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{100}, 32)))
	ok(t, err)
	i.publicKey = public
	i.voucher, err = signing.CheckpointSigner(private)
	ok(t, err)
	return i
}

func (i issuer) record(t testing.TB) []byte {
	t.Helper()
	k := events.KeyRecord{KeyID: i.key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(i.key.Public()), CreatedAt: events.At(noon)}
	var err error
	k.Vouch, err = signing.SignKeyRecord(i.voucher, k)
	ok(t, err)
	b, err := json.MarshalIndent(k, "", "  ") // as the file has it
	ok(t, err)
	return b
}

func (i issuer) retirement(t testing.TB) []byte {
	t.Helper()
	k := events.KeyRetirement{KeyID: i.key.ID, Use: "receipt", RetiredAt: events.At(noon)}
	var err error
	k.Vouch, err = signing.SignRetirement(i.voucher, k)
	ok(t, err)
	b, err := json.Marshal(k)
	ok(t, err)
	return b
}

// execution is a call with a good receipt; change spoils the claims.
func (i issuer) execution(t testing.TB, nonce string, change func(*receipt.Claims)) guard.Execution {
	t.Helper()
	c := receipt.Claims{
		DecisionID: "d-" + nonce, Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Verdict: events.Allow,
		IssuedAt: events.At(noon), ExpiresAt: events.At(noon.Add(time.Minute)), Nonce: nonce,
	}
	bound, err := strictjson.CanonicalBytes(arguments)
	ok(t, err)
	ok(t, c.BindArguments(bytes.Repeat([]byte{7}, receipt.SaltSize), bound))
	if change != nil {
		change(&c)
	}
	token, _, err := receipt.Issue(i.key, c)
	ok(t, err)
	return guard.Execution{Receipt: token, Key: string(i.record(t)), Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Arguments: arguments}
}

func (i issuer) guard(t testing.TB, change func(*guard.Options)) *guard.Guard {
	t.Helper()
	o := guard.Options{Tenant: "acme", PublicKey: i.publicKey, Now: func() time.Time { return noon }}
	if change != nil {
		change(&o)
	}
	g, err := guard.New(o)
	ok(t, err)
	return g
}

// ran runs an execution and reports whether the tool ran.
func ran(g *guard.Guard, e guard.Execution) (bool, error) {
	ran := false
	err := g.Run(context.Background(), e, func(context.Context) error { ran = true; return nil })
	return ran, err
}

// Every way in which a receipt may not fit what is about to run, each with its
// code; nothing runs.
func TestGuardRefuses(t *testing.T) {
	i, stranger := newIssuer(t, 1), newIssuer(t, 2)
	at := func(d time.Duration) func(*guard.Options) {
		return func(o *guard.Options) { o.Now = func() time.Time { return noon.Add(d) } }
	}
	type E = guard.Execution
	for name, c := range map[string]struct {
		claims  func(*receipt.Claims)
		exec    func(*E)
		options func(*guard.Options)
		code    string
	}{
		"good":                          {},
		"last instant":                  {options: at(time.Minute - 1)},
		"clock behind by the allowance": {options: at(-receipt.Leeway)},
		"expired":                       {options: at(time.Minute), code: "receipt_expired"},
		"clock behind by more":          {options: at(-receipt.Leeway - 1), code: "receipt_not_yet_valid"},
		"other arguments":               {exec: func(e *E) { e.Arguments = []byte(`{"to":"dana@acme.example","amount":1000}`) }, code: "receipt_other_arguments"},
		"arguments emptied":             {exec: func(e *E) { e.Arguments = []byte(`{}`) }, code: "receipt_other_arguments"},
		"arguments left out":            {exec: func(e *E) { e.Arguments = nil }, code: "receipt_other_arguments"},
		"arguments not bound":           {claims: func(c *receipt.Claims) { c.ArgsHash, c.ArgsSalt = "", "" }, code: "receipt_binds_no_arguments"},
		"arguments with a key twice":    {exec: func(e *E) { e.Arguments = []byte(`{"to":"a","to":"dana@acme.example","amount":10}`) }, code: "bad_arguments"},
		"other call":                    {exec: func(e *E) { e.ToolCallID = "c2" }, code: "receipt_other_tool_call"},
		"call left out":                 {exec: func(e *E) { e.ToolCallID = "" }, code: "receipt_other_tool_call"},
		"other session":                 {exec: func(e *E) { e.Session = "s2" }, code: "receipt_other_session"},
		"other tool":                    {exec: func(e *E) { e.Tool = "delete_database" }, code: "receipt_other_tool"},
		"tool in another case":          {exec: func(e *E) { e.Tool = "Send_Email" }, code: "receipt_other_tool"},
		"other publisher":               {exec: func(e *E) { e.Source = "rt2" }, code: "receipt_other_source"},
		"no publisher":                  {exec: func(e *E) { e.Source = "" }, code: "bad_call"},
		"other tenant's executor":       {options: func(o *guard.Options) { o.Tenant = "globex" }, code: "receipt_other_tenant"},
		"verdict ask":                   {claims: func(c *receipt.Claims) { c.Verdict = events.Ask }, code: "receipt_not_allow"},
		"verdict defer":                 {claims: func(c *receipt.Claims) { c.Verdict = events.Defer }, code: "receipt_not_allow"},
		"verdict deny":                  {claims: func(c *receipt.Claims) { c.Verdict = events.Deny }, code: "receipt_not_allow"},
		"no receipt":                    {exec: func(e *E) { e.Receipt = "" }, code: "receipt_missing"},
		"words":                         {exec: func(e *E) { e.Receipt = "trust me" }, code: "receipt_malformed"},
		"key unknown":                   {exec: func(e *E) { e.Key = "" }, code: "receipt_key_unknown"},
		"key nobody vouches for":        {exec: func(e *E) { e.Key = strings.Replace(e.Key, "countersign.dev", "example.dev", 1) }, code: "receipt_key_unknown"},
		"key not pinned":                {options: func(o *guard.Options) { o.Pinned = true }, code: "receipt_key_unknown"},
		"key pinned":                    {options: func(o *guard.Options) { o.Pinned, o.Records = true, [][]byte{i.record(t)} }},
		"key known beforehand": {options: func(o *guard.Options) { o.Records = [][]byte{i.record(t)} },
			exec: func(e *E) { e.Key = "" }},
		"key retired":                   {options: func(o *guard.Options) { o.Records = [][]byte{i.record(t), i.retirement(t)} }, code: "receipt_key_retired"},
		"key retired, in another order": {options: func(o *guard.Options) { o.Records = [][]byte{i.retirement(t)} }, code: "receipt_key_retired"},
		"another key retired":           {options: func(o *guard.Options) { o.Records = [][]byte{stranger.retirement(t)} }},
		"signed by another key":         {exec: func(e *E) { e.Receipt = stranger.execution(t, "n", nil).Receipt }, code: "receipt_key_unknown"},
		"signature of another": {exec: func(e *E) {
			other := i.execution(t, "m", nil).Receipt
			e.Receipt = e.Receipt[:strings.LastIndexByte(e.Receipt, '.')] + other[strings.LastIndexByte(other, '.'):]
		}, code: "receipt_signature_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			e := i.execution(t, "n", c.claims)
			if c.exec != nil {
				c.exec(&e)
			}
			g := i.guard(t, c.options)
			checked := g.Check(e)
			ran, err := ran(g, e)
			if ran != (c.code == "") || guard.Code(err) != c.code || (err == nil) != ran || (checked == nil) != ran {
				t.Fatalf("ran %v, code %q, %v; Check: %v", ran, guard.Code(err), err, checked)
			}
			if err != nil && strings.Contains(err.Error(), "dana@") {
				t.Errorf("the error quotes an argument: %v", err)
			}
		})
	}
}

func TestGuardRunsOnce(t *testing.T) {
	i := newIssuer(t, 1)
	g, e := i.guard(t, nil), i.execution(t, "n", nil)
	var runs atomic.Int32
	var refused atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			err := g.Run(context.Background(), e, func(context.Context) error { runs.Add(1); return nil })
			if guard.Code(err) == "receipt_used" && errors.Is(err, guard.ErrReceiptUsed) {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 || refused.Load() != 15 {
		t.Errorf("%d runs, %d refused", runs.Load(), refused.Load())
	}
	// What the tool says comes back as it is; the receipt is used nonetheless.
	broken, e := errors.New("disk full"), i.execution(t, "n2", nil)
	if err := g.Run(context.Background(), e, func(context.Context) error { return broken }); !errors.Is(err, broken) || guard.Code(err) != "" {
		t.Errorf("%v", err)
	}
	if ran, err := ran(g, e); ran || guard.Code(err) != "receipt_used" {
		t.Errorf("after a failure: %v", err)
	}
	// A refusal does not use it, nor does asking, nor a caller that has gone.
	e = i.execution(t, "n3", nil)
	wrong := e
	wrong.Tool = "wipe"
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := ran(g, wrong); guard.Code(err) != "receipt_other_tool" || g.Check(e) != nil {
		t.Errorf("%v", err)
	}
	if err := g.Run(gone, e, func(context.Context) error { t.Error("it ran"); return nil }); guard.Code(err) != "canceled" {
		t.Errorf("%v", err)
	}
	if ran, err := ran(g, e); !ran {
		t.Errorf("%v", err)
	}
}

// brokenUses never knows.
type brokenUses struct{ err error }

func (b brokenUses) MarkUsed(context.Context, guard.Use) (bool, error) { return true, b.err }

// slowUses takes its time.
type slowUses struct{ clock *time.Time }

func (s slowUses) MarkUsed(context.Context, guard.Use) (bool, error) {
	*s.clock = s.clock.Add(time.Hour)
	return true, nil
}

func TestGuardFailsClosed(t *testing.T) {
	i := newIssuer(t, 1)
	g := i.guard(t, func(o *guard.Options) { o.Uses = brokenUses{errors.New("no connection")} })
	if ran, err := ran(g, i.execution(t, "n", nil)); ran || guard.Code(err) != "receipt_use_unknown" {
		t.Errorf("the memory does not answer: %v", err)
	}
	clock := noon
	g = i.guard(t, func(o *guard.Options) {
		o.Uses, o.Now = slowUses{&clock}, func() time.Time { return clock }
	})
	if ran, err := ran(g, i.execution(t, "n", nil)); ran || guard.Code(err) != "receipt_expired" {
		t.Errorf("expired while the memory was asked: %v", err)
	}
	for name, o := range map[string]guard.Options{
		"no tenant": {PublicKey: i.publicKey}, "no key": {Tenant: "acme"}, "no key but blanks": {Tenant: "acme", PublicKey: " \n"},
		"bad key":                {Tenant: "acme", PublicKey: "x"},
		"record of nobody":       {Tenant: "acme", PublicKey: i.publicKey, Records: [][]byte{[]byte(`{}`)}},
		"record not vouched for": {Tenant: "acme", PublicKey: i.publicKey, Records: [][]byte{bytes.Replace(i.record(t), []byte("EdDSA "), []byte("EdDSB "), 1)}},
		"no record":              {Tenant: "acme", PublicKey: i.publicKey, Records: [][]byte{[]byte(`hello`)}},
		"an endless record":      {Tenant: "acme", PublicKey: i.publicKey, Records: [][]byte{bytes.Repeat([]byte("x"), 1<<20)}},
	} {
		if _, err := guard.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Of the receipts of one allowance one is used, also when another one is younger
// than the use.
func TestGuardUsesAnAllowanceOnce(t *testing.T) {
	i := newIssuer(t, 1)
	until := noon.Add(15 * time.Minute)
	again := func(decision string, issued time.Time) guard.Execution {
		return i.execution(t, "allowance", func(c *receipt.Claims) {
			c.DecisionID, c.IssuedAt, c.ExpiresAt, c.UseUntil = decision, events.At(issued), events.At(issued.Add(time.Minute)), events.At(until)
		})
	}
	for name, uses := range map[string]func() guard.UseStore{
		"memory": func() guard.UseStore { return guard.NewMemory(0) },
		"directory": func() guard.UseStore {
			d, err := guard.NewDirectory(t.TempDir())
			ok(t, err)
			return d
		},
	} {
		clock := noon
		g := i.guard(t, func(o *guard.Options) { o.Uses, o.Now = uses(), func() time.Time { return clock } })
		if ran, err := ran(g, again("d1", noon)); !ran {
			t.Errorf("%s: %v", name, err)
		}
		for _, after := range []time.Duration{time.Second, 5 * time.Minute, 14 * time.Minute} {
			clock = noon.Add(after)
			_, _ = ran(g, i.execution(t, name+after.String(), func(c *receipt.Claims) { // the memory forgets what it can
				c.IssuedAt, c.ExpiresAt = events.At(clock), events.At(clock.Add(time.Minute))
			}))
			if ran, err := ran(g, again("d2", clock)); ran || guard.Code(err) != guard.CodeUsed {
				t.Errorf("%s, %s later: ran %t, %v", name, after, ran, err)
			}
		}
	}
}

// While the checkpoint key is being replaced both count.
func TestGuardTakesTwoCheckpointKeys(t *testing.T) {
	i := newIssuer(t, 1)
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{101}, 32)))
	ok(t, err)
	next := i
	next.voucher, err = signing.CheckpointSigner(private)
	ok(t, err)
	g := i.guard(t, func(o *guard.Options) { o.PublicKey += "\n" + public + "\n" })
	for n, by := range []issuer{i, next} {
		if ran, err := ran(g, by.execution(t, fmt.Sprint("n", n), nil)); !ran {
			t.Error(err)
		}
	}
}

func TestMemory(t *testing.T) {
	use := func(id string, expires, now time.Duration) guard.Use {
		return guard.Use{ID: id, Expires: noon.Add(expires), Now: noon.Add(now)}
	}
	m := guard.NewMemory(2)
	for n, c := range []struct {
		use   guard.Use
		first bool
		err   error
	}{
		{use("a", 10, 0), true, nil},
		{use("a", 10, 1), false, nil},
		{use("b", 20, 1), true, nil},
		{use("c", 30, 2), false, guard.ErrUsesFull}, // never one that still holds is dropped for it
		{use("a", 10, 10), false, nil},
		{use("c", 30, 11), true, nil}, // a has expired
		{use("a", 10, 5), false, nil}, // the clock went back to when a held
		{use("d", 5, 4), false, nil},
		{use("b", 20, 12), false, nil},
		{use("e", 90, 80), true, nil},
	} {
		if first, err := m.MarkUsed(context.Background(), c.use); first != c.first || !errors.Is(err, c.err) {
			t.Errorf("step %d: %v %v", n, first, err)
		}
	}
}

func TestDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uses")
	one, err := guard.NewDirectory(path)
	ok(t, err)
	two, err := guard.NewDirectory(path) // another process, or this one after a restart
	ok(t, err)
	id := strings.Repeat("a", 64)
	var firsts atomic.Int32
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			d := []*guard.Directory{one, two}[n%2]
			first, err := d.MarkUsed(context.Background(), guard.Use{ID: id, Expires: noon.Add(time.Minute), Now: noon})
			if err != nil {
				t.Error(err)
			}
			if first {
				firsts.Add(1)
			}
		})
	}
	wg.Wait()
	if firsts.Load() != 1 {
		t.Errorf("%d took it first", firsts.Load())
	}
	// What no receipt can live to see is removed, nothing else is.
	keep := filepath.Join(path, "notes.txt")
	ok(t, os.WriteFile(keep, nil, 0o600))
	for _, f := range []string{keep, filepath.Join(path, id)} {
		ok(t, os.Chtimes(f, noon, noon))
	}
	young := strings.Repeat("b", 64)
	later := noon.Add(26 * time.Hour)
	if _, err := one.MarkUsed(context.Background(), guard.Use{ID: young, Expires: later.Add(1), Now: later}); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(path)
	ok(t, err)
	if len(files) != 3 || files[0].Name() != young || files[1].Name() != "forgotten" || files[2].Name() != "notes.txt" {
		t.Errorf("files %v", files)
	}
	// The clock has gone back: files are removed on.
	old := filepath.Join(path, strings.Repeat("c", 64))
	ok(t, os.WriteFile(old, nil, 0o600))
	ok(t, os.Chtimes(old, noon.Add(-30*time.Hour), noon.Add(-30*time.Hour)))
	if first, err := one.MarkUsed(context.Background(), guard.Use{ID: strings.Repeat("d", 64), Expires: noon.Add(time.Minute), Now: noon}); err != nil || !first {
		t.Errorf("a receipt that expires after all forgotten ones: %v, %v", first, err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old file is kept: %v", err)
	}
	ok(t, os.RemoveAll(path))
	if first, err := one.MarkUsed(context.Background(), guard.Use{ID: id, Now: later}); first || err == nil {
		t.Errorf("without its directory: %v %v", first, err)
	}
}

// Two executors that share a memory share what is used; two that do not, do not.
func TestSharedMemory(t *testing.T) {
	i := newIssuer(t, 1)
	memory := guard.NewMemory(0)
	share := func(o *guard.Options) { o.Uses = memory }
	a, b, alone := i.guard(t, share), i.guard(t, share), i.guard(t, nil)
	e := i.execution(t, "n", nil)
	for n, c := range []struct {
		g    *guard.Guard
		runs bool
	}{{a, true}, {b, false}, {alone, true}, {alone, false}} {
		if ran, err := ran(c.g, e); ran != c.runs {
			t.Errorf("step %d: %v", n, err)
		}
	}
}
