package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// refused expects the protocol's own refusal with a stable code.
func refused(t *testing.T, p proposal, out Outcome, code string) {
	t.Helper()
	sound(t, p, out)
	for _, r := range out.Decision.Reasons {
		if unreadable[r.Code] && r.Path != "" {
			t.Errorf("%s: the record of %s quotes %s", p.protocol, r.Code, r.Path)
		}
	}
	if out.Decision.Verdict != events.Deny || !out.Malformed || code != "" && out.Decision.Reasons[0].Code != code {
		t.Errorf("%s: %s, want deny %s", p.protocol, codes(out), code)
	}
}

// unreadable are the codes of requests that are no JSON. Their decisions belong to no
// session that an erasure could find, so they say nothing of what stood there.
var unreadable = map[string]bool{"not_json": true, "not_object": true, "trailing_data": true, "invalid_utf8": true, "duplicate_key": true, "case_collision": true,
	"unsafe_integer": true, "imprecise_number": true, "too_deep": true, "too_large": true}

// What is no request of any protocol is refused by all of them in the same words.
func TestBadInputOfEveryProtocol(t *testing.T) {
	m := courierMandate(t)
	for _, p := range proposals(m) {
		if out := p.decide(p.body, anything(t), m); out.Decision.Verdict != events.Allow {
			t.Fatalf("%s: the valid one is %s", p.protocol, codes(out))
		}
		first := p.body[:strings.Index(p.body, ":")+1] // {"key":
		key := strings.Trim(first, `{":`)
		for name, c := range map[string]struct{ body, code string }{
			"empty":                  {"", "not_json"},
			"blank":                  {" \n", "not_json"},
			"text":                   {"allow", "not_json"},
			"null":                   {"null", "not_object"},
			"a list":                 {"[" + p.body + "]", "not_object"},
			"a word":                 {`"allow"`, "not_object"},
			"a number":               {"7", "not_object"},
			"cut off":                {p.body[:len(p.body)-1], "not_json"},
			"two documents":          {p.body + p.body, "trailing_data"},
			"not UTF-8":              {first + "\"\xff\"," + p.body[1:], "invalid_utf8"},
			"half a surrogate":       {first + `"\ud800",` + p.body[1:], "invalid_utf8"},
			"a key twice":            {first + "1," + p.body[1:], "duplicate_key"},
			"a key in two cases":     {strings.ToUpper(first) + "1," + p.body[1:], "case_collision"},
			"a key in two alphabets": {`{"` + key + `\u0000":1,` + p.body[1:], ""},
			"an integer that rounds": {`{"zz":9007199254740993,` + p.body[1:], "unsafe_integer"},
			"a number that rounds":   {`{"zz":0.1000000000000000055511151231257827,` + p.body[1:], "imprecise_number"},
			"a number beyond all":    {`{"zz":1e400,` + p.body[1:], ""},
			"too deep":               {`{"zz":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "," + p.body[1:], "too_deep"},
			"too large":              {`{"zz":"` + strings.Repeat("x", 1<<20) + `",` + p.body[1:], "too_large"},
			"a byte order mark":      {"\ufeff" + p.body, "not_json"},
			"the empty object":       {"{}", ""},
			"an extra key":           {`{"approved":true,` + p.body[1:], ""},
			"a decision":             {`{"decision":"allow",` + p.body[1:], ""},
		} {
			t.Run(p.protocol+"/"+name, func(t *testing.T) { refused(t, p, p.decide(c.body, anything(t), m), c.code) })
		}
		for _, other := range proposals(m) {
			if other.protocol != p.protocol {
				t.Run(p.protocol+"/a request of "+other.protocol, func(t *testing.T) { refused(t, p, p.decide(other.body, anything(t), m), "") })
			}
		}
	}
}

// Unknown words, versions and kinds.
func TestUnknownWordsOfEveryProtocol(t *testing.T) {
	m := courierMandate(t)
	all := map[string]proposal{}
	for _, p := range proposals(m) {
		all[p.protocol] = p
	}
	for _, c := range []struct{ protocol, name, old, new, code string }{
		{agenthook.Name, "schema version", `{"event_id"`, `{"schema_version":9,"event_id"`, "unknown_schema_version"},
		{agenthook.Name, "schema version as text", `{"event_id"`, `{"schema_version":"1","event_id"`, ""},
		{agenthook.Name, "phase", `"pre_commit"`, `"pre_committed"`, ""},
		{agenthook.Name, "phase in other case", `"pre_commit"`, `"Pre_Commit"`, ""},
		{agenthook.Name, "event id", "7D444840-9dc0-11d1-b245-5ffdce74fad2", "7", ""},
		{agenthook.Name, "time", "2026-11-20T11:59:59Z", "yesterday", ""},
		{agenthook.Name, "verdict (valid)", `"metadata":{`, `"metadata":{"admission_verdict":{"verdict":"maybe"},`, "earlier_verdict"},
		{aaep.Name, "type", "agent.tool.invoked", "agent.tool.invented", "not_a_request"},
		{aaep.Name, "type in other case", "agent.tool.invoked", "agent.tool.Invoked", "not_a_request"},
		{aaep.Name, "version", `"tool":`, `"aaep_version":"9.0.0","tool":`, ""},
		{aaep.Name, "risk", `"tool":`, `"risk_level":"none","tool":`, ""},
		{aaep.Name, "irreversible as text", `"tool":`, `"irreversible":"false","tool":`, ""},
		{aaep.Name, "irreversible null", `"tool":`, `"irreversible":null,"tool":`, ""},
		{aaep.Name, "context", "https://aaep-protocol.org/context/v1", "https://aaep-protocol.org/context/v9", ""},
		{aana.Name, "version", `{"request_id"`, `{"schema_version":"aana.agent_tool_precheck.v9","request_id"`, "unknown_schema_version"},
		{aana.Name, "route", `"accept"`, `"execute"`, ""},
		{aana.Name, "route in other case", `"accept"`, `"Accept"`, ""},
		{aana.Name, "category", `"write"`, `"harmless"`, ""},
		{aana.Name, "authorization", `"confirmed"`, `"root"`, ""},
		{aana.Name, "domain", `"commerce"`, `"fun"`, ""},
		{aana.Name, "refs as dict", `[{"source_id":"desk.approval"`, `{"0":{"source_id":"desk.approval"`, ""},
		{aana.Name, "arguments that did not parse (valid)", `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`, `{"__raw":"hunter2-secret"}`, ""},
		{aump.Name, "version", `"version":"0.1.0","type"`, `"version":"9.0.0","type"`, "unknown_schema_version"},
		{aump.Name, "version of the mandate", `"version":"0.1.0"},"proposed`, `"version":"9"},"proposed`, "unknown_schema_version"},
		{aump.Name, "type", "action_evaluation_request", "action_evaluation_response", ""},
		{aump.Name, "amount below zero", "1500", "-1500", ""},
		{aump.Name, "amount in parts", "1500", "1500.5", ""},
		{aump.Name, "amount beyond all", "1500", "9007199254740992", ""},
		{aump.Name, "amount beyond int64", "1500", "1e19", ""},
		{aump.Name, "amount as text", "1500", `"1500"`, ""},
		{aump.Name, "currency in other case", `"EUR"`, `"eur"`, ""},
		{aump.Name, "currency with a blank", `"EUR"`, `"EUR "`, ""},
		{aump.Name, "hash of other form", "sha256-", "sha512-", ""},
		{aioc.NameTool, "turn", `"turn":1`, `"turn":0`, ""},
		{aioc.NameTool, "tool empty", `"send_mail"`, `""`, ""},
		{aioc.NameHandoff, "target empty", `"Finance"`, `""`, ""},
		{aioc.NameHandoff, "a tool beside", `"turn":1`, `"turn":1,"toolName":"x"`, ""},
	} {
		t.Run(c.protocol+"/"+c.name, func(t *testing.T) {
			p := all[c.protocol]
			body := edit(t, p.body, c.old, c.new)
			if c.name == "refs as dict" {
				body = edit(t, body, `"provenance":"desk"}]`, `"provenance":"desk"}}`)
			}
			out := p.decide(body, anything(t), m)
			if strings.HasSuffix(c.name, "(valid)") { // it can be read, and is denied
				if sound(t, p, out); out.Decision.Verdict != events.Deny {
					t.Error(codes(out))
				}
				return
			}
			refused(t, p, out, c.code)
		})
	}
}

// free are the changes to a valid request that leave it a valid one, by JSON
// pointer; a pointer that ends with /* is of everything below. Whatever is not in
// here must be refused.
var free = map[string]map[string]string{
	agenthook.Name: {
		"/tool_input": "absent,object,extra key", "/tool_input/*": "*", "/agent_id": "absent,a word,empty text", "/evidence_phase": "absent",
		"/metadata": "absent,object,extra key", "/metadata/tool_call_id": "absent,a word,empty text", "/session_id": "absent,a word,empty text",
		"/source": "a word", "/tool_name": "a word",
	},
	aaep.Name: {
		"/@context": "list of it", "/args_summary": "absent,a word,empty text", "/producer/agent_id": "a word", "/summary_normal": "a word", "/tool": "a word",
		"/tool_call_id": "absent",
	},
	aana.Name: {
		"/agent_id": "absent,a word,empty text", "/request_id": "absent,a word,empty text", "/tool_name": "a word",
		"/proposed_arguments": "object,extra key", "/proposed_arguments/*": "*", "/evidence_refs": "list", "/evidence_refs/0": "absent,a word",
		"/evidence_refs/0/freshness": "absent", "/evidence_refs/0/kind": "absent", "/evidence_refs/0/provenance": "absent,a word",
		"/evidence_refs/0/redaction_status": "absent", "/evidence_refs/0/retrieved_at": "absent,a word,empty text", "/evidence_refs/0/source_id": "a word",
		"/evidence_refs/0/summary": "absent,a word,empty text", "/evidence_refs/0/trust_tier": "absent",
	},
	aump.Name: {
		"/mandate_ref/id": "a word,empty text", "/mandate_ref/version": "absent,empty text", "/proposed_action": "extra key", "/proposed_action/amount": "absent",
		"/proposed_action/amount/total_minor": "number", "/proposed_action/summary": "a word,empty text", "/proposed_action/type": "a word,empty text",
	},
	aioc.NameTool: {
		"/agentName": "a word", "/toolName": "a word", "/parsedArguments": "absent", "/rawArguments": "absent", "/runContext": "absent,object,extra key",
		"/runContext/*": "*", "/turn": "number",
	},
	aioc.NameHandoff: {
		"/fromAgentName": "a word", "/toAgentName": "a word", "/handoffPayload": "*", "/handoffPayload/*": "*", "/runContext": "absent,object,extra key",
		"/runContext/*": "*", "/turn": "number",
	},
}

func isFree(protocol, at, mutation string) bool {
	for pointer, names := range free[protocol] {
		below, deep := strings.CutSuffix(pointer, "*")
		if (at == pointer || deep && strings.HasPrefix(at, below)) && (names == "*" || slices.Contains(strings.Split(names, ","), mutation)) {
			return true
		}
	}
	return false
}

// Every value of a valid request, changed in every way: what makes it invalid is
// refused natively, with a code and a record; nothing makes a denied call pass; no
// value turns up in what the caller is told.
func TestEveryMutationOfEveryProtocol(t *testing.T) {
	m := courierMandate(t)
	open, shut := anything(t), gates(t, "verdict: deny, reason: never")
	for _, p := range proposals(m) {
		tree, err := strictjson.Parse([]byte(p.body), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range pointers(tree, "") {
			for _, mutation := range mutations {
				f := mutation.of(valueAt(tree, at))
				if f == nil {
					continue
				}
				body := changed(p.body, at, f)
				if body == nil {
					continue
				}
				what := fmt.Sprintf("%s %s %s", p.protocol, at, mutation.name)
				out := p.decide(string(body), open, m)
				if sound(t, p, out); !isFree(p.protocol, at, mutation.name) && (!out.Malformed || out.Decision.Verdict != events.Deny) && string(body) != p.body {
					t.Errorf("%s: %s", what, codes(out))
				}
				told(t, what, out)
				if out = p.decide(string(body), shut, m); out.Decision.Verdict != events.Deny {
					t.Errorf("%s: what was denied is %s", what, codes(out))
				}
			}
		}
	}
}

// told expects that what a caller is told about a refusal quotes no value.
func told(t *testing.T, what string, out Outcome) {
	t.Helper()
	reply := replyOf(t, out)
	for _, member := range []string{"reason", "reasons", "summary", "paths", "publicReason", "reason_codes", "validation_errors", "hard_blockers"} {
		text, err := json.Marshal(reply[member])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), marker) || strings.Contains(out.ErrorDescription, marker) {
			t.Errorf("%s: the reply quotes it in %s: %s, %s", what, member, text, out.ErrorDescription)
		}
	}
}
