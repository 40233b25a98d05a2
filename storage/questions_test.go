package storage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

// story is a shard in which every question has an answer, of a tenant of its own.
func story(t *testing.T, shard, tenant string) (rows []EvidenceRow) {
	t.Helper()
	add := func(kind, session string, body any) *EvidenceRow {
		r := recordRow(t, shard, uint64(len(rows)+1), kind, body)
		r.Tenant, r.Session = tenant, session
		rows = append(rows, r)
		return &rows[len(rows)-1]
	}
	control := func(what string, body any) {
		r := add(KindControl, "", body)
		r.Tenant, r.Subject, r.SessionIndex = "", "gov.control.GOV."+what, nil
	}
	control("policy", events.PolicyChange{Writer: "w", Revision: 4, Digest: "sha256:set", Policies: []events.PolicyRef{{Name: "mail"}}, Author: "ann", Message: "opened up",
		Documents: []events.PolicyDocument{{Name: "mail.yaml", Text: "metadata: {name: mail}"}, {Name: "files.yaml", Text: "metadata: {name: files}"}}})
	control("rules", events.RulesChange{Writer: "w", Tenant: tenant, Revision: 1, Rules: map[string]string{"input_drift": "off"}})
	control("rules", events.RulesChange{Writer: "w", Tenant: "somebody else", Revision: 2, Rules: map[string]string{"input_drift": "off"}})
	control("mandate", events.MandateChange{Writer: "w", Revision: 9, Changes: []events.MandateStep{{Change: "put", Tenant: tenant, MandateID: "m1", Author: "bob"}}})
	control("cursor", events.Cursor{Shard: shard})
	d := events.Decision{DecisionID: "d1", EventID: "e1", Tenant: tenant, Source: "rt1", Agent: "mailer", ToolCallID: "tc1", Tool: "send", Verdict: events.Allow,
		Policy: &events.PolicyRef{Name: "mail", Revision: 4, Digest: "sha256:set"}, Mandate: &events.MandateRef{ID: "m1", Hash: "sha256:m"}}
	add(KindDecision, "s1", d)
	call := events.Call{CallID: "c1", Source: "rt1", Agent: "mailer", ToolCallID: "tc1", Tool: "send", State: events.CallOpen}
	add(KindCall, "s1", call)
	call.State, call.Outcome, call.Verdict, call.DecisionID = events.CallCompleted, "succeeded", events.Allow, "d1"
	add(KindCall, "s1", call)
	add(KindCall, "s1", events.Call{CallID: "c2", Source: "rt2", ToolCallID: "tc2", Tool: "rm", State: events.CallOrphaned})
	add(KindFinding, "s1", events.Finding{FindingID: "f1", Rule: "executed_despite_deny", Severity: "critical", ToolCallID: "tc3", Enforced: true})
	add(KindFinding, "s1", events.Finding{FindingID: "f2", Rule: "executed_despite_deny", Severity: "critical", ToolCallID: "tc4"})
	add(KindFinding, "s1", events.Finding{FindingID: "f3", Rule: "executed_despite_deny", Severity: "info", Retracts: "f2"})
	d.DecisionID, d.EventID, d.ToolCallID, d.Verdict, d.Mandate, d.Approval = "d2", "e2", "tc5", events.Ask, nil, &events.ApprovalRef{WorkflowID: "w1", Status: "pending"}
	add(KindDecision, "s2", d)
	add(KindCall, "s2", events.Call{CallID: "c5", Source: "rt1", Agent: "mailer", ToolCallID: "tc5", Tool: "send", State: events.CallOpen})
	add(KindApproval, "s2", events.Approval{WorkflowID: "w1", Tenant: tenant, Status: "pending", DecisionID: "d2", ToolCallID: "tc5", Step: 1, Act: "open", Quorum: 2})
	add(KindApproval, "s2", events.Approval{WorkflowID: "w1", Tenant: tenant, Status: "pending", DecisionID: "d2", ToolCallID: "tc5", Step: 2, Act: "vote", Approver: "dana", Approvers: []string{"dana"}})
	add(KindEvent, "s1", nil).Record = `{"body":{},"redaction_policy":"acme/1","redactions":[{"action":"mask","commitment":"c","detector":"email","path":"/body/to"},{"commitment":"c","detector":"secret","path":"/body/key"}],"v":1}`
	add(KindUnparseable, "s1", nil).Record = `{"body":null,"reason":"not_json","redactions":[],"v":1}`
	for i, index := range []uint64{5: 1, 6: 2, 7: 3, 8: 4, 9: 5, 10: 6, 11: 7, 12: 1, 13: 2, 14: 3, 15: 5, 16: 8, 17: 9} { // one of s2's is missing
		if index > 0 {
			rows[i].SessionIndex = &index
		}
	}
	return rows
}

// answers are, by question, what the cells of certain columns say.
var answers = map[string]struct {
	terms   QuestionParams
	columns string
	want    []string
}{
	"agent":      {QuestionParams{Agent: "mailer"}, "session tool_call_id verdict state outcome", []string{"s1 tc1 allow completed succeeded", "s2 tc5  open "}},
	"approved":   {QuestionParams{ID: "tc5"}, "workflow_id step act approver approvers", []string{"w1 1 open  []", "w1 2 vote dana [dana]"}},
	"no-verdict": {QuestionParams{}, "tool tool_call_id state", []string{"rm tc2 orphaned"}},
	"despite-no": {QuestionParams{}, "rule tool_call_id enforced", []string{"executed_despite_deny tc3 true"}},
	"policy":     {QuestionParams{ID: "d1"}, "policy revision author file text", []string{"mail 4 ann mail.yaml metadata: {name: mail}"}},
	"changes":    {QuestionParams{}, "kind revision author items", []string{"policy 4 ann [mail]", "rules 1  [off input_drift]", "mandate 9 bob [put m1]"}},
	"missing":    {QuestionParams{}, "newest missing doubled unsigned broken_sessions", []string{"20 1 0 10 1"}},
	"redacted": {QuestionParams{Session: "s1"}, "kind path detector action policy reason",
		[]string{"event /body/to email mask acme/1 ", "event /body/key secret  acme/1 ", "unparseable     not_json"}},
	"mandate":   {QuestionParams{ID: "tc1"}, "mandate_id tool_call_id verdict state outcome", []string{"m1 tc1 allow completed succeeded"}},
	"undecided": {QuestionParams{}, "session tool_call_id verdict approval workflow_id", []string{"s2 tc5 ask pending w1"}},
}

func TestQuestions(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	tenant := shard
	rows := story(t, shard, tenant)
	last := row(shard, uint64(len(rows)+2)) // one is missing
	last.Tenant, last.Session, last.SessionIndex = "else", "s9", nil
	for _, part := range [][]EvidenceRow{rows, {last}} {
		if err := db.CommitEvidence(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.InsertCheckpoint(t.Context(), Checkpoint{shard, 10, [32]byte{1}, "n", testTime}); err != nil {
		t.Fatal(err)
	}
	ro := openDB(t, shared.engine.ReadonlyDSN())
	for i, q := range Questions() {
		t.Run(q.Name, func(t *testing.T) {
			if found, ok := FindQuestion(fmt.Sprint(i + 1)); !ok || found.Name != q.Name {
				t.Errorf("question %d is %q", i+1, found.Name)
			}
			c := answers[q.Name]
			c.terms.Tenant = tenant
			a, err := ro.AnswerQuestion(t.Context(), q, c.terms)
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
				late.Since = testTime.Add(time.Hour)
				if a, err := ro.AnswerQuestion(t.Context(), q, late); err != nil || len(a.Rows) != 0 {
					t.Errorf("later: %v (%v)", a.Rows, err)
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

func TestQuestionsNeedTheirTerms(t *testing.T) {
	db := sharedDB(t)
	for _, q := range Questions() {
		if _, err := db.AnswerQuestion(t.Context(), q, QuestionParams{Agent: "a", ID: "i"}); !errors.Is(err, ErrMissingParams) {
			t.Errorf("%s without a tenant: %v", q.Name, err)
		}
	}
	for _, name := range []string{"agent", "policy"} {
		q, _ := FindQuestion(name)
		if _, err := db.AnswerQuestion(t.Context(), q, QuestionParams{Tenant: "acme"}); !errors.Is(err, ErrMissingParams) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "0", "11", "none"} {
		if q, ok := FindQuestion(name); ok {
			t.Errorf("%q is %q", name, q.Name)
		}
	}
}
