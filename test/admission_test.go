package e2e_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// Every verdict, in both protocols: reply, headers, receipt, and the two
// messages on the log that were there before it.
func TestAdmission(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r, db := s.runtime(t), s.auditors(t)
	invoke := func(tool string) func(session, call string) object {
		return func(session, call string) object { return invoked(session, call, tool) }
	}
	for _, tc := range []struct {
		name, protocol string
		call           func(session, call string) object
		verdict, code  string
	}{
		{"allow", "agenthook", allowedCall, "allow", "inside_workspace"},
		{"ask", "agenthook", askedCall, "ask", "external_recipient"},
		{"deny", "agenthook", deniedCall, "deny", "destructive_action"},
		{"no-match", "agenthook", unknownCall, "deny", "no_policy_match"},
		{"aaep-allow", "aaep", invoke("find_flights"), "allow", "reversible"},
		{"aaep-deny", "aaep", invoke("wipe_disk"), "deny", "no_policy_match"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sess := aaepSession("admit" + tc.name)
			request := tc.call(sess, "call_"+strings.ReplaceAll(tc.name, "-", ""))
			a := r.admit(t, tc.protocol, request.bytes())
			if a.verdict != tc.verdict || a.msg.Header.Get("Nats-Service-Error-Code") != "" {
				t.Fatalf("verdict %q, headers %v", a.verdict, a.msg.Header)
			}
			native(t, tc.protocol, request, a)
			checkReceipt(t, s, tc.protocol, request, a)
			decision := onLog(t, s, request, a)
			if codes := reasons(decision); !slices.Contains(codes, tc.code) {
				t.Errorf("reasons %v, want %s", codes, tc.code)
			}
			if rows := session(t, db, sess); !slices.Equal(kinds(rows)[:2], []string{"request", "decision"}) {
				t.Errorf("kinds %v", kinds(rows))
			}
		})
	}
}

// native checks the body that the protocol's own clients expect.
func native(t *testing.T, protocol string, request object, a answer) {
	t.Helper()
	if protocol == "aaep" { // the decision record itself
		if a.body.text("verdict") != a.verdict || a.body.text("decision_id") != a.id || a.body.text("event_id") != request.text("event_id") {
			t.Errorf("reply %s", a.msg.Data)
		}
		return
	}
	if a.body.text("event_id") != request.text("event_id") || a.body.text("decision") != a.verdict || a.body.text("reason") == "" ||
		a.body.text("metadata.admission_verdict.verdict") != a.verdict || a.body.text("metadata.admission_verdict.subscriber") != "countersign" {
		t.Errorf("reply %s", a.msg.Data)
	}
	pending := a.body.text("metadata.approval.status") == "pending" && a.body.text("metadata.approval.workflow_id") != ""
	if pending != (a.verdict == "ask") {
		t.Errorf("verdict %s, approval %v", a.verdict, a.body["metadata"])
	}
}

// checkReceipt verifies the receipt as a stranger would: a JWS under the key in
// the reply, for which the checkpoint key vouches, over exactly this call.
func checkReceipt(t *testing.T, s *system, protocol string, request object, a answer) {
	t.Helper()
	key := receiptKey(t, s, a)
	parts := strings.Split(a.receipt, ".")
	if len(parts) != 3 {
		t.Fatalf("the receipt has %d parts: %s", len(parts), a.receipt)
	}
	var head, claims object
	ok(t, json.Unmarshal(unbase64(t, parts[0]), &head))
	ok(t, json.Unmarshal(unbase64(t, parts[1]), &claims))
	if head.text("alg") != "EdDSA" || !ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), unbase64(t, parts[2])) {
		t.Fatalf("the receipt does not verify; header %v", head)
	}
	info := s.info(t)
	for path, want := range map[string]string{
		"decision_id": a.id, "verdict": a.verdict, "tenant": info.Tenant, "source": info.Roles["runtime"].Publisher,
		"session": request.text("session_id"), "tool": request.text("tool_name") + request.text("tool"),
		"tool_call_id": request.text("metadata.tool_call_id") + request.text("tool_call_id"),
	} {
		if claims.text(path) != want {
			t.Errorf("claim %s is %q, want %q", path, claims.text(path), want)
		}
	}
	hash := ""
	if protocol == "agenthook" { // the members here are plain, so Go's JSON is the canonical form
		args, err := json.Marshal(request["tool_input"])
		ok(t, err)
		mac := hmac.New(sha256.New, unbase64(t, claims.text("args_salt")))
		mac.Write(args)
		hash = "salted-sha256:" + hex.EncodeToString(mac.Sum(nil))
	}
	if claims.text("args_hash") != hash || claims.text("nonce") == "" || claims.text("issued_at") >= claims.text("expires_at") {
		t.Errorf("args_hash is not of the arguments, or other claims are missing: %v", claims)
	}
}

// receiptKey is the key in the reply's header, once the checkpoint key has
// vouched for it.
func receiptKey(t *testing.T, s *system, a answer) ed25519.PublicKey {
	t.Helper()
	var k object
	ok(t, json.Unmarshal([]byte(a.msg.Header.Get("Countersign-Key")), &k))
	v, err := note.NewVerifier(s.info(t).PublicKey)
	ok(t, err)
	n, err := note.Open([]byte(k.text("vouch")), note.VerifierList(v))
	ok(t, err)
	if want := "countersign/key/v1\nreceipt " + k.text("kid") + " EdDSA " + k.text("public_key") + "\n"; n.Text != want {
		t.Errorf("the voucher vouches for %q, not %q", n.Text, want)
	}
	pub := unbase64(t, k.text("public_key"))
	if len(pub) != ed25519.PublicKeySize {
		t.Fatalf("a key of %d bytes", len(pub))
	}
	return pub
}

// onLog checks the two messages that a verdict left: the request, byte for byte,
// then the decision, and gives the decision.
func onLog(t *testing.T, s *system, request object, a answer) object {
	t.Helper()
	operator := s.connect(t, "operator")
	m, err := message(operator, "GOV", object{"seq": a.seq})
	ok(t, err)
	info := s.info(t)
	if want := "gov.decisions." + info.Tenant + "." + a.verdict + "." + request.text("session_id"); m.Subject != want {
		t.Errorf("decision on %s, want %s", m.Subject, want)
	}
	var decision object
	ok(t, json.Unmarshal(m.Data, &decision))
	if decision.text("decision_id") != a.id || decision.text("verdict") != a.verdict || decision.text("durability") != "fsync" {
		t.Errorf("decision %s", m.Data)
	}
	if strings.Contains(string(m.Data)+string(m.Header), "marker-") || !strings.Contains(string(m.Header), "ce-type: dev.countersign.decision.v1") {
		t.Errorf("a raw argument is in the decision, or it is no CloudEvent: %s%s", m.Header, m.Data)
	}
	kept := atSeq(t, s.auditors(t), a.seq)
	if kept.Kind != "decision" || kept.body(t).text("decision_id") != a.id {
		t.Errorf("evidence of the decision: %+v", kept)
	}
	var requests []row
	for _, q := range session(t, s.auditors(t), request.text("session_id")) {
		if q.Kind == "request" && q.Seq < a.seq {
			requests = append(requests, q)
		}
	}
	if len(requests) != 1 {
		t.Fatalf("%d requests before the decision at %d", len(requests), a.seq)
	}
	q, err := message(operator, "GOV", object{"seq": requests[0].Seq})
	ok(t, err)
	if string(q.Data) != string(request.bytes()) || !strings.Contains(string(q.Header), "Countersign-Decision-Id: "+a.id) {
		t.Errorf("request on the log: %s%s", q.Header, q.Data)
	}
	return decision
}

func reasons(decision object) (codes []string) {
	list, _ := decision["reasons"].([]any)
	for _, r := range list {
		m, _ := r.(map[string]any)
		codes = append(codes, object(m).text("code"))
	}
	return codes
}

func unbase64(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	ok(t, err)
	return b
}

// Nothing that a caller put into its arguments is in any decision.
func TestDecisionsHoldNoArguments(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	for _, call := range []func(string, string) object{allowedCall, askedCall, deniedCall, unknownCall} {
		r.admit(t, "agenthook", call("s-arguments", "c-args").bytes())
	}
	s.settle(t)
	db := s.auditors(t)
	for _, table := range []string{"evidence WHERE kind = 'decision' AND", "decisions WHERE", "calls WHERE"} {
		if n := number(t, db, "SELECT count() FROM "+table+" position(formatRow('JSONEachRow', *), 'marker-') > 0"); n != 0 {
			t.Errorf("%d rows of %s hold an argument", n, table)
		}
	}
	if n := number(t, db, "SELECT count() FROM evidence WHERE kind = 'request' AND position(record, 'marker-c-args') > 0"); n != 4 {
		t.Errorf("%d requests hold theirs: the search above finds nothing", n)
	}
}

// Session and call id may come as headers where the body has none; the body
// wins, and asking again is a retry, not a second call.
func TestAdmissionHeaders(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	bare := allowedCall("x", "c1").with("session_id", nil).with("metadata", nil)
	a := r.admit(t, "agenthook", bare.bytes(), "Countersign-Session", "s-header", "Countersign-Tool-Call-Id", "call-header",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	b := r.admit(t, "agenthook", bare.bytes(), "Countersign-Session", "s-header", "Countersign-Tool-Call-Id", "call-header")
	if a.verdict != "allow" || b.verdict != "allow" || a.id == b.id {
		t.Errorf("%s %s, then %s %s", a.verdict, a.id, b.verdict, b.id)
	}
	s.settle(t)
	d := atSeq(t, s.auditors(t), a.seq).body(t)
	if d.text("session") != "s-header" || d.text("tool_call_id") != "call-header" || !strings.Contains(d.text("trace"), "0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("decision %v", d)
	}
	if n := number(t, s.auditors(t), "SELECT uniqExact(call_id) FROM calls WHERE session = 's-header'"); n != 1 {
		t.Errorf("%d calls", n)
	}
	// No session at all: accepted, unchained, and marked.
	c := r.admit(t, "agenthook", bare.bytes())
	if m := atSeq(t, s.auditors(t), c.seq); c.verdict != "allow" || m.Subject != "gov.decisions.acme.allow.~" || !slices.Contains(reasons(m.body(t)), "weak_scope") {
		t.Errorf("%s on %s: %v", c.verdict, m.Subject, reasons(m.body(t)))
	}
}
