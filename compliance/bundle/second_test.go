package bundle

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// A signature covers the bytes of the log. Where a credential was taken out of a name in them, no
// verifier can check it from a bundle, and each says so.
func TestSignaturesThatCannotBeChecked(t *testing.T) {
	w, src := decidedWorld(t)
	body := []byte(`{"event_type":"PreToolUse","tool_name":"send_email"}`)
	const id = "0199a000-0000-7000-8000-000000000099"
	w.Log(subject.Space{}.Request("acme", "runtime-1", "agenthook", "s1"), map[string][]string{events.HeaderDecisionID: {id}}, body)
	w.Decision(events.Decision{DecisionID: id, Tenant: "acme", Protocol: "agenthook", Source: "runtime-1", Session: "s1", Tool: "send_email", Agent: "ghp_0123456789abcdefghijABCDEFGHIJ012345",
		RequestDigest: digest.Keyed(w.Keys.TenantKey("acme"), body), Verdict: events.Deny, Policy: w.policy, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched"}},
		ReceivedAt: events.At(begin), DecidedAt: events.At(begin)})
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"session": {fullBundle(t, w, src, nil, nil), "2 of their signatures verified"},
		"range":   {fullRange(t, w, src, nil), "3 of their signatures verified"},
	} {
		rep := verifyWorld(t, w, c.file, Options{})
		if !rep.OK || rep.SignaturesUnchecked != 1 {
			t.Errorf("%s: %+v", name, rep)
		}
		if code, out := second(t, w, c.file); code != 0 || !strings.Contains(out, c.want) || !strings.Contains(out, "1 signatures were not checked") {
			t.Errorf("%s: the second verifier says %d: %s", name, code, out)
		}
	}
}

// Such a signature must have its form: both verifiers refuse a bundle with another.
func TestSignaturesThatHaveNoForm(t *testing.T) {
	for _, signature := range []string{"none", "a..b", "eyJhbGciOiJFZERTQSJ9..AAAA"} {
		w, src := decidedWorld(t)
		w.Log(subject.Space{}.Approval("acme", "approved", "w1"), map[string][]string{events.HeaderSignature: {signature}},
			w.Encode(events.Approval{WorkflowID: "w1", Tenant: "acme", Status: "approved", Session: "s1", Tool: "ghp_0123456789abcdefghijABCDEFGHIJ012345"}))
		file := fullRange(t, w, src, nil)
		if rep := verifyWorld(t, w, file, Options{}); rep.OK || rep.ByCode[verify.CodeApprovalSignature] != 1 || rep.Total != 1 {
			t.Errorf("%s: %s", signature, codes(rep))
		}
		if code, out := second(t, w, file); code != 1 || !strings.Contains(out, "FAIL  "+memberRecords) {
			t.Errorf("%s: the second verifier says %d: %s", signature, code, out)
		}
	}
}

// A line that is not ended is the fault of its member, for both verifiers.
func TestLineThatIsNotEnded(t *testing.T) {
	w, src := decidedWorld(t)
	for _, name := range streamed {
		file := forge(t, fullRange(t, w, src, nil), nil, func(files map[string][]byte) { files[name] = append(bytes.Clone(files[name]), 'x') })
		rep, err := Verify(bytes.NewReader(file), int64(len(file)), w.VKey, Options{})
		if err == nil && !strings.Contains(codes(rep), name) || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %s", name, err, codes(rep))
		}
		if code, out := second(t, w, file); code != 1 || !strings.Contains(out, "FAIL  "+name) {
			t.Errorf("%s: the second verifier says %d: %s", name, code, out)
		}
	}
}

// true is no number: where one stands, both verifiers refuse the bundle.
func TestTrueIsNoNumber(t *testing.T) {
	w, src := decidedWorld(t)
	w.call("other", "s9", events.Allow)
	for name, c := range map[string]struct{ member, from, to, want string }{
		"a level of the cover":    {memberCover, `"level":1}`, `"level":true}`, "level is no whole number"},
		"the version of a record": {memberRecords, `"v":1}`, `"v":true}`, "v is no whole number"},
	} {
		forged := forge(t, fullRange(t, w, src, nil), nil, func(files map[string][]byte) {
			changed := bytes.Replace(files[c.member], []byte(c.from), []byte(c.to), 1)
			if bytes.Equal(changed, files[c.member]) {
				t.Fatalf("%s: not in %s", name, files[c.member])
			}
			files[c.member] = changed
		})
		if rep, err := Verify(bytes.NewReader(forged), int64(len(forged)), w.VKey, Options{}); err == nil && rep.OK {
			t.Errorf("%s holds", name)
		}
		if code, out := second(t, w, forged); code != 1 || !strings.Contains(out, "FAIL  "+c.member) || !strings.Contains(out, c.want) {
			t.Errorf("%s: the second verifier says %d: %s", name, code, out)
		}
	}
}

// The bundle of a session begins with the session's first record, also if that one has no text any more. The
// cover of the others fits, and both verifiers refuse it.
func TestSessionWithoutItsFirstRecord(t *testing.T) {
	w, src := decidedWorld(t)
	for _, kind := range []string{"with its text", "expired"} {
		var expiries []verify.ExpiryRecord
		if kind == "expired" {
			expiries = w.proved(w.expire("acme", "s1"))
		}
		for left := range 2 {
			file := fullBundle(t, w, src, nil, func(in *Input) {
				in.Expiries = expiries
				changeRows(t, in, func(rows []evidence.Row) []evidence.Row { return rows[left:] })
			})
			rep := verifyWorld(t, w, file, Options{})
			if code, out := second(t, w, file); rep.OK != (left == 0) || (code == 0) != (left == 0) || rep.OK != (rep.ByCode[verify.CodeChain] == 0) {
				t.Errorf("%s, %d left out: %s; the second verifier says %d: %s", kind, left, codes(rep), code, out)
			}
		}
	}
}
