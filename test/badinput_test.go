package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// A request that is not valid for its protocol is refused in that protocol and
// in the micro error headers; it is evidence, and the next one is answered.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := alone(t)
	r := s.runtime(t)
	for i, tc := range malformed {
		t.Run(tc.name, func(t *testing.T) {
			good := allowedCall("s-bad-req", fmt.Sprint("call-", i))
			a, err := r.ask("agenthook", tc.body(good))
			ok(t, err)
			if a.verdict != "deny" || a.body.text("decision") != "deny" || a.body.text("reason") != tc.code {
				t.Errorf("%s: %s", a.verdict, a.msg.Data)
			}
			if code, says := a.msg.Header.Get("Nats-Service-Error-Code"), a.msg.Header.Get("Nats-Service-Error"); len(code) != 3 || !strings.HasPrefix(says, tc.code) {
				t.Errorf("error headers %q %q", code, says)
			}
			if next := r.admit(t, "agenthook", good.bytes()); next.verdict != "allow" {
				t.Errorf("the next request is answered %s", next.verdict)
			}
			d := atSeq(t, s.auditors(t), a.seq)
			if d.Kind != "decision" || d.body(t).text("verdict") != "deny" || !slices.Contains(reasons(d.body(t)), tc.code) {
				t.Errorf("evidence of the decision: %s %v", d.Kind, reasons(d.body(t)))
			}
			kind := "request"
			if !tc.parses {
				kind = "unparseable"
			}
			if q := requestOf(t, s, a); q.Kind != kind {
				t.Errorf("the request is of kind %s, want %s", q.Kind, kind)
			}
		})
	}
	for _, tc := range []struct{ name, subject, code string }{
		{"unknown protocol", "gov.admit.acme.nonsense", "unknown_protocol"},
		{"a protocol that has no name", "gov.admit.acme.~", "unknown_protocol"},
		{"a token that nobody would write", "gov.admit.acme.Agent$Hook", "unknown_"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reply, err := r.nc.Request(tc.subject, allowedCall("s-bad-req", "c").bytes(), patience)
			ok(t, err)
			if reply.Header.Get("Countersign-Verdict") != "deny" || !strings.Contains(string(reply.Data), tc.code) {
				t.Errorf("%v: %s", reply.Header, reply.Data)
			}
		})
	}
	t.Run("as large as a message can be", func(t *testing.T) {
		// The copy on the log has headers beside it, for which there is no room.
		a, err := r.ask("agenthook", sized(allowedCall("s-bad-req", "c"), maxPayload))
		ok(t, err)
		if a.verdict != "deny" || a.body.text("decision") != "deny" {
			t.Errorf("%s: %s", a.verdict, a.msg.Data)
		}
		if next := r.admit(t, "agenthook", allowedCall("s-bad-req", "c-next").bytes()); next.verdict != "allow" {
			t.Errorf("the next request is answered %s", next.verdict)
		}
	})
	t.Run("larger than a message can be", func(t *testing.T) {
		if _, err := r.ask("agenthook", make([]byte, maxPayload+1)); err == nil {
			t.Error("it was sent")
		}
	})
	t.Run("AAEP", func(t *testing.T) {
		for _, body := range [][]byte{nil, []byte("{"), invoked("sess_bad", "call_1", "find_flights").with("tool", 7).bytes(),
			invoked("sess_bad", "call_1", "find_flights").with("session_id", nil).bytes(), aaepEvent("sess_bad", "session.started", nil).bytes()} {
			a, err := r.ask("aaep", body)
			ok(t, err)
			if a.verdict != "deny" || a.body.text("verdict") != "deny" || a.body.text("decision_id") != a.id || a.msg.Header.Get("Nats-Service-Error-Code") == "" {
				t.Errorf("%v: %s", a.msg.Header, a.msg.Data)
			}
		}
	})
}

// requestOf is the evidence of the request that a decision is about: the last
// one before it that names it.
func requestOf(t testing.TB, s *system, a answer) row {
	t.Helper()
	rows := evidence(t, s.auditors(t), "seq < ? AND subject LIKE 'gov.events.%.request' AND position(record, ?) > 0", a.seq, a.id)
	if len(rows) != 1 {
		t.Fatalf("%d requests of decision %s", len(rows), a.id)
	}
	return rows[0]
}

// An event that fails validation is one record of evidence and one finding, its bytes are in
// quarantine if they cannot be read, and the events after it are correlated as usual.
func TestBadEvents(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	type event struct {
		name string
		msg  *nats.Msg
		kind string
	}
	var list []event
	add := func(name, subject, kind string, body []byte, headers ...string) {
		m := nats.NewMsg(subject)
		m.Data = body
		for i := 0; i < len(headers); i += 2 {
			m.Header.Set(headers[i], headers[i+1])
		}
		list = append(list, event{name, m, kind})
	}
	const sess = "s-bad-ev"
	for i, tc := range malformed {
		kind := "event"
		if !tc.parses {
			kind = "unparseable"
		}
		add(tc.name, r.subject("agenthook", sess, "PreToolUse"), kind, tc.body(allowedCall(sess, fmt.Sprint("bad-", i))))
	}
	start := hook(sess, "SessionStart")
	base := "gov.events.acme." + r.publisher
	// The log needs some room for subject and headers beside the body.
	add("as large as an event can be", r.subject("agenthook", sess, "PreToolUse"), "unparseable", sized(allowedCall(sess, "huge"), maxPayload-1024))
	add("another session in the subject", r.subject("agenthook", "s-elsewhere", "SessionStart"), "event", hook(sess, "SessionStart").bytes())
	add("another type in the subject", r.subject("agenthook", sess, "SessionEnd"), "event", hook(sess, "SessionStart").bytes())
	add("no protocol that is known", base+".nonsense."+sess+".x", "event", start.bytes())
	add("a token badly escaped", base+".agenthook.~!.SessionStart", "unparseable", start.bytes())
	add("too few tokens", base+".agenthook", "unparseable", start.bytes())
	add("AAEP without a session", r.subject("aaep", "", "agent.tool.invoked"), "event", invoked("x", "call_1", "find_flights").with("session_id", nil).bytes())
	add("broken structured CloudEvent", r.subject("agenthook", sess, "SessionStart"), "unparseable", []byte(`{"specversion":"1.0"}`), "content-type", "application/cloudevents+json")
	add("broken binary CloudEvent", r.subject("agenthook", sess, "SessionStart"), "event", hook(sess, "SessionStart").bytes(), "ce-specversion", "9.9", "ce-id", "1")
	add("CloudEvent batch", r.subject("agenthook", sess, "SessionStart"), "event", []byte("[]"), "content-type", "application/cloudevents-batch+json")

	db := s.auditors(t)
	seqs := make([]uint64, len(list))
	for i, e := range list {
		seq, err := r.store(e.msg)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		seqs[i] = seq
	}
	s.settle(t) // what came behind them was correlated
	quarantined := quarantine(t, s)
	for i, e := range list {
		t.Run(e.name, func(t *testing.T) {
			rows := evidence(t, db, "seq = ?", seqs[i])
			if len(rows) != 1 || rows[0].Kind != e.kind {
				t.Fatalf("evidence of kinds %v, want one of %s", kinds(rows), e.kind)
			}
			var rules []string
			result, err := db.Query(context.Background(), "SELECT rule FROM findings WHERE has(seqs, ?)", seqs[i])
			ok(t, err)
			defer result.Close()
			for result.Next() {
				var rule string
				ok(t, result.Scan(&rule))
				if named(rule) {
					rules = append(rules, rule)
				}
			}
			// One may be wrong in itself and under the wrong subject, too.
			if !slices.Equal(slices.Compact(rules), []string{"schema_invalid"}) {
				t.Errorf("findings %v", rules)
			}
			switch bytesKept, there := quarantined[seqs[i]]; {
			case there != (e.kind == "unparseable"):
				t.Errorf("in quarantine: %t", there)
			case there && !bytes.Equal(bytesKept, e.msg.Data):
				t.Errorf("quarantine has %d bytes, %d were published", len(bytesKept), len(e.msg.Data))
			}
			if e.kind == "unparseable" {
				digest := "session-hmac-sha256:"
				if rows[0].Session == "" {
					digest = "hmac-sha256:" // under the tenant's key
				}
				if rec := rows[0].record(t); rec["body"] != nil || rec.text("reason") == "" || !strings.HasPrefix(rows[0].BodyDigest, digest) {
					t.Errorf("record %.300s", rows[0].Record)
				}
			}
		})
	}
}

// quarantine reads the bytes in quarantine, by the sequence they have in the
// log. Only the services' own users may.
func quarantine(t testing.TB, s *system) map[uint64][]byte {
	t.Helper()
	nc := s.service(t, "auditor")
	kept := map[uint64][]byte{}
	for next := uint64(1); ; next++ {
		m, err := message(nc, "GOV_QUARANTINE", object{"seq": next, "next_by_subj": "gov.quarantine.>"})
		if err != nil {
			if !strings.Contains(err.Error(), "no message found") {
				t.Fatal(err)
			}
			return kept
		}
		next = m.Seq
		seq, err := strconv.ParseUint(strings.TrimSpace(headerOf(m.Header, "Countersign-Seq")), 10, 64)
		ok(t, err)
		if headerOf(m.Header, "Countersign-Reason") == "" {
			t.Errorf("sequence %d is in quarantine for no reason", seq)
		}
		kept[seq] = append(kept[seq], m.Data...) // a large one comes in parts
	}
}

// CloudEvents, binary and structured, are events like any other.
func TestCloudEvents(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	heard := listen(t, s, "gov.findings.acme.>")
	for _, mode := range []string{"plain", "binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			sess := "s-ce-" + mode
			send := func(e object) {
				switch mode {
				case "plain":
					r.publish(t, e)
				case "binary":
					r.put(t, e.subject(r), e.bytes(), "ce-specversion", "1.0", "ce-id", e.text("event_id"), "ce-source", "/e2e", "ce-type", "org.example.hook",
						"content-type", "application/json")
				case "structured":
					ce := object{"specversion": "1.0", "id": e.text("event_id"), "source": "/e2e", "type": "org.example.hook", "datacontenttype": "application/json", "data": e}
					r.put(t, e.subject(r), ce.bytes(), "content-type", "application/cloudevents+json; charset=utf-8")
				}
			}
			call := deniedCall(sess, "c1")
			r.admit(t, "agenthook", call.bytes())
			send(call)
			send(postToolUse(call))
			s.settle(t)
			expect(t, s, heard, sess, []string{"executed_despite_deny/critical"})
			if n := number(t, s.auditors(t), "SELECT count() FROM evidence WHERE session = ? AND kind = 'event'", sess); n != 2 {
				t.Errorf("%d events in evidence", n)
			}
		})
	}
}

// An event without a session is accepted, unchained and marked.
func TestEventsWithoutSession(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	call := allowedCall("x", "call-nowhere").with("session_id", nil)
	r.admit(t, "agenthook", call.bytes())
	seq := r.publish(t, call)
	r.publish(t, postToolUse(call))
	s.settle(t)
	rec := atSeq(t, s.auditors(t), seq).record(t)
	if rec["session_index"] != nil || rec["session_prev"] != nil || rec.text("kind") != "event" {
		t.Errorf("%v", rec)
	}
	if n := number(t, s.auditors(t), "SELECT count() FROM calls WHERE tool_call_id = 'call-nowhere' AND state = 'completed' AND weak_scope"); n != 1 {
		t.Errorf("%d completed calls marked weak_scope", n)
	}
}
