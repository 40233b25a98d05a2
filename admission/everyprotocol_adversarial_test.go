package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

const exportReport = `{"agentName":"Desk","toolName":"send_mail","rawArguments":"{\"to\":\"a@example.com\",\"password\":\"hunter2-secret\",\"n\":1}",` +
	`"parsedArguments":{"to":"a@example.com","password":"hunter2-secret","n":1},"runContext":{"context":{}},"turn":1}`

const takeOver = `{"fromAgentName":"Desk","toAgentName":"Finance","handoffPayload":{"to":"a@example.com","password":"hunter2-secret","n":1},"runContext":{"context":{}},"turn":1}`

// proposal is a valid request of one protocol, which anything allows.
type proposal struct {
	protocol, body string
	tool           string // what stands for the tool's name in it
	header         map[string][]string
}

// proposals are one valid request of each protocol.
func proposals(m *mandate.Mandate) []proposal {
	call := map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}
	return []proposal{
		{agenthook.Name, preToolUse, "send_mail", nil},
		{aaep.Name, toolInvoked, "transfer_funds", nil},
		{aana.Name, confirmedWrite, "send_mail", call},
		{aump.Name, strings.Replace(bookVan, "HASH", m.Hash, 1), "book_courier", call},
		{aioc.NameTool, exportReport, "send_mail", call},
		{aioc.NameHandoff, takeOver, "Finance", call},
	}
}

// anything allows whatever its protocol does not refuse.
func anything(t testing.TB) *Config { return gates(t, "verdict: allow, reason: ok") }

// gates is a configuration with one rule for everything.
func gates(t testing.TB, rule string) *Config {
	t.Helper()
	const head = "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\n"
	return compiled(t, head+"metadata: {name: calls}\nspec: {rules: [{name: secret-rule, when: '1 < 2', "+rule+"}]}\n---\n"+
		head+"metadata: {name: handoffs}\nspec: {match: {toAgents: ['*']}, rules: [{name: secret-rule, when: '1 < 2', "+rule+"}]}\n")
}

// decide judges a body in the place of the proposal's.
func (p proposal) decide(body string, snap *Config, m *mandate.Mandate) Outcome {
	r, in := request(p.protocol, body), inputs()
	r.Header, in.Mandates.Mandates = p.header, known{m}
	return Decide(r, snap, in)
}

// refusals are the words for deny in the protocols' own replies, by the member
// that holds it.
var refusals = map[string][2]string{
	agenthook.Name: {"decision", "deny"}, aaep.Name: {"verdict", "deny"}, aana.Name: {"route", "refuse"}, aump.Name: {"decision", "denied"},
	aioc.NameTool: {"decision", "deny"}, aioc.NameHandoff: {"decision", "deny"},
}

// sound holds of every outcome, whatever came in: a verdict, reasons with codes, a
// record that can be kept and read, a reply in the protocol's own words, a receipt
// only for what may run, and no value of the request anywhere.
func sound(t testing.TB, p proposal, out Outcome) {
	t.Helper()
	d := out.Decision
	if !d.Verdict.Valid() || len(d.Reasons) == 0 {
		t.Fatalf("%s: no verdict or no reason: %+v", p.protocol, d)
	}
	for _, r := range d.Reasons {
		if !stable(r.Code) && !strings.HasPrefix(r.Code, "deny_unconfigured_") {
			t.Errorf("%s: the code %q", p.protocol, r.Code)
		}
		if r.Code == CodeInternal {
			t.Errorf("%s: an evaluator panicked", p.protocol)
		}
	}
	record, err := events.Encode(d)
	if err != nil {
		t.Fatalf("%s: no record: %v", p.protocol, err)
	}
	if _, err := events.DecodeRecord[events.Decision](record); err != nil {
		t.Fatalf("%s: the record cannot be read: %v", p.protocol, err)
	}
	reply := replyOf(t, out)
	if word := refusals[p.protocol]; d.Verdict == events.Deny && reply[word[0]] != word[1] {
		t.Errorf("%s: denied, and the reply says %v", p.protocol, reply[word[0]])
	} else if d.Verdict != events.Deny && reply[word[0]] == word[1] {
		t.Errorf("%s: %s, and the reply refuses", p.protocol, d.Verdict)
	}
	if out.Malformed && (d.Verdict != events.Deny || len(out.ErrorCode) != 3 || out.ErrorDescription == "") {
		t.Errorf("%s: malformed is %s %s %s", p.protocol, d.Verdict, out.ErrorCode, out.ErrorDescription)
	}
	noSecrets(t, out)
}

// stable reports whether a code is one: snake_case.
func stable(code string) bool {
	return code != "" && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// pointers lists the JSON pointers of a tree, the root ("") included.
func pointers(v any, at string) (list []string) {
	list = append(list, at)
	switch t := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(t)) {
			list = append(list, pointers(t[k], at+"/"+k)...)
		}
	case []any:
		for i, e := range t {
			list = append(list, pointers(e, at+"/"+strconv.Itoa(i))...)
		}
	}
	return list
}

// changed is the text of a document with what stands at a pointer replaced by
// what f makes of it; f says false to take it away. It is nil where nothing can be
// taken away.
func changed(text, at string, f func(any) (any, bool)) []byte {
	tree, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		panic(err)
	}
	tree, ok := replace(tree, strings.Split(at, "/")[1:], f)
	if !ok {
		return nil
	}
	b, err := json.Marshal(tree)
	if err != nil {
		panic(err)
	}
	return b
}

func replace(v any, path []string, f func(any) (any, bool)) (any, bool) {
	if len(path) == 0 {
		return f(v)
	}
	switch t := v.(type) {
	case map[string]any:
		kept := maps.Clone(t)
		if e, stays := replace(t[path[0]], path[1:], f); stays {
			kept[path[0]] = e
		} else {
			delete(kept, path[0])
		}
		return kept, true
	case []any:
		kept := slices.Clone(t)
		i, _ := strconv.Atoi(path[0])
		if e, stays := replace(t[i], path[1:], f); stays {
			kept[i] = e
		} else {
			kept = slices.Delete(kept, i, i+1)
		}
		return kept, true
	}
	return v, true
}

func to(v any) func(any) (any, bool) { return func(any) (any, bool) { return v, true } }

func gone(any) (any, bool) { return nil, false }

// mutations are what a careless or hostile publisher makes of a value; nil where
// it does not apply.
var mutations = []struct {
	name string
	of   func(v any) func(any) (any, bool)
}{
	{"absent", always(gone)}, {"null", always(to(nil))}, {"a word", always(to(marker))}, {"empty text", always(to(""))},
	{"number", always(to(7))}, {"true", always(to(true))}, {"list", always(to([]any{}))},
	{"list of it", always(func(v any) (any, bool) { return []any{v}, true })}, {"object", always(to(map[string]any{}))},
	{"extra key", func(v any) func(any) (any, bool) {
		m, is := v.(map[string]any)
		if !is {
			return nil
		}
		m = maps.Clone(m)
		m["surprise"] = marker
		return to(m)
	}},
}

// marker is a value that no refusal may quote.
const marker = "xq9-surprising-value"

func always(f func(any) (any, bool)) func(any) func(any) (any, bool) {
	return func(any) func(any) (any, bool) { return f }
}

// valueAt follows a JSON pointer.
func valueAt(v any, at string) any {
	for _, key := range strings.Split(at, "/")[1:] {
		switch t := v.(type) {
		case map[string]any:
			v = t[key]
		case []any:
			i, _ := strconv.Atoi(key)
			v = t[i]
		}
	}
	return v
}

// of is a source for one tenant.
type of struct {
	tenant string
	known
}

func (o of) Mandate(tenant, id, hash string) *mandate.Mandate {
	if tenant != o.tenant {
		return nil
	}
	return o.known.Mandate(tenant, id, hash)
}
