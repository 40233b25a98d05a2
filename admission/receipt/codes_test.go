package receipt

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Every way a receipt can fail has a code of its own that does not change.
func TestCodesAreStable(t *testing.T) {
	for err, code := range map[error]string{
		ErrMalformed: "receipt_malformed", ErrUntrusted: "receipt_untrusted", ErrUnknownKey: "receipt_key_unknown", ErrRetiredKey: "receipt_key_retired",
		ErrBadSignature: "receipt_signature_invalid", ErrOtherCall: "receipt_other_call", ErrOtherTenant: "receipt_other_tenant",
		ErrOtherSource: "receipt_other_source", ErrOtherSession: "receipt_other_session", ErrOtherToolCall: "receipt_other_tool_call",
		ErrOtherTool: "receipt_other_tool", ErrOtherArguments: "receipt_other_arguments", ErrNoArguments: "receipt_binds_no_arguments",
		ErrNotAllowed: "receipt_not_allow", ErrNotYetValid: "receipt_not_yet_valid", ErrExpired: "receipt_expired",
	} {
		if got := Code(err); got != code {
			t.Errorf("%v has code %q, want %q", err, got, code)
		}
	}
	if Code(nil) != "" || Code(ErrIncomplete) != "" {
		t.Error("an error that is no refusal has a code")
	}
}

func TestVerifySaysWhichPartDiffers(t *testing.T) {
	token, ks := issue(t, claims(t))
	_, stranger := key(t, 2)
	forgedSet := signing.KeySet{}
	for kid := range ks {
		for _, pub := range stranger {
			forgedSet[kid] = pub // the name of one key, the bytes of another
		}
	}
	for code, c := range map[string]struct {
		ks     signing.KeySet
		change func(*Expectation)
		after  time.Duration
	}{
		"receipt_key_unknown":       {ks: stranger},
		"receipt_signature_invalid": {ks: forgedSet},
		"receipt_other_tenant":      {change: func(w *Expectation) { w.Tenant = "globex" }},
		"receipt_other_source":      {change: func(w *Expectation) { w.Source = "rt2" }},
		"receipt_other_session":     {change: func(w *Expectation) { w.Session = "s2" }},
		"receipt_other_tool_call":   {change: func(w *Expectation) { w.ToolCallID = "c2" }},
		"receipt_other_tool":        {change: func(w *Expectation) { w.Tool = "wipe" }},
		"receipt_other_arguments":   {change: func(w *Expectation) { w.ArgsCanonical = []byte(`{}`) }},
		"receipt_not_yet_valid":     {after: -Leeway - 1},
		"receipt_expired":           {after: DefaultLifetime},
	} {
		w := want()
		if c.change != nil {
			c.change(&w)
		}
		if c.ks == nil {
			c.ks = ks
		}
		if _, err := Verify(c.ks, token, w, noon.Add(c.after)); Code(err) != code {
			t.Errorf("%s: %v (%s)", code, err, Code(err))
		}
	}
}

// Of what a trusted key has signed only claims in their one spelling open.
func FuzzOpen(f *testing.F) {
	k, ks := key(f, 1)
	valid := claims(f)
	valid.V = Version
	good, err := events.Encode(valid)
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range []string{string(good), `{}`, `null`, `[]`, `{"v":1,"v":1}`, `{"V":1}`, "{\"v\":1}\n", `{"policy":null}`, `{"issued_at":"2026"}`, `{"nonce":"\ud800"}`} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		token, err := k.Sign(signing.TypeReceipt, payload)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Open(ks, token)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v", err)
			}
			return
		}
		canonical, err := strictjson.CanonicalBytes(payload)
		if err != nil || !bytes.Equal(canonical, payload) {
			t.Fatalf("opened %q, which is not canonical: %v", payload, err)
		}
		again, err := events.DecodeRecord[Claims](payload)
		if err != nil || again.Nonce != c.Nonce || again.Verdict != c.Verdict || c.validate() != nil {
			t.Fatalf("opened %q as %+v", payload, c)
		}
	})
}
