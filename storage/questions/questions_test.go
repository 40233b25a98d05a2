package questions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

// story is a shard in which every question has an answer, of a tenant of its own.
func story(t *testing.T, shard, tenant string) (rows []storage.EvidenceRow) {
	t.Helper()
	add := func(kind, session string, body any) *storage.EvidenceRow {
		r := storagetest.RecordRow(t, shard, uint64(len(rows)+1), kind, body)
		r.Tenant, r.Session = tenant, session
		rows = append(rows, r)
		return &rows[len(rows)-1]
	}
	control := func(what string, body any) {
		r := add(storage.KindControl, "", body)
		r.Tenant, r.Subject, r.SessionIndex = "", "gov.control.GOV."+what, nil
	}
	control("policy", events.PolicyChange{Writer: "w", Revision: 4, Digest: "sha256:set", Policies: []events.PolicyRef{{Name: "mail"}}, Author: "ann", Message: "opened up",
		Documents: []events.PolicyDocument{{Name: "mail.yaml", Text: "metadata: {name: mail}"}, {Name: "files.yaml", Text: "metadata: {name: files}"}}})
	control("rules", events.RulesChange{Writer: "w", Tenant: tenant, Revision: 1, Rules: map[string]string{"input_drift": "off"}})
	control("rules", events.RulesChange{Writer: "w", Tenant: "somebody else", Revision: 2, Rules: map[string]string{"input_drift": "off"}})
	control("mandate", events.MandateChange{Writer: "w", Revision: 9, Changes: []events.MandateStep{{Change: "put", Tenant: tenant, MandateID: "m1", Author: "bob"}}})
	control("publisher", events.PublisherChange{Writer: "w", Revision: 5, Error: "globex: tools.pay is no catalogue", Documents: []events.PublisherDocument{
		{Tenant: "globex", Name: "tools.pay", Error: "no catalogue"}, {Tenant: tenant, Name: "tools.mail"}}})
	control("publisher", events.PublisherChange{Writer: "w", Revision: 6, Error: "tools.mail is no catalogue", Documents: []events.PublisherDocument{{Tenant: tenant, Name: "tools.mail", Error: "no catalogue"}}})
	control("cursor", events.Cursor{Shard: shard})
	d := events.Decision{DecisionID: "d1", EventID: "e1", Tenant: tenant, Source: "rt1", Agent: "mailer", ToolCallID: "tc1", Tool: "send", Verdict: events.Allow,
		Policy: &events.PolicyRef{Name: "mail", Revision: 4, Digest: "sha256:set"}, Mandate: &events.MandateRef{ID: "m1", Hash: "sha256:m"}}
	add(storage.KindDecision, "s1", d)
	call := events.Call{CallID: "c1", Source: "rt1", Agent: "mailer", ToolCallID: "tc1", Tool: "send", State: events.CallOpen}
	add(storage.KindCall, "s1", call)
	call.State, call.Outcome, call.Verdict, call.DecisionID = events.CallCompleted, "succeeded", events.Allow, "d1"
	add(storage.KindCall, "s1", call)
	add(storage.KindCall, "s1", events.Call{CallID: "c2", Source: "rt2", ToolCallID: "tc2", Tool: "rm", State: events.CallOrphaned})
	add(storage.KindFinding, "s1", events.Finding{FindingID: "f1", Rule: "executed_despite_deny", Severity: "critical", ToolCallID: "tc3", Enforced: true})
	add(storage.KindFinding, "s1", events.Finding{FindingID: "f2", Rule: "executed_despite_deny", Severity: "critical", ToolCallID: "tc4"})
	add(storage.KindFinding, "s1", events.Finding{FindingID: "f3", Rule: "executed_despite_deny", Severity: "info", Retracts: "f2"})
	d.DecisionID, d.EventID, d.ToolCallID, d.Verdict, d.Mandate, d.Approval = "d2", "e2", "tc5", events.Ask, nil, &events.ApprovalRef{WorkflowID: "w1", Status: "pending"}
	add(storage.KindDecision, "s2", d)
	add(storage.KindCall, "s2", events.Call{CallID: "c5", Source: "rt1", Agent: "mailer", ToolCallID: "tc5", Tool: "send", State: events.CallOpen})
	add(storage.KindApproval, "s2", events.Approval{WorkflowID: "w1", Tenant: tenant, Status: "pending", DecisionID: "d2", ToolCallID: "tc5", Step: 1, Act: "open", Quorum: 2})
	add(storage.KindApproval, "s2", events.Approval{WorkflowID: "w1", Tenant: tenant, Status: "pending", DecisionID: "d2", ToolCallID: "tc5", Step: 2, Act: "vote", Approver: "dana", Approvers: []string{"dana"}})
	add(storage.KindEvent, "s1", nil).Record = `{"body":{},"redaction_policy":"acme/1","redactions":[{"action":"mask","commitment":"c","detector":"email","path":"/body/to"},{"commitment":"c","detector":"secret","path":"/body/key"}],"v":1}`
	add(storage.KindUnparseable, "s1", nil).Record = `{"body":null,"reason":"not_json","redactions":[],"v":1}`
	add(storage.KindFinding, "s1", events.Finding{FindingID: "f4", Rule: "executed_despite_deny", Severity: "medium", Retracts: "f1"}).SessionIndex = nil
	control("policy", events.PolicyChange{Writer: "w", Revision: 7, Error: "globex.yaml: rule pay: no such function"})
	for i, index := range []uint64{7: 1, 8: 2, 9: 3, 10: 4, 11: 5, 12: 6, 13: 7, 14: 1, 15: 2, 16: 3, 17: 5, 18: 8, 19: 9} { // one of s2's is missing
		if index > 0 {
			rows[i].SessionIndex = &index
		}
	}
	return rows
}

// answers are, by question, what the cells of certain columns say.
var answers = map[string]struct {
	terms   Params
	columns string
	want    []string
}{
	"agent":      {Params{Agent: "mailer"}, "session tool_call_id verdict state outcome", []string{"s1 tc1 allow completed succeeded", "s2 tc5  open "}},
	"approved":   {Params{ID: "tc5"}, "workflow_id step act approver approvers", []string{"w1 1 open  []", "w1 2 vote dana [dana]"}},
	"no-verdict": {Params{}, "tool tool_call_id state", []string{"rm tc2 orphaned"}},
	"despite-no": {Params{}, "rule tool_call_id enforced", []string{"executed_despite_deny tc3 true"}},
	"policy":     {Params{ID: "d1"}, "policy revision author file text", []string{"mail 4 ann mail.yaml metadata: {name: mail}"}},
	"changes": {Params{}, "kind revision author items error", []string{
		"policy 4 ann [mail] ", "rules 1  [off input_drift] ", "mandate 9 bob [put m1] ",
		"publisher 5  [tools.mail] withheld: it may speak of other tenants", "publisher 6  [tools.mail] tools.mail is no catalogue",
		"policy 7  [] withheld: it may speak of other tenants"}},
	"missing": {Params{}, "newest missing doubled unsigned broken_sessions", []string{"24 1 0 14 1"}},
	"redacted": {Params{Session: "s1"}, "kind path detector action policy reason",
		[]string{"event /body/key secret  acme/1 ", "event /body/to email mask acme/1 ", "unparseable     not_json"}},
	"mandate":   {Params{ID: "tc1"}, "mandate_id tool_call_id verdict state outcome", []string{"m1 tc1 allow completed succeeded"}},
	"undecided": {Params{}, "session tool_call_id verdict approval workflow_id", []string{"s2 tc5 ask pending w1"}},
}

func TestQuestions(t *testing.T) {
	db, shard := enginetest.Pool(t), storagetest.Shard(t)
	tenant := shard
	rows := story(t, shard, tenant)
	last := storagetest.Row(shard, uint64(len(rows)+2)) // one is missing
	last.Tenant, last.Session, last.SessionIndex = "else", "s9", nil
	for _, part := range [][]storage.EvidenceRow{rows, {last}} {
		if err := write.New(db).CommitEvidence(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if err := write.New(db).InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: shard, Size: 10, Root: [32]byte{1}, Note: "n", Created: storagetest.Time}); err != nil {
		t.Fatal(err)
	}
	ro := enginetest.Open(t, enginetest.Engine(t).ReadonlyDSN())
	for i, q := range All() {
		t.Run(q.Name, func(t *testing.T) {
			if found, ok := Find(fmt.Sprint(i + 1)); !ok || found.Name != q.Name {
				t.Errorf("question %d is %q", i+1, found.Name)
			}
			c := answers[q.Name]
			c.terms.Tenant = tenant
			a, err := Ask(t.Context(), ro, q, c.terms)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range a.Rows {
				if mine := cell(a, r, "shard"); mine == shard {
					got = append(got, cell(a, r, c.columns))
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if strings.Contains(strings.Join(q.Needs, " "), "since") {
				late := c.terms
				late.Since = storagetest.Time.Add(time.Hour)
				if a, err := Ask(t.Context(), ro, q, late); err != nil || len(a.Rows) != 0 {
					t.Errorf("later: %v (%v)", a.Rows, err)
				}
			}
			if strings.Contains(strings.Join(q.Needs, " "), "until") { // a record of that very time is the next range's
				before, at := c.terms, a.Rows[0][0].(time.Time)
				before.Until = at
				a, err := Ask(t.Context(), ro, q, before)
				if err != nil || slices.ContainsFunc(a.Rows, func(r []any) bool { return !r[0].(time.Time).Before(at) }) {
					t.Errorf("until %v: %v (%v)", at, a.Rows, err)
				}
			}
		})
	}
}

// cell gives the values of columns of a row, as text.
func cell(a Answer, row []any, columns string) string {
	var list []string
	for _, want := range strings.Fields(columns) {
		for i, name := range a.Columns {
			if name == want {
				list = append(list, fmt.Sprint(row[i]))
			}
		}
	}
	return strings.Join(list, " ")
}

// A call is not decided by the decision on an earlier call with its id, nor, without an id, by that on
// another tool or event of the session. One on a later call with its id stands for both.
func TestUndecided(t *testing.T) {
	db, shard := enginetest.Pool(t), storagetest.Shard(t)
	var rows []storage.EvidenceRow
	add := func(kind, session string, body any) {
		r := storagetest.RecordRow(t, shard, uint64(len(rows)+1), kind, body)
		r.Tenant, r.Session = shard, session
		rows = append(rows, r)
	}
	call := func(session, id, toolCall, tool, event string) events.Call {
		c := events.Call{CallID: id, Source: "rt", ToolCallID: toolCall, Tool: tool, State: events.CallOpen,
			Timeline: []events.TimelineEntry{{Step: "requested", Seq: uint64(len(rows) + 1), At: events.At(storagetest.Time), EventID: event}}}
		add(storage.KindCall, session, c)
		return c
	}
	decide := func(session, toolCall, tool, event string, v events.Verdict) {
		add(storage.KindDecision, session, events.Decision{DecisionID: fmt.Sprint("d", len(rows)), EventID: event, Source: "rt", ToolCallID: toolCall, Tool: tool, Verdict: v})
	}
	first := call("reused", "c1", "tc1", "send", "")
	decide("reused", "tc1", "send", "", events.Allow)
	first.State = events.CallCompleted
	add(storage.KindCall, "reused", first)
	call("reused", "c2", "tc1", "send", "")
	call("other-tool", "c3", "", "pay", "")
	decide("other-tool", "", "pay", "", events.Ask)
	call("other-tool", "c4", "", "read", "")
	decide("other-tool", "", "read", "", events.Allow)
	call("other-event", "c5", "", "pay", "e5")
	decide("other-event", "", "pay", "e5", events.Defer)
	call("other-event", "c6", "", "pay", "e6")
	decide("other-event", "", "pay", "e6", events.Allow)
	call("allowed", "c7", "tc7", "pay", "e7")
	decide("allowed", "tc7", "pay", "e8", events.Ask)
	decide("allowed", "tc7", "pay", "e9", events.Allow)
	if err := write.New(db).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	q, _ := Find("undecided")
	a, err := Ask(t.Context(), db, q, Params{Tenant: shard})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range a.Rows {
		got = append(got, cell(a, r, "session tool verdict decision_id"))
	}
	if d := cmp.Diff([]string{"reused send  ", "other-tool pay ask d5", "other-event pay defer d9"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The calls of a session that have no id are not joined to each of its decisions.
func TestUndecidedIsLinear(t *testing.T) {
	const calls = 500
	db, shard := enginetest.Pool(t), storagetest.Shard(t)
	var rows []storage.EvidenceRow
	for i := range calls {
		event := fmt.Sprint("e", i)
		for kind, body := range map[string]any{
			storage.KindCall: events.Call{CallID: fmt.Sprint("c", i), Source: "rt", Tool: "pay", State: events.CallOpen,
				Timeline: []events.TimelineEntry{{Step: "requested", Seq: 1, At: events.At(storagetest.Time), EventID: event}}},
			storage.KindDecision: events.Decision{DecisionID: fmt.Sprint("d", i), EventID: event, Source: "rt", Tool: "pay", Verdict: events.Ask},
		} {
			r := storagetest.RecordRow(t, shard, uint64(len(rows)+1), kind, body)
			r.Tenant, r.Session = shard, "s"
			rows = append(rows, r)
		}
	}
	if err := write.New(db).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	q, _ := Find("undecided")
	var joined int64
	ctx := clickhouse.Context(t.Context(), clickhouse.WithProfileEvents(func(list []clickhouse.ProfileEvent) {
		for _, e := range list {
			if e.Name == "JoinResultRowCount" {
				joined += e.Value
			}
		}
	}))
	a, err := Ask(ctx, db, q, Params{Tenant: shard})
	if err != nil || len(a.Rows) != calls || joined == 0 || joined > 10*calls {
		t.Errorf("%d rows, %d rows of joins (%v)", len(a.Rows), joined, err)
	}
}

// Times beyond those of ClickHouse are as its first and last.
func TestTimesOutOfRange(t *testing.T) {
	db := enginetest.Pool(t)
	q, _ := Find("no-verdict")
	for _, year := range []int{1, 1600, 1899, 1969, 2262, 2263, 9999} {
		at := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
		for _, p := range []Params{{Tenant: "acme", Since: at}, {Tenant: "acme", Until: at}} {
			if _, err := Ask(t.Context(), db, q, p); err != nil {
				t.Errorf("since %v until %v: %v", p.Since, p.Until, err)
			}
		}
	}
}

// A decision under a set of policies of which there is no record was not made under one of 1970.
func TestPolicyWithoutItsSet(t *testing.T) {
	db, shard := enginetest.Pool(t), storagetest.Shard(t)
	row := storagetest.RecordRow(t, shard, 1, storage.KindDecision, events.Decision{DecisionID: "d1", Verdict: events.Allow, Policy: &events.PolicyRef{Name: "mail", Revision: 4, Digest: "sha256:set"}})
	row.Tenant, row.Session = shard, "s1"
	if err := write.New(db).CommitEvidence(t.Context(), []storage.EvidenceRow{row}); err != nil {
		t.Fatal(err)
	}
	q, _ := Find("policy")
	a, err := Ask(t.Context(), db, q, Params{Tenant: shard, ID: "d1"})
	if err != nil || len(a.Rows) != 1 {
		t.Fatalf("%v (%v)", a.Rows, err)
	}
	if got := cell(a, a.Rows[0], "policy revision in_force_since text"); got != "mail 4 <nil> " {
		t.Errorf("%q", got)
	}
}

func TestQuestionsNeedTheirTerms(t *testing.T) {
	db := enginetest.Pool(t)
	for _, q := range All() {
		if _, err := Ask(t.Context(), db, q, Params{Agent: "a", ID: "i"}); !errors.Is(err, ErrMissingParams) {
			t.Errorf("%s without a tenant: %v", q.Name, err)
		}
	}
	for _, name := range []string{"agent", "policy"} {
		q, _ := Find(name)
		if _, err := Ask(t.Context(), db, q, Params{Tenant: "acme"}); !errors.Is(err, ErrMissingParams) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "0", "11", "none"} {
		if q, ok := Find(name); ok {
			t.Errorf("%q is %q", name, q.Name)
		}
	}
}
