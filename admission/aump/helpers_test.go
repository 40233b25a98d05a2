package aump

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// secret is the value that no record and no reply may quote.
const secret = "hunter2-secret"

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// The mandates of our own corpus.
const (
	courier = "minimal.json" // delegated, EUR 200.00
	flat    = "full.json"    // supervised, with everything that a mandate can have
)

func corpusFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "schemas", "testdata", "corpus", "aump", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// compiled compiles a mandate of the corpus after edits: pairs of a path such as
// authority.mode and a JSON value, "" to take the member away.
func compiled(t testing.TB, name string, edits ...string) *mandate.Mandate {
	t.Helper()
	return compileTree(t, edit(t, corpusFile(t, "mandate/valid/"+name), edits...))
}

func compileTree(t testing.TB, raw []byte) *mandate.Mandate {
	t.Helper()
	m, err := mandate.Compile(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// edit changes a document: pairs of a dotted path and a JSON value, "" to take
// the member away.
func edit(t testing.TB, raw []byte, edits ...string) []byte {
	t.Helper()
	b, err := edited(raw, edits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func edited(raw []byte, edits []string) ([]byte, error) {
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(edits); i += 2 {
		keys := strings.Split(edits[i], ".")
		at := tree
		for _, k := range keys[:len(keys)-1] {
			next, ok := at[k].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[k] = next
			}
			at = next
		}
		last := keys[len(keys)-1]
		if edits[i+1] == "" {
			delete(at, last)
			continue
		}
		if at[last], err = strictjson.Parse([]byte(edits[i+1]), strictjson.DefaultLimits); err != nil {
			return nil, fmt.Errorf("%s: %w", edits[i+1], err)
		}
	}
	return json.Marshal(tree)
}

// store is everything that a service would know.
type store struct {
	mandates map[string]*mandate.Mandate
	revoked  map[string]bool
	spend    map[string]mandate.Spend // by currency
	facts    mandate.PrincipalConsent
	asked    *mandate.Proposal // the last proposal for which facts were requested
}

func (s store) Mandate(tenant, id, _ string) *mandate.Mandate { return s.mandates[tenant+"/"+id] }
func (s store) Revoked(_, id, _ string) bool                  { return s.revoked[id] }
func (s store) Spend(p mandate.Proposal) mandate.Spend        { return s.spend[p.Currency] }

func (s store) Consent(p mandate.Proposal) mandate.PrincipalConsent {
	if s.asked != nil {
		*s.asked = p
	}
	return s.facts
}

func (s store) records() mandate.Records {
	return mandate.Records{Mandates: s, Revocations: s, SpendLedger: s, Approvals: s}
}

func holding(list ...*mandate.Mandate) store {
	s := store{mandates: map[string]*mandate.Mandate{}}
	for _, m := range list {
		s.mandates["acme/"+m.ID] = m
	}
	return s
}

// envelope wraps an action, and a context if it is not "", into a request under
// a mandate.
func envelope(m *mandate.Mandate, action, context string) []byte {
	if context != "" {
		context = `,"context":` + context
	}
	return fmt.Appendf(nil, `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"%s","hash":"%s","version":"0.1.0"},"proposed_action":%s%s}`,
		m.ID, m.Hash, action, context)
}

func request(s store, body []byte, now time.Time) call.Request {
	return call.Request{
		Tenant: "acme", Source: "rt1", Body: body, Now: now, Limits: strictjson.DefaultLimits, Confirmations: call.NoConfirmations{},
		Header:  map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}},
		Records: s.records(),
	}
}

// answer is a request's whole way: read, decided, replied to.
type answer struct {
	call    call.Call
	opinion call.Opinion
	reply   map[string]any
	raw     []byte
}

func ask(t testing.TB, r call.Request) answer {
	t.Helper()
	c, o := Evaluator{}.Read(r)
	return reply(t, c, o, o.Verdict, o.DecidingCode)
}

// reply renders the answer that a verdict gets.
func reply(t testing.TB, c call.Call, o call.Opinion, v events.Verdict, because string) answer {
	t.Helper()
	d := events.Decision{DecisionID: "d-1", Tenant: "acme", Verdict: v, Reasons: o.Reasons, DecidedAt: events.At(noon)}
	if v == events.Ask || v == events.Defer {
		d.Approval = &events.ApprovalRef{WorkflowID: "wf-1", ExpiresAt: events.At(noon.Add(10 * time.Minute))}
	}
	raw, err := Evaluator{}.Reply(c, d, because)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{call: c, opinion: o, raw: raw}
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	a.reply = tree
	if vs := schemas.Default().Validate("aump/action-evaluation.response", strictjson.FromTree(tree)); vs != nil {
		t.Errorf("the reply breaks its schema: %v in %s", vs, raw)
	}
	for k := range maps.Keys(tree["mandate_ref"].(map[string]any)) {
		if k == "url" {
			t.Error("a url in the reply's reference")
		}
	}
	return a
}

// String is the decision, the codes and the paths, for comparison.
func (a answer) String() string {
	return fmt.Sprintf("%v %v %v", a.reply["decision"], a.reply["reason_codes"], a.reply["paths"])
}

// recorded lists the reasons of the record, notes included.
func (a answer) recorded() string {
	var list []string
	for _, r := range a.opinion.Reasons {
		list = append(list, r.Code+"@"+r.Path)
	}
	return strings.Join(list, " ")
}

// upstream reads a file of the published material beside the repository.
func upstream(t testing.TB, name string) []byte {
	t.Helper()
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	b, err := os.ReadFile(filepath.Join(root, "upstream", "aump", name))
	if err != nil {
		t.Skipf("the published material is not here (set COUNTERSIGN_SHARED): %v", err)
	}
	return b
}

func evaluate(m *mandate.Mandate, action string, change func(*Input)) Result {
	body := envelope(m, action, "")
	r, err := wire.DecodeRequest(body, strictjson.DefaultLimits)
	if err != nil {
		panic(err)
	}
	in := Input{Mandate: m, Ref: r.Ref, Action: r.Action, Now: noon}
	if change != nil {
		change(&in)
	}
	return Evaluate(in)
}
