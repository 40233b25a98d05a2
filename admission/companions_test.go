package admission

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// desk is a catalogue of the tools that the tests call.
func desk(t testing.TB) *publisher.Set {
	t.Helper()
	return catalogue(t, `{"name":"email.send_message","aliases":["send_mail"],"category":"write","risk":"external_side_effect"},
		{"name":"courier.book","aliases":["book"],"requires":["mandate"],"category":"write","risk":"external_transfer",
		 "mandate":{"action":"book_courier","total_minor":"/price/minor","currency":"/price/currency"}},
		{"name":"ledger.close","aliases":["close_ledger"],"requires":["contract"],"category":"write","risk":"destructive_write"},
		{"name":"bank.transfer","aliases":["transfer_funds"]}`)
}

func catalogue(t testing.TB, tools string) *publisher.Set {
	t.Helper()
	s := publisher.Compile([]publisher.Document{{Tenant: "acme", Name: "tools.desk", Revision: 5,
		Data: []byte(`{"schema":"https://schemas.countersign.dev/countersign/tool-catalogue/v1","name":"desk","tools":[` + tools + `]}`)}}, 5)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// registered are the declarations of a tenant whose publisher is registered for agents.
type registered struct {
	*publisher.Set
	agents []string
}

func (r registered) Agents(string, string) []string { return r.agents }

// A publisher that is registered for agents acts under the mandates of these agents
// only, whatever its requests say, and by whatever protocol.
func TestMandateOfAnAgentThatThePublisherIsNotRegisteredFor(t *testing.T) {
	m := courierMandate(t)
	for agent, want := range map[string]string{"bot": "allow ", "tob": "deny mandate_not_found@$."} {
		for protocol, body := range map[string]string{aump.Name: strings.Replace(bookVan, "HASH", m.Hash, 1), agenthook.Name: hook(t, "book", booking, under(m.Hash))} {
			in := inputs()
			in.Mandates.Mandates, in.Publishers = known{m}, registered{desk(t), []string{agent}}
			if got := codes(Decide(request(protocol, body), allowAll(t), in)); !strings.HasPrefix(got, want) {
				t.Errorf("%s, registered for %s: %s", protocol, agent, got)
			}
		}
	}
}

// hook is a PreToolUse with members of metadata added.
func hook(t testing.TB, tool, input, metadata string) string {
	t.Helper()
	return edit(t, preToolUse, `"tool_name":"send_mail"`, `"tool_name":"`+tool+`"`, `{"to":"a@example.com","password":"hunter2-secret","n":1.0}`, input,
		`"metadata":{`, `"metadata":{`+strings.TrimPrefix(metadata+",", ","))
}

const booking = `{"price":{"minor":1500,"currency":"EUR"}}`

// under is the member metadata.aump of a booking under a mandate.
func under(hash string, edits ...string) string {
	text := `"aump":{"mandate_ref":{"id":"aump_mnd_courier_01","hash":"` + hash + `"},"proposed_action":{"type":"book_courier","summary":"hunter2-secret",` +
		`"amount":{"currency":"EUR","total_minor":1500}}}`
	for i := 0; i+1 < len(edits); i += 2 {
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return text
}

// carrying is the member metadata.aana of a call.
func carrying(tool, args string, edits ...string) string {
	text := strings.NewReplacer("send_mail", tool, `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`, args).Replace(confirmedWrite)
	for i := 0; i+1 < len(edits); i += 2 {
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return `"aana":{"contract":` + text + `}`
}

// Every evaluator that applies speaks, the strictest stands, all reasons are
// kept; what a request says of itself can only make it stricter.
func TestManyEvaluators(t *testing.T) {
	m := courierMandate(t)
	small := courierMandate(t, `"max_total_minor": 20000`, `"max_total_minor": 1000`)
	mail := `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`
	for name, c := range map[string]struct {
		body string
		rule string // "" allows everything
		want string
	}{
		"nobody but the protocol": {hook(t, "send_mail", mail, ""), "", "allow ok"},

		"under a mandate":               {hook(t, "book", booking, under(m.Hash)), "", "allow within_mandate@/metadata/aump ok"},
		"under a mandate, with a head":  {hook(t, "book", booking, under(m.Hash, `"aump":{`, `"aump":{"aump":{"version":"0.1.0","type":"action_evaluation_request"},`)), "", "allow within_mandate@/metadata/aump ok"},
		"the budget is too small":       {hook(t, "book", booking, under(small.Hash)), "", "deny mandate_not_found@$.metadata.aump.mandate_ref.id ok"},
		"above the budget":              {hook(t, "book", `{"price":{"minor":30000,"currency":"EUR"}}`, under(m.Hash, "1500", "30000")), "", "deny hard_constraint_violation@$.authority.budget.max_total_minor price_above_budget@$.authority.budget.max_total_minor ok"},
		"another currency":              {hook(t, "book", `{"price":{"minor":1500,"currency":"USD"}}`, under(m.Hash, "EUR", "USD")), "", "deny hard_constraint_violation@$.authority.budget.currency currency_mismatch@$.authority.budget.currency ok"},
		"no such mandate":               {hook(t, "book", booking, under(m.Hash, "courier_01", "courier_02")), "", "deny mandate_not_found@$.metadata.aump.mandate_ref.id ok"},
		"without a hash":                {hook(t, "book", booking, under(m.Hash, `,"hash":"`+m.Hash+`"`, "")), "", "deny schema_invalid@$.metadata.aump.mandate_ref.hash ok"},
		"no action":                     {hook(t, "book", booking, `"aump":{"mandate_ref":{"id":"aump_mnd_courier_01","hash":"`+m.Hash+`"}}`), "", "deny schema_invalid@/metadata/aump ok"},
		"no object":                     {hook(t, "book", booking, `"aump":"aump_mnd_courier_01"`), "", "deny schema_invalid@/metadata/aump ok"},
		"null":                          {hook(t, "book", booking, `"aump":null`), "", "deny schema_invalid@/metadata/aump ok"},
		"the mandate itself":            {hook(t, "book", booking, under(m.Hash, `"aump":{`, `"aump":{"mandate":{},`)), "", "deny schema_invalid@/metadata/aump/mandate ok"},
		"approves of itself":            {hook(t, "book", booking, under(m.Hash, `"aump":{`, `"aump":{"context":{"trusted_ui_approved":true,"approval":"yes"},`)), "", "allow context_claims_ignored@$.metadata.aump.context within_mandate@/metadata/aump ok"},
		"required and not there":        {hook(t, "book", booking, ""), "", "deny mandate_required ok"},
		"another action than the tool":  {hook(t, "book", booking, under(m.Hash, "book_courier", "track_parcel")), "", "deny scope_violation@$.authority.permissions mandate_action_mismatch@/metadata/aump/proposed_action/type ok"},
		"another amount than it costs":  {hook(t, "book", `{"price":{"minor":999999,"currency":"EUR"}}`, under(m.Hash)), "", "deny within_mandate@/metadata/aump mandate_amount_mismatch@/metadata/aump/proposed_action/amount ok"},
		"an amount that is nowhere":     {hook(t, "book", `{}`, under(m.Hash)), "", "deny within_mandate@/metadata/aump mandate_amount_mismatch@/metadata/aump/proposed_action/amount ok"},
		"no amount":                     {hook(t, "book", booking, under(m.Hash, `,"amount":{"currency":"EUR","total_minor":1500}`, "")), "", "deny within_mandate@/metadata/aump mandate_amount_mismatch@/metadata/aump/proposed_action/amount ok"},
		"a policy is stricter":          {hook(t, "book", booking, under(m.Hash)), "deny no: tool == 'courier.book'", "deny within_mandate@/metadata/aump no"},
		"named where it is not needed":  {hook(t, "send_mail", mail, under(m.Hash, "book_courier", "send_mail")), "", "deny scope_violation@$.authority.permissions ok"},
		"named for a tool nobody knows": {hook(t, "x", mail, under(m.Hash)), "", "allow tool_not_catalogued within_mandate@/metadata/aump ok"},

		"with a contract":                       {hook(t, "close_ledger", mail, carrying("close_ledger", mail)), "", "allow write_has_explicit_confirmation@/metadata/aana/contract ok"},
		"with a contract by the canonical name": {hook(t, "close_ledger", mail, carrying("ledger.close", mail)), "", "allow write_has_explicit_confirmation@/metadata/aana/contract ok"},
		"contract unconfirmed":                  {hook(t, "close_ledger", mail, carrying("close_ledger", mail, `"confirmed"`, `"validated"`)), "", "ask UNCONFIRMED ok"},
		"contract required":                     {hook(t, "close_ledger", mail, ""), "", "deny contract_required ok"},
		"contract of another tool":              {hook(t, "close_ledger", mail, carrying("send_mail", mail)), "", "deny write_has_explicit_confirmation@/metadata/aana/contract contract_tool_mismatch@/metadata/aana/contract/tool_name ok"},
		"contract of other arguments":           {hook(t, "close_ledger", mail, carrying("close_ledger", `{"to":"b"}`)), "", "deny write_has_explicit_confirmation@/metadata/aana/contract contract_arguments_mismatch@/metadata/aana/contract/proposed_arguments ok"},
		"contract without arguments":            {hook(t, "close_ledger", mail, carrying("close_ledger", `{}`)), "", "deny write_has_explicit_confirmation@/metadata/aana/contract contract_arguments_mismatch@/metadata/aana/contract/proposed_arguments ok"},
		"contract of another agent":             {hook(t, "close_ledger", mail, carrying("close_ledger", mail, `"agent_id":"bot"`, `"agent_id":"other"`)), "", "deny header_conflict@/metadata/aana/contract ok"},
		"contract understates the tool":         {hook(t, "close_ledger", mail, carrying("close_ledger", mail, `"write"`, `"private_read"`)), "", "deny private_read_has_authenticated_context@/metadata/aana/contract tool_category_mismatch@/metadata/aana/contract/tool_category ok"},
		"contract malformed":                    {hook(t, "close_ledger", mail, carrying("close_ledger", mail, `"risk_domain":"commerce",`, "")), "", "deny schema_invalid@/metadata/aana/contract ok"},
		"contract no object":                    {hook(t, "close_ledger", mail, `"aana":{"contract":[]}`), "", "deny schema_invalid@/metadata/aana ok"},
		"contract beside something":             {hook(t, "close_ledger", mail, strings.Replace(carrying("close_ledger", mail), `"aana":{`, `"aana":{"route":"accept",`, 1)), "", "deny schema_invalid@/metadata/aana ok"},
		"contract null":                         {hook(t, "close_ledger", mail, `"aana":null`), "", "deny schema_invalid@/metadata/aana ok"},

		"all of them": {hook(t, "close_ledger", mail, under(small.Hash, "book_courier", "x")+","+carrying("send_mail", mail)), "deny no: true",
			"deny mandate_not_found@$.metadata.aump.mandate_ref.id write_has_explicit_confirmation@/metadata/aana/contract contract_tool_mismatch@/metadata/aana/contract/tool_name no"},
		"a native refusal is the only one": {hook(t, "book", booking, under(small.Hash)+`,"risk":7`), "", "deny schema_invalid@/metadata/risk"},
		"what only reports is not judged":  {edit(t, hook(t, "book", booking, under(small.Hash)), "PreToolUse", "PostToolUse", `"evidence_phase":"pre_commit",`, ""), "deny no: true", "allow observational"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs()
			in.Mandates.Mandates, in.Publishers = known{m}, desk(t)
			snap := allowAll(t)
			if c.rule != "" {
				snap = rules(t, c.rule)
			}
			out := Decide(request(agenthook.Name, c.body), snap, in)
			switch got := codes(out); c.want {
			case "ask UNCONFIRMED ok":
				if out.Decision.Verdict != events.Ask || !strings.Contains(got, "write_missing_explicit_confirmation") || !strings.HasSuffix(got, " ok") {
					t.Error(got)
				}
			default:
				if got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			}
			noSecrets(t, out)
		})
	}
}

// A mandate can be named by headers where a body has no place for it; the action
// is then the tool itself, as the catalogue knows it.
func TestMandateByHeaders(t *testing.T) {
	m := courierMandate(t)
	named := map[string][]string{wire.HeaderMandateID: {m.ID}, wire.HeaderMandateHash: {m.Hash}, wire.HeaderMandateVersion: {"0.1.0"}}
	without := func(h string, v ...string) map[string][]string {
		out := map[string][]string{}
		for k, old := range named {
			out[k] = old
		}
		if out[h] = v; v == nil {
			delete(out, h)
		}
		return out
	}
	invoked := edit(t, toolInvoked, "transfer_funds", "book")
	for name, c := range map[string]struct {
		protocol, body string
		header         map[string][]string
		want           string
	}{
		"AgentHook":                   {agenthook.Name, hook(t, "book", booking, ""), named, "allow within_mandate ok"},
		"AgentHook, above the budget": {agenthook.Name, hook(t, "book", `{"price":{"minor":30000,"currency":"EUR"}}`, ""), named, "deny hard_constraint_violation@$.authority.budget.max_total_minor price_above_budget@$.authority.budget.max_total_minor ok"},
		"AgentHook, without a price":  {agenthook.Name, hook(t, "book", `{}`, ""), named, "deny within_mandate mandate_amount_mismatch@/proposed_action/amount ok"},
		"AgentHook, body agrees":      {agenthook.Name, hook(t, "book", booking, under(m.Hash)), named, "allow within_mandate@/metadata/aump ok"},
		"AgentHook, body disagrees":   {agenthook.Name, hook(t, "book", booking, under(m.Hash, "courier_01", "courier_02")), named, "deny header_conflict@/metadata/aump ok"},
		"AAEP, no arguments":          {aaep.Name, invoked, named, "deny within_mandate mandate_amount_mismatch@/proposed_action/amount ok"},
		"AAEP, a tool of another":     {aaep.Name, toolInvoked, named, "deny scope_violation@$.authority.permissions ok"},
		"required and not named":      {aaep.Name, invoked, nil, "deny mandate_required ok"},
		"no hash":                     {agenthook.Name, hook(t, "book", booking, ""), without(wire.HeaderMandateHash), "deny schema_invalid@$.mandate_ref.hash ok"},
		"two hashes":                  {agenthook.Name, hook(t, "book", booking, ""), without(wire.HeaderMandateHash, m.Hash, "sha256-"+strings.Repeat("0", 64)), "deny header_conflict ok"},
		"only a hash":                 {agenthook.Name, hook(t, "book", booking, ""), without(wire.HeaderMandateID), "deny schema_invalid@/mandate_ref ok"},
		"another version":             {agenthook.Name, hook(t, "book", booking, ""), without(wire.HeaderMandateVersion, "9"), "deny unknown_schema_version@/mandate_ref/version ok"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs()
			in.Mandates.Mandates, in.Publishers = known{m}, desk(t)
			r := request(c.protocol, c.body)
			r.Header = c.header
			if got := codes(Decide(r, allowAll(t), in)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestIrreversibleCommits: running a tool that the catalogue calls irreversible commits the mandate's principal, named or carried
// or asked for over AUMP itself, whatever the request says.
func TestIrreversibleCommits(t *testing.T) {
	for name, c := range map[string]struct {
		mode, entry, commitment string // commitment: as carried; "named" by headers; "type T" asks over AUMP for an action of that type
		want                    string
	}{
		"supervised, named":            {"supervised", `"irreversible":true`, "named", "ask"},
		"supervised, not irreversible": {"supervised", `"category":"write"`, "named", "allow"},
		"advisory, named":              {"advisory", `"irreversible":true`, "named", "deny"},
		"by its risk":                  {"supervised", `"risk":"publication"`, "named", "ask"},
		"carried":                      {"supervised", `"irreversible":true`, "", "ask"},
		"carried, and denied":          {"supervised", `"irreversible":true`, `"commitment":false,`, "ask"},
		"carried, not valid":           {"supervised", `"irreversible":true`, `"commitment":null,`, "deny"},
		"carried, not irreversible":    {"supervised", `"category":"write"`, "", "allow"},
		"asked":                        {"supervised", `"irreversible":true`, "type book_courier", "ask"},
		"asked, advisory":              {"advisory", `"irreversible":true`, "type book_courier", "deny"},
		"asked by an alias":            {"supervised", `"irreversible":true`, "type book", "ask"},
		"asked by the canonical name":  {"supervised", `"risk":"publication"`, "type courier.book", "ask"},
		"asked for another action":     {"supervised", `"irreversible":true`, "type track_parcel", "allow"},
		"asked, not irreversible":      {"supervised", `"category":"write"`, "type book_courier", "allow"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, overAUMP := strings.CutPrefix(c.commitment, "type ")
			edits := []string{`"mode": "delegated"`, `"mode": "` + c.mode + `"`}
			if overAUMP {
				edits = append(edits, `"book_courier"`, `"`+asked+`"`)
			}
			m := courierMandate(t, edits...)
			in := inputs()
			in.Mandates.Mandates = known{m}
			in.Publishers = catalogue(t, `{"name":"courier.book","aliases":["book"],`+c.entry+`,"mandate":{"action":"book_courier"}}`)
			r := request(agenthook.Name, hook(t, "book", booking, ""))
			switch {
			case overAUMP:
				r, _ = bookingUnder(m, "book_courier", asked)
			case c.commitment == "named":
				r.Header = map[string][]string{wire.HeaderMandateID: {m.ID}, wire.HeaderMandateHash: {m.Hash}}
			default:
				r = request(agenthook.Name, hook(t, "book", booking, strings.Replace(under(m.Hash), `"summary"`, c.commitment+`"summary"`, 1)))
			}
			if out := Decide(r, allowAll(t), in); string(out.Decision.Verdict) != c.want {
				t.Errorf("%s, want %s", codes(out), c.want)
			}
		})
	}
}

// AAEP's place for what other protocols bring along is extensions, each under a
// prefix that a context declares.
func TestAAEPExtensions(t *testing.T) {
	m := courierMandate(t)
	body := func(extensions string) string {
		return edit(t, toolInvoked, `"https://aaep-protocol.org/context/v1"`, `["https://aaep-protocol.org/context/v1","https://countersign.example/context/v1"]`,
			`"tool":"transfer_funds"`, `"tool":"transfer_funds","extensions":{`+extensions+`}`)
	}
	for name, c := range map[string]struct{ body, want string }{
		"a mandate":                {body(under(m.Hash, "hunter2-secret", "x")), "allow within_mandate@/extensions/aump ok"},
		"a mandate that forbids":   {body(under(m.Hash, "1500", "30000")), "deny hard_constraint_violation@$.authority.budget.max_total_minor price_above_budget@$.authority.budget.max_total_minor ok"},
		"not valid":                {body(`"aump":{}`), "deny schema_invalid@/extensions/aump ok"},
		"a contract":               {body(carrying("transfer_funds", `{"n":1}`)), "allow write_has_explicit_confirmation@/extensions/aana/contract ok"},
		"a contract of another":    {body(carrying("x", `{"n":1}`)), "deny write_has_explicit_confirmation@/extensions/aana/contract contract_tool_mismatch@/extensions/aana/contract/tool_name ok"},
		"a prefix nobody declared": {edit(t, toolInvoked, `"tool":"transfer_funds"`, `"tool":"transfer_funds","extensions":{"aump":{}}`), "deny schema_invalid@/extensions/aump"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs()
			in.Mandates.Mandates = known{m}
			out := Decide(request(aaep.Name, c.body), allowAll(t), in)
			if got := codes(out); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// What is judged under a mandate names it in record and receipt, ends with it,
// and takes its money.
func TestMandateOfACall(t *testing.T) {
	m := courierMandate(t, `"expires_at": "2026-11-21T08:00:00Z"`, `"expires_at": "2026-11-20T12:00:30Z"`)
	in := inputs()
	in.Mandates.Mandates, in.Publishers = known{m}, desk(t)
	out := Decide(request(agenthook.Name, hook(t, "book", booking, under(m.Hash))), allowAll(t), in)
	want := events.MandateRef{ID: m.ID, Hash: m.Hash}
	if d := out.Decision; codes(out) != "allow within_mandate@/metadata/aump ok" || d.Mandate == nil || *d.Mandate != want || out.Claims.Mandate == nil || *out.Claims.Mandate != want ||
		d.ExpiresAt != events.At(noon.Add(30*time.Second)) || d.Tool != "book" || d.CanonicalTool != "courier.book" || out.Claims.Tool != "book" ||
		d.Publishers == nil || d.Publishers.Revision != 5 {
		t.Errorf("%s %+v %+v", codes(out), d, out.Claims)
	}
	s := out.Consumption.Spend
	if s == nil || s.Amount != 1500 || s.Currency != "EUR" || s.Session != "s1" || s.ToolCallID != "c1" || s.Source != "rt1" || s.MandateID != m.ID {
		t.Errorf("%+v", s)
	}
	// The same call denied by a policy takes nothing.
	if out := Decide(request(agenthook.Name, hook(t, "book", booking, under(m.Hash))), rules(t, "deny no: true"), in); out.Consumption.Spend != nil {
		t.Error("a denied call spends")
	}
	// The answer is the protocol's own.
	reply := replyOf(t, Decide(request(agenthook.Name, hook(t, "book", `{}`, "")), allowAll(t), in))
	if reply["decision"] != "deny" || reply["reason"] != "mandate_required" {
		t.Errorf("%v", reply)
	}
}

// Policies see a tool by its canonical name, whatever alias a call has, and what
// the catalogue knows of it; not what a call says in its own favour.
func TestPoliciesAndCatalogue(t *testing.T) {
	mail := `{"to":"x"}`
	m := courierMandate(t)
	for name, c := range map[string]struct {
		tool, metadata, rule, want string
	}{
		"canonical name": {"send_mail", "", "deny no: tool == 'email.send_message'", "deny no"},
		"not the alias":  {"send_mail", "", "deny no: tool == 'send_mail'", "deny no_policy_match"},
		"category":       {"send_mail", "", "deny no: catalog.category == 'write'", "deny no"},
		"known":          {"send_mail", "", "allow ok: catalog.known == true", "allow ok"},
		"unknown":        {"x", "", "deny no: catalog.known == false", "deny tool_not_catalogued no"},
		"risk of a mild claim": {"close_ledger", `"risk":{"risk_class":"read_only"}`, "deny no: risk.level == 'high' && risk.irreversible == true && catalog.risk == 'destructive_write'",
			"deny profile_invalid profile_invalid@/metadata contract_required no"},
		"embedded claims are hidden": {"send_mail", under(m.Hash), "deny no: !has(event.metadata.aump) && event.metadata.tool_call_id == 'c1'", "deny within_mandate@/metadata/aump no"},
		"case":                       {"Send_Mail", "", "allow ok: true", "deny tool_name_case ok"},
		"identity": {"send_mail", `"tool_identity":{"canonical_name":"bank.transfer","provider_name":"send_mail","source":"other"}`, "allow ok: true",
			"deny profile_invalid profile_invalid@/metadata tool_identity_mismatch@/metadata/tool_identity/canonical_name ok"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs()
			in.Mandates.Mandates, in.Publishers = known{m}, desk(t)
			if got := codes(Decide(request(agenthook.Name, hook(t, c.tool, mail, c.metadata)), rules(t, c.rule), in)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	// match.tools goes by the canonical name, too.
	byName := "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec: {match: {tools: [email.*]}, rules: [{name: r, when: 'true', verdict: allow, reason: ok}]}\n"
	in := inputs()
	in.Publishers = desk(t)
	if got := codes(Decide(request(agenthook.Name, hook(t, "send_mail", mail, "")), compiled(t, byName), in)); got != "allow ok" {
		t.Error(got)
	}
}

// TestCatalogueDropsNoRiskWord: match.risks finds the risk words of the request and of the catalogue, whichever of
// them is graded higher: neither a catalogue nor a request escapes a deny by what it states beside the word.
func TestCatalogueDropsNoRiskWord(t *testing.T) {
	denying := func(word string) *Config {
		one := func(name, match, verdict string) string {
			return "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: " + name + "}\nspec: {match: " + match +
				", rules: [{name: r, when: 'true', verdict: " + verdict + ", reason: " + verdict + "}]}\n"
		}
		return compiled(t, one("all", "{protocols: ['*']}", "allow")+"---\n"+one("no", "{risks: ["+word+"]}", "deny"))
	}
	for _, c := range []struct{ catalogue, class, operation, denied string }{
		{"publication", "credential_access", "read_only", "credential_access"},
		{"publication", "credential_access", "external_side_effect", "credential_access"},
		{"destructive_write", "credential_access", "publication", "publication"},
		{"sensitive_read", "", "", "sensitive_read"},
		{"sensitive_read", "publication", "destructive_write", "sensitive_read"},
		{"sensitive_read", "x_class", "y_class", "sensitive_read"},
	} {
		stated := ""
		if c.class != "" {
			stated = `"risk":{"risk_class":"` + c.class + `"}`
		}
		body := hook(t, "read_vault", `{}`, stated)
		if c.operation != "" {
			body = edit(t, body, `"tool_input"`, `"operation_risk":"`+c.operation+`","tool_input"`)
		}
		in := inputs()
		in.Publishers = catalogue(t, `{"name":"vault.read","aliases":["read_vault"],"risk":"`+c.catalogue+`"}`)
		if out := Decide(request(agenthook.Name, body), denying(c.denied), in); out.Decision.Verdict != events.Deny {
			t.Errorf("%+v: %s", c, codes(out))
		}
	}
}

// TestCatalogueNeedsAConfirmation: a runtime that leaves out what its invocation may do needs a confirmation all
// the same, by what the operator says of the tool.
func TestCatalogueNeedsAConfirmation(t *testing.T) {
	for name, c := range map[string]struct{ entry, body, want string }{
		"irreversible":             {`"irreversible":true`, toolInvoked, "ask confirmation_required@/irreversible ok"},
		"irreversible by its risk": {`"risk":"publication"`, toolInvoked, "ask confirmation_required@/irreversible high_risk_unconfirmed@/risk_level ok"},
		"high risk":                {`"risk":"credential_access"`, toolInvoked, "ask high_risk_unconfirmed@/risk_level ok"},
		"denied by the event":      {`"irreversible":true`, edit(t, toolInvoked, `"tool":`, `"irreversible":false,"risk_level":"low","tool":`), "ask confirmation_required@/irreversible ok"},
		"a medium risk":            {`"risk":"write"`, toolInvoked, "allow ok"},
		"nothing is said":          {`"category":"write"`, toolInvoked, "allow ok"},
		"stricter event":           {`"risk":"read_only"`, edit(t, toolInvoked, `"tool":`, `"irreversible":true,"tool":`), "ask confirmation_required@/irreversible ok"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs()
			in.Publishers = catalogue(t, `{"name":"bank.transfer","aliases":["transfer_funds"],`+c.entry+`}`)
			out := Decide(request(aaep.Name, c.body), allowAll(t), in)
			if got := codes(out); got != c.want || strings.HasPrefix(got, "ask") != (out.Consumption.Unconfirmed != nil) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A catalogue that cannot be used denies everything of its tenant, in every
// protocol, in the protocol's own words.
func TestBrokenCatalogueDenies(t *testing.T) {
	in := inputs()
	in.Publishers = publisher.Compile([]publisher.Document{{Tenant: "acme", Name: "tools.x", Data: []byte("{")}}, 1)
	for protocol, body := range map[string]string{
		agenthook.Name: preToolUse, aaep.Name: toolInvoked, aioc.NameTool: `{"agent":{"name":"a"},"toolName":"send_mail","rawArguments":"{}","parsedArguments":{},"callId":"c1","turn":1}`,
	} {
		out := Decide(request(protocol, body), allowAll(t), in)
		if out.Decision.Verdict != events.Deny || !out.Malformed && !strings.Contains(codes(out), "catalogue_error") {
			t.Errorf("%s: %s", protocol, codes(out))
		}
	}
	if out := Decide(Request{Tenant: "globex", Source: "rt1", Protocol: agenthook.Name, Body: []byte(preToolUse), ReceivedAt: noon}, allowAll(t), in); out.Decision.Verdict != events.Allow {
		t.Errorf("another tenant's: %s", codes(out))
	}
}

// An event that is sent again is decided again.
func TestRetryIsDecidedAnew(t *testing.T) {
	r, in := request(agenthook.Name, preToolUse), inputs()
	for _, rule := range []string{"ask hm: true", "allow ok: true", "deny no: true", "ask hm: true"} {
		out := Decide(r, rules(t, rule), in)
		if verdict, _, _ := strings.Cut(rule, " "); string(out.Decision.Verdict) != verdict {
			t.Errorf("%s after others: %s", rule, codes(out))
		}
	}
}

// Whatever an evaluator says, it never makes the verdict looser, shortens what
// limits it or loses a reason; and the order of the others does not matter to it.
func TestEvaluatorsNeverLoosen(t *testing.T) {
	opinion := rapid.Custom(func(t *rapid.T) call.Opinion {
		o := call.Opinion{Verdict: events.Allow, ApprovalWindow: time.Duration(rapid.IntRange(0, 3).Draw(t, "patience")) * time.Minute}
		if rapid.Bool().Draw(t, "ends") {
			o.NotAfter = noon.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "end")) * time.Second)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "reasons") {
			o.AddReason(rapid.SampledFrom(events.Verdicts).Draw(t, "verdict"), "e", fmt.Sprintf("code_%d", i), "")
		}
		return o
	})
	rapid.Check(t, func(t *rapid.T) {
		own, list := opinion.Draw(t, "own"), rapid.SliceOfN(opinion, 0, 4).Draw(t, "others")
		own.Malformed = rapid.Bool().Draw(t, "malformed")
		joined := own
		worst, reasons := own.Verdict, len(own.Reasons)
		for _, o := range list {
			before := joined
			joined.Merge(o)
			worst = events.Strictest(worst, o.Verdict)
			reasons += len(o.Reasons)
			if joined.Verdict.Strictness() < before.Verdict.Strictness() || !before.NotAfter.IsZero() && joined.NotAfter.After(before.NotAfter) ||
				before.ApprovalWindow != 0 && (joined.ApprovalWindow == 0 || joined.ApprovalWindow > before.ApprovalWindow) || joined.Malformed != own.Malformed {
				t.Fatalf("%+v loosened %+v", o, before)
			}
		}
		if joined.Verdict != worst || len(joined.Reasons) != reasons || (joined.DecidingCode == "") != (worst == events.Allow) {
			t.Fatalf("%+v of %+v and %+v", joined, own, list)
		}
		if !slices.Equal(joined.Reasons[:len(own.Reasons)], own.Reasons) {
			t.Fatal("the protocol's own reasons do not come first")
		}
	})
}

// Nothing that a request brings along makes it pass where it would not have
// passed without.
func TestClaimsNeverLoosen(t *testing.T) {
	m := courierMandate(t)
	mail := `{"to":"x"}`
	members := []string{under(m.Hash), under("sha256-" + strings.Repeat("0", 64)), carrying("send_mail", mail), carrying("x", mail), `"aump":null`, `"aana":{}`,
		`"tool_identity":{"canonical_name":"email.send_message","provider_name":"send_mail","source":"s"}`, `"risk":{"risk_class":"read_only","idempotent":true}`}
	rapid.Check(t, func(t2 *rapid.T) {
		seen, parts := map[string]bool{}, []string{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(members)-1), 0, 4).Draw(t2, "members") {
			if key := members[i][:6]; !seen[key] {
				seen[key] = true
				parts = append(parts, members[i])
			}
		}
		tool := rapid.SampledFrom([]string{"send_mail", "book", "close_ledger", "x", "Send_mail"}).Draw(t2, "tool")
		snap := rules(t, rapid.SampledFrom([]string{"allow ok: true", "ask hm: true", "deny no: risk.level == 'low'"}).Draw(t2, "rule"))
		in := inputs()
		in.Mandates.Mandates = known{m}
		body := hook(t, tool, mail, strings.Join(parts, ","))
		bare := Decide(request(agenthook.Name, body), snap, in)
		in.Publishers = desk(t)
		full := Decide(request(agenthook.Name, body), snap, in)
		if full.Decision.Verdict.Strictness() < bare.Decision.Verdict.Strictness() && codes(bare) != "deny no_policy_match" && !strings.Contains(codes(bare), " no") {
			t2.Fatalf("with a catalogue %s, without %s", codes(full), codes(bare))
		}
		in.Publishers = nil
		plain := Decide(request(agenthook.Name, hook(t, tool, mail, "")), snap, in)
		if !strings.Contains(body, `"risk"`) && bare.Decision.Verdict.Strictness() < plain.Decision.Verdict.Strictness() {
			t2.Fatalf("claiming %v: %s, without %s", parts, codes(bare), codes(plain))
		}
	})
}

// Offline, a catalogue decides as in the service.
func TestOfflineCatalogue(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, "tools.json"), []byte(`{"schema":"https://schemas.countersign.dev/countersign/tool-catalogue/v1","name":"desk","tools":[{"name":"email.send_message","aliases":["send_mail"],"requires":["mandate"]}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	set, err := publisher.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	var v OfflineResult
	line := EvaluateLine([]byte(preToolUse), Offline{Protocol: agenthook.Name, Now: noon, Publishers: set})
	if err := json.Unmarshal(line, &v); err != nil || v.Verdict != events.Deny || !strings.Contains(string(v.Reply), "mandate_required") {
		t.Errorf("%s %v", line, err)
	}
	if d := cmp.Diff(line, EvaluateLine([]byte(preToolUse), Offline{Protocol: agenthook.Name, Now: noon, Publishers: set})); d != "" {
		t.Error(d)
	}
}

// Protocols that are an evaluator of their own meet what the catalogue requires
// of them, and are held to what it knows.
func TestCatalogueOfNativeRequests(t *testing.T) {
	m := courierMandate(t)
	set := catalogue(t, `{"name":"courier.book","aliases":["book_courier"],"requires":["mandate"]},
		{"name":"email.send_message","aliases":["send_mail"],"requires":["contract"],"category":"write"}`)
	booked, in := bookingUnder(m)
	in.Publishers = set
	if out := Decide(booked, EvaluatorsOnly(), in); out.Decision.Verdict != events.Allow || out.Decision.CanonicalTool != "courier.book" || out.Consumption.Spend == nil {
		t.Errorf("aump: %s", codes(out))
	}
	if out := Decide(aanaRequest(confirmedWrite), EvaluatorsOnly(), in); out.Decision.Verdict != events.Allow {
		t.Errorf("aana: %s", codes(out))
	}
	milder := Decide(aanaRequest(edit(t, confirmedWrite, `"tool_category":"write"`, `"tool_category":"private_read"`)), EvaluatorsOnly(), in)
	if !strings.Contains(codes(milder), "tool_category_mismatch@/tool_category") || replyOf(t, milder)["route"] != "refuse" {
		t.Errorf("aana: %s %v", codes(milder), replyOf(t, milder)["route"])
	}
	tool := Decide(request(aioc.NameTool, `{"agentName":"a","toolName":"send_mail","rawArguments":"{}","parsedArguments":{},"turn":1,"toolCallId":"c1"}`), allowAll(t), in)
	if reply := replyOf(t, tool); tool.Decision.Verdict != events.Deny || reply["decision"] != "deny" || !tool.Malformed && reply["reason"] != "contract_required" {
		t.Errorf("tool: %s %v", codes(tool), reply)
	}
}

// An approval is of the action that was judged under the mandate: the same
// arguments with another action are another action.
func TestApprovalNamesTheActionUnderAMandate(t *testing.T) {
	m := courierMandate(t, `"mode": "delegated"`, `"mode": "supervised"`)
	ids := map[string]string{}
	for _, body := range []string{
		hook(t, "x", booking, under(m.Hash)), hook(t, "x", booking, under(m.Hash, `"summary"`, `"counterparty":"other","summary"`)),
		hook(t, "x", booking, under(m.Hash, "1500", "1600")),
	} {
		in := inputs()
		in.Mandates.Mandates = known{m}
		out := Decide(request(agenthook.Name, strings.Replace(body, `"amount"`, `"commitment":true,"amount"`, 1)), allowAll(t), in)
		if out.Decision.Verdict != events.Ask || out.Decision.Approval == nil {
			t.Fatal(codes(out))
		}
		if other, there := ids[out.Decision.Approval.ActionID]; there {
			t.Errorf("one approval for\n%s\n%s", other, body)
		}
		ids[out.Decision.Approval.ActionID] = body
	}
}

func BenchmarkDecideFurther(b *testing.B) {
	m := courierMandate(b)
	in := inputs()
	in.Mandates.Mandates, in.Publishers = known{m}, desk(b)
	snap := allowAll(b)
	mail := `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`
	for name, body := range map[string]string{
		"catalogue": hook(b, "send_mail", mail, ""), "mandate": hook(b, "book", booking, under(m.Hash)), "contract": hook(b, "close_ledger", mail, carrying("close_ledger", mail)),
	} {
		req := request(agenthook.Name, body)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if out := Decide(req, snap, in); out.Decision.Verdict != events.Allow {
					b.Fatal(codes(out))
				}
			}
		})
	}
}
