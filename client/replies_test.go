package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/streams"
)

var update = flag.Bool("update", false, "write the replies that the SDKs read anew")

// repliesFile holds answers of real admissions, and malformed ones, which the SDKs of all languages read.
const repliesFile = "../sdk/vectors/replies.json"

// noon is when all of them were decided.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// replyVectors is the content of repliesFile.
type replyVectors struct {
	Tenant    string                 `json:"tenant"`
	Publisher string                 `json:"publisher"`
	PublicKey string                 `json:"public_key"`
	Answers   map[string]replyAnswer `json:"answers"`
	Cases     []replyCase            `json:"cases"`
}

// replyAnswer is one answer over both transports; NATS is absent from what the gateway alone says.
type replyAnswer struct {
	HTTP httpAnswer  `json:"http"`
	NATS *natsAnswer `json:"nats,omitempty"`
}

type httpAnswer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

type natsAnswer struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// replyCase is what a client makes of an answer at a time, for the call that is about to run.
type replyCase struct {
	Name     string    `json:"name"`
	Answer   string    `json:"answer"`
	Protocol string    `json:"protocol"`
	Call     replyCall `json:"call"`
	Now      string    `json:"now"`
	Decision string    `json:"decision"`
	Reason   string    `json:"reason"`
	Workflow bool      `json:"workflow"` // the verdict names a workflow; a person's approval lifts an ask alone
}

type replyCall struct {
	Session    string  `json:"session"`
	ToolCallID string  `json:"tool_call_id"`
	Tool       string  `json:"tool"`
	Arguments  *string `json:"arguments"` // a JSON text; null for a protocol without arguments
}

// replyPolicies are policies for the protocols that the examples have none for.
const replyPolicies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: others
spec:
  match:
    tenants: [acme]
    protocols: [aaep, aana, aump, tool, handoff]
  rules:
    - name: late
      when: 'protocol in ["tool", "handoff"] && event.turn == 2'
      verdict: ask
      reason: late_turn
    - name: endless
      when: 'protocol in ["tool", "handoff"] && event.turn > 2'
      verdict: deny
      reason: too_many_turns
    - name: rest
      when: 'protocol in ["aana", "aump"] || protocol in ["tool", "handoff"] && event.turn == 1 || tool == "book_flight"'
      verdict: allow
      reason: known
`

// deferPolicy is a policy that defers, for a protocol whose word for that is ask.
const deferPolicy = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: transfers
spec:
  match:
    tenants: [acme]
    protocols: [agenthook]
    tools: [wire_transfer]
  rules:
    - name: later
      when: 'true'
      verdict: defer
      reason: desk_closed
`

// admitting is an admitter without a service: real decisions, with keys, ids and times that are always the same.
type admitting struct {
	tb        testing.TB
	config    *admission.Config
	mandates  mandate.Source
	key       signing.PrivateKey
	record    string // of the key
	publicKey string
	decided   int
}

func newAdmitting(tb testing.TB) *admitting {
	tb.Helper()
	a := &admitting{tb: tb}
	docs := []policy.Document{{Name: "others.yaml", Data: []byte(replyPolicies)}, {Name: "transfers.yaml", Data: []byte(deferPolicy)}}
	for _, name := range []string{"mail.yaml", "assistant.yaml"} {
		docs = append(docs, policy.Document{Name: name, Data: exampleFile(tb, "policies/assistant/"+name)})
	}
	set, err := policy.Compile(docs)
	ok(tb, err)
	a.config = &admission.Config{Policies: set, Revision: 1}
	dir, err := fs.Sub(examples.FS, "mandates")
	ok(tb, err)
	a.mandates, err = mandate.Load(dir)
	ok(tb, err)
	a.key, err = signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	ok(tb, err)
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{100}, 32)))
	ok(tb, err)
	voucher, err := signing.CheckpointSigner(private)
	ok(tb, err)
	a.publicKey, a.record = public, vouchedFor(tb, a.key, voucher)
	return a
}

func vouchedFor(tb testing.TB, key signing.PrivateKey, voucher note.Signer) string {
	tb.Helper()
	k := events.KeyRecord{KeyID: key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(noon)}
	var err error
	k.Vouch, err = signing.SignKeyRecord(voucher, k)
	ok(tb, err)
	record, err := events.Encode(k)
	ok(tb, err)
	return string(record)
}

func exampleFile(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := examples.FS.ReadFile(name)
	ok(tb, err)
	return b
}

// answer is the admitter's answer to a request, as its service sends it, and as the gateway hands it on.
func (a *admitting) answer(protocol string, header map[string][]string, body string) replyAnswer {
	a.tb.Helper()
	a.decided++
	id := fmt.Sprintf("019aa0f6-0000-7000-8000-%012d", a.decided)
	out := admission.Decide(
		admission.Request{Tenant: "acme", Source: "rt1", Protocol: protocol, Header: header, Body: []byte(body), ReceivedAt: noon}, a.config,
		admission.Inputs{Now: noon, DecisionID: id, Salt: bytes.Repeat([]byte{7}, receipt.SaltSize), Nonce: "nonce-" + strconv.Itoa(a.decided),
			TenantKey: bytes.Repeat([]byte{3}, 32), Durability: "fsync", KnownTenant: true, Mandates: mandate.Records{Mandates: a.mandates}})
	token, hash, err := receipt.Issue(a.key, out.Claims)
	ok(a.tb, err)
	out.Decision.ReceiptHash = hash
	reply, err := out.Reply()
	ok(a.tb, err)
	d := out.Decision
	headers := map[string]string{events.HeaderVerdict: string(d.Verdict), events.HeaderDecisionID: d.DecisionID, events.HeaderDecisionSeq: strconv.Itoa(2 * a.decided),
		events.HeaderReceipt: token, events.HeaderKey: a.record}
	if d.Approval != nil {
		headers[events.HeaderWorkflow] = d.Approval.WorkflowID
	}
	if out.Malformed {
		headers["Nats-Service-Error-Code"], headers["Nats-Service-Error"] = out.ErrorCode, out.ErrorDescription
	}
	return handedOn(headers, reply)
}

// unrecorded is the admitter's refusal without a record.
func unrecorded(code string) replyAnswer {
	return handedOn(map[string]string{events.HeaderVerdict: string(events.Deny), "Nats-Service-Error-Code": "503", "Nats-Service-Error": code}, admission.Refusal(code))
}

// handedOn is an answer over NATS, and what the gateway makes of it.
func handedOn(headers map[string]string, body []byte) replyAnswer {
	lists := map[string][]string{}
	for name, v := range headers {
		lists[name] = []string{v}
	}
	return replyAnswer{HTTP: overHTTP(gateway.ReadReply(endpoint.Row{}, lists, body)), NATS: &natsAnswer{headers, string(body)}}
}

func overHTTP(r endpoint.Response) httpAnswer {
	h := httpAnswer{r.Status, map[string]string{}, string(r.Body)}
	for name, v := range r.Header {
		h.Headers[http.CanonicalHeaderKey(name)] = v[0]
	}
	return h
}

// replyRequests are requests of each protocol, by what comes of them.
type replyRequests struct {
	header map[string][]string // for a protocol whose body has no session and call
	call   replyCall           // that the request for an allow is about
	bodies map[string]string   // by allow, ask, deny and malformed
	reason map[string]string   // that a client tells of an ask, a denial and a malformed request
	lesser string              // of a receipt, where the executor has other arguments
}

func replyRequestsOf(tb testing.TB) map[string]replyRequests {
	read := func(name string, replace ...string) string {
		tb.Helper()
		var out bytes.Buffer
		ok(tb, json.Compact(&out, exampleFile(tb, "requests/"+name)))
		return strings.NewReplacer(replace...).Replace(out.String())
	}
	member := func(body, name string) *string {
		tb.Helper()
		var tree map[string]json.RawMessage
		ok(tb, json.Unmarshal([]byte(body), &tree))
		text := string(tree[name])
		return &text
	}
	inHeaders := map[string][]string{events.HeaderSession: {"s-1"}, events.HeaderToolCallID: {"c-1"}}
	hook, aana, aump := read("pre-tool-use.json"), read("aana-public-read.json"), read("aump-action.json")
	tool, handoff := read("tool-call.json"), read("handoff.json", `"turn":2`, `"turn":1`)
	handed := fmt.Sprintf(`{"fromAgentName":"Triage Agent","toAgentName":"Finance Agent","handoffPayload":%s}`, *member(handoff, "handoffPayload"))
	turn := func(body, n string) string { return strings.Replace(body, `"turn":1`, `"turn":`+n, 1) }
	return map[string]replyRequests{
		"agenthook": {nil, replyCall{"sess-mail-1", "call-mail-1", "send_email", member(hook, "tool_input")},
			map[string]string{"allow": hook, "ask": read("pre-tool-use-external.json"), "deny": read("pre-tool-use-denied.json"), "malformed": `{"event_type":"PreToolUse","event_type":"PreToolUse"}`},
			map[string]string{"ask": "Mail that leaves the company needs a person's consent.", "deny": "no_policy_match", "malformed": "duplicate_key"}, "receipt_other_arguments"},
		"aaep": {nil, replyCall{"sess_9e2d41b7c0aa1234", "call_flights1", "find_flights", nil},
			map[string]string{"allow": read("aaep-tool-invoked.json"), "ask": read("aaep-irreversible.json"), "deny": read("aaep-tool-invoked.json", "find_flights", "wipe_disk"), "malformed": `{"type":"aaep:agent.tool.invoked"}`},
			map[string]string{"ask": "confirmation_required", "deny": "no_policy_match", "malformed": "http_400"}, "receipt_binds_no_arguments"},
		"aana": {inHeaders, replyCall{"s-1", "c-1", "find_depot", member(aana, "proposed_arguments")},
			map[string]string{"allow": aana, "ask": read("aana-write.json"), "deny": read("aana-refused.json"), "malformed": `{"tool_name":"find_depot"}`},
			map[string]string{"ask": "write_missing_explicit_confirmation", "deny": "high_risk_write_missing_explicit_confirmation", "malformed": "http_400"}, "receipt_other_arguments"},
		"aump": {inHeaders, replyCall{"s-1", "c-1", "book_courier", member(aump, "proposed_action")},
			map[string]string{"allow": aump, "ask": strings.TrimSuffix(aump, "}") + `,"context":{"conditions":["new_counterparty"]}}`, "deny": strings.Replace(aump, "3000", "300000", 1), "malformed": `{"aump":{}}`},
			map[string]string{"ask": "escalation_required", "deny": "hard_constraint_violation", "malformed": "http_400"}, "receipt_other_arguments"},
		"tool": {nil, replyCall{"run-1", "call-1", "export_report", member(tool, "parsedArguments")},
			map[string]string{"allow": tool, "ask": turn(tool, "2"), "deny": turn(tool, "3"), "malformed": `{"toolName":7}`},
			map[string]string{"ask": "late_turn", "deny": "too_many_turns", "malformed": "schema_invalid"}, "receipt_other_arguments"},
		"handoff": {nil, replyCall{"run-1", "call-2", "handoff_to_finance_agent", &handed},
			map[string]string{"allow": handoff, "ask": turn(handoff, "2"), "deny": turn(handoff, "3"), "malformed": `{"toAgentName":7}`},
			map[string]string{"ask": "late_turn", "deny": "too_many_turns", "malformed": "schema_invalid"}, "receipt_other_arguments"},
	}
}

// malformedReplies are answers that no admitter gives, over HTTP, and what clients make of them: a reason is a text, the first
// of reason, hard_blockers, reason_codes and the code of reasons, and what has another form is none.
var malformedReplies = []struct {
	protocol         string
	status           int
	verdict, body    string
	decision, reason string
}{
	{"tool", 200, "defer", `{"decision":"require_approval","reasons":null}`, "defer", ""},
	{"tool", 200, "ask", `{"decision":"require_approval","reason":5}`, "ask", ""},
	{"tool", 200, "deny", `{"decision":"deny","reason":"","hard_blockers":"deny"}`, "deny", ""},
	{"tool", 200, "deny", `{"decision":["deny"],"reason":"no"}`, "deny", "bad_reply"},
	{"aana", 200, "ask", `{"recommended_action":"ask","execution_policy":{"execution_allowed":false},"hard_blockers":[{"code":"k"}],"reason_codes":[5],"reasons":["text"]}`, "ask", ""},
	{"aump", 200, "ask", `{"decision":"requires_escalation","reason":"","hard_blockers":[],"reason_codes":["c","d"]}`, "ask", "c"},
	{"aaep", 200, "deny", `{"verdict":"deny","reason_codes":{},"reasons":[5,{"code":"k"}]}`, "deny", ""},
	{"aaep", 200, "ask", `{"verdict":"ask","reason_codes":[""],"reasons":[{"code":"k"}]}`, "ask", "k"},
	{"agenthook", 200, "ask", `{"decision":"ask","reason":null}`, "deny", "bad_reply"},
	{"agenthook", 503, "", `[]`, "deny", "bad_reply"},
	{"agenthook", 400, "", `{"error":5,"detail":{"error":"a"},"reason":"b"}`, "deny", "b"},
}

// replies makes the vectors. What clients must make of each answer is stated here, not computed.
func replies(tb testing.TB) replyVectors {
	a, at := newAdmitting(tb), func(d time.Duration) string { return noon.Add(d).Format(time.RFC3339) }
	v := replyVectors{Tenant: "acme", Publisher: "rt1", PublicKey: a.publicKey, Answers: map[string]replyAnswer{}}
	all := replyRequestsOf(tb)
	for _, protocol := range slices.Sorted(maps.Keys(all)) {
		r := all[protocol]
		add := func(name, answer, decision, reason string, change func(*replyCase)) {
			c := replyCase{Name: protocol + ": " + name, Answer: protocol + " " + answer, Protocol: protocol, Call: r.call, Now: at(time.Second), Decision: decision, Reason: reason}
			if change != nil {
				change(&c)
			}
			v.Cases = append(v.Cases, c)
		}
		for _, what := range []string{"allow", "ask", "deny", "malformed"} {
			v.Answers[protocol+" "+what] = a.answer(protocol, r.header, r.bodies[what])
			decision := what
			if what == "malformed" {
				decision = "deny"
			}
			add(what, what, decision, r.reason[what], func(c *replyCase) { c.Workflow = what == "ask" })
		}
		allow := v.Answers[protocol+" allow"]
		without := func(header string) replyAnswer {
			out := replyAnswer{HTTP: allow.HTTP, NATS: &natsAnswer{maps.Clone(allow.NATS.Headers), allow.NATS.Body}}
			out.HTTP.Headers = maps.Clone(allow.HTTP.Headers)
			delete(out.HTTP.Headers, header)
			delete(out.NATS.Headers, header)
			return out
		}
		v.Answers[protocol+" no receipt"], v.Answers[protocol+" no verdict"] = without(events.HeaderReceipt), without(events.HeaderVerdict)
		add("a receipt for other arguments", "allow", "deny", r.lesser, func(c *replyCase) {
			other := `{"to":"eve@acme.example"}`
			c.Call.Arguments = &other
		})
		add("a receipt for another call", "allow", "deny", "receipt_other_tool_call", func(c *replyCase) { c.Call.ToolCallID += "0" })
		add("a receipt for another tool", "allow", "deny", "receipt_other_tool", func(c *replyCase) { c.Call.Tool += "s" })
		add("a receipt for another session", "allow", "deny", "receipt_other_session", func(c *replyCase) { c.Call.Session += "0" })
		add("a receipt for an older minute", "allow", "deny", "receipt_expired", func(c *replyCase) { c.Now = at(10 * time.Minute) })
		add("an allow without a receipt", "no receipt", "deny", "receipt_missing", nil)
		add("an allow without the verdict's header", "no verdict", "deny", "bad_reply", nil)
		if protocol == "aana" { // a stricter route has no blocker, so there is no code that says why
			v.Answers["aana stricter"] = a.answer(protocol, r.header, strings.Replace(r.bodies["allow"], `"recommended_route":"accept"`, `"recommended_route":"ask"`, 1))
			add("ask, because the runtime recommends it", "stricter", "ask", "", func(c *replyCase) { c.Workflow = true })
		}
		for code, reason := range map[string]string{"audit_unavailable": "audit_unavailable", "quota_exceeded": "rate_limited"} {
			v.Answers["refused "+code] = unrecorded(code)
			add("not recorded, "+code, "", "deny", reason, func(c *replyCase) { c.Answer = "refused " + code })
		}
		for _, f := range gateway.Failures() {
			if protocol != "agenthook" && protocol != "aana" { // the endpoints of the others are the same
				break
			}
			v.Answers["failure "+string(f)] = replyAnswer{HTTP: overHTTP(gateway.ProblemOf(f).Response())}
			add("the gateway's "+string(f), "", "deny", string(f), func(c *replyCase) { c.Answer = "failure " + string(f) })
		}
	}
	for _, c := range []struct{ protocol, from, to, reason string }{
		{"agenthook", "send_email", "wire_transfer", "decision_deferred"}, {"aana", "public_read", "unknown", "unknown_tool_category"},
	} {
		r, name := all[c.protocol], c.protocol+" defer"
		v.Answers[name] = a.answer(c.protocol, r.header, strings.Replace(r.bodies["allow"], c.from, c.to, 1))
		v.Cases = append(v.Cases, replyCase{c.protocol + ": defer", name, c.protocol, r.call, at(time.Second), "defer", c.reason, true})
	}
	for i, m := range malformedReplies {
		headers, name, pending := map[string]string{}, fmt.Sprintf("%s: no admitter's answer %d", m.protocol, i+1), m.decision != string(events.Deny)
		if m.verdict != "" {
			headers[events.HeaderVerdict] = m.verdict
		}
		if pending {
			headers[events.HeaderWorkflow] = "wf-1"
		}
		v.Answers[name] = replyAnswer{HTTP: httpAnswer{m.status, headers, m.body}}
		v.Cases = append(v.Cases, replyCase{name, name, m.protocol, all[m.protocol].call, at(time.Second), m.decision, m.reason, pending})
	}
	slices.SortStableFunc(v.Cases, func(a, b replyCase) int { return strings.Compare(a.Name, b.Name) })
	return v
}

// The replies that the SDKs read are those of real admissions, and malformed ones, and the Go client makes of them what is
// written there. It reads answers over NATS.
func TestReplies(t *testing.T) {
	vectors := replies(t)
	want, err := json.MarshalIndent(vectors, "", " ")
	ok(t, err)
	want = append(want, '\n')
	if *update {
		ok(t, os.WriteFile(repliesFile, want, 0o644))
	}
	if have, err := os.ReadFile(repliesFile); err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not what is answered (%v): go test ./client -run TestReplies -update", repliesFile, err)
	}
	w := start(t, streams.Shard{})
	var answer natsAnswer
	ok(t, w.answer(func(*nats.Msg) *nats.Msg {
		m := nats.NewMsg("")
		m.Data = []byte(answer.Body)
		for name, v := range answer.Headers {
			m.Header[name] = []string{v}
		}
		return m
	}))
	nc, err := w.conn("rt1")
	ok(t, err)
	asked := 0
	for _, c := range vectors.Cases {
		if vectors.Answers[c.Answer].NATS == nil {
			continue
		}
		answer = *vectors.Answers[c.Answer].NATS
		now, err := time.Parse(time.RFC3339, c.Now)
		ok(t, err)
		by, err := client.New(nc, client.Options{Tenant: vectors.Tenant, Publisher: vectors.Publisher, PublicKey: vectors.PublicKey, Timeout: testTimeout, Now: func() time.Time { return now }})
		ok(t, err)
		call := client.Call{Protocol: c.Protocol, Body: []byte(`{}`), Session: c.Call.Session, ToolCallID: c.Call.ToolCallID, Tool: c.Call.Tool}
		if c.Call.Arguments != nil {
			call.Arguments = []byte(*c.Call.Arguments)
		}
		v := by.Admit(context.Background(), call)
		by.Close()
		asked++
		reason := c.Reason
		if strings.HasPrefix(reason, "receipt_") && reason != client.ReasonReceiptMissing {
			reason = client.ReasonReceiptInvalid
		}
		recorded := vectors.Answers[c.Answer].HTTP.Status == http.StatusOK // HTTP has words of its own for the others
		if string(v.Decision) != c.Decision || v.Allowed() != (c.Decision == "allow") || (v.Workflow != "") != c.Workflow || recorded && c.Decision != "allow" && v.Reason != reason {
			t.Errorf("%s: %s %q, %v, want %s %q", c.Name, v.Decision, v.Reason, v.Err, c.Decision, reason)
		}
	}
	if asked < 50 {
		t.Errorf("only %d answers over NATS", asked)
	}
}
