package correlation

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/subject"

	"github.com/countersign-dev/countersign/events"
)

// takeRules are the rules of the findings that a part made since the last look.
func takeRules(fs *findings) (rules []string) {
	for _, o := range fs.pending() {
		rules = append(rules, o.Finding.Rule)
	}
	fs.clearOutputs()
	return rules
}

// TestReceiptHolders: a receipt is its tenant's, and allows its own call only.
func TestReceiptHolders(t *testing.T) {
	fs := newFindingsPart()
	rs := newReceipts(fs, fs.history)
	rs.opts = fs.opts
	decided := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1"), CallKey: fact.CallKeyOf("c1", ""), DecisionID: "d1", Decision: &fact.RecordedVerdict{Verdict: events.Allow, HasReceipt: true}}
	rs.recordReceipt(decided)
	denied := *decided
	denied.DecisionID, denied.CachedReceiptKey, denied.Decision = "d2", fact.Sum{}, &fact.RecordedVerdict{Verdict: events.Deny}
	rs.recordReceipt(&denied)
	for name, c := range map[string]struct {
		tenant, decision string
		known            bool
	}{
		"of the tenant":     {"acme", "d1", true},
		"of another tenant": {"other", "d1", false},
		"of a deny":         {"acme", "d2", false},
	} {
		holder, known := rs.holderOf(c.tenant, c.decision)
		if known != c.known || known && holder != receiptHolder(decided.Key, decided.CallKey) {
			t.Errorf("%s: %v", name, known)
		}
	}
}

// TestApprovalStatuses: a status is the tenant's, and holds since it was reached first.
func TestApprovalStatuses(t *testing.T) {
	fs := newFindingsPart()
	ap := newApprovals(fs)
	k := workflowKey{"acme", fact.SumOf("w1")}
	ap.recordApprovalStatus(k, fact.StatusPending, epoch)
	ap.recordApprovalStatus(k, fact.StatusApproved, epoch.Add(time.Minute))
	ap.recordApprovalStatus(k, fact.StatusApproved, epoch.Add(time.Hour))
	asked := func(tenant string, after time.Duration) *fact.Fact {
		return &fact.Fact{
			Kind: fact.KindDecision, Protocol: subject.ProtoAgentHook, Origin: fact.OriginOf(tenant, "rt1", "s1"), EventID: "e" + after.String(),
			Decision:       &fact.RecordedVerdict{Verdict: events.Ask, Approval: &fact.Approval{Workflow: "w1", Status: fact.StatusPending}},
			DecisionExtras: &fact.DecisionExtras{Received: epoch.Add(after)},
		}
	}
	for name, c := range map[string]struct {
		f    *fact.Fact
		want int
	}{
		"while it was pending":    {asked("acme", 30*time.Second), 0},
		"while it was given":      {asked("acme", time.Minute+time.Second), 0},
		"long after":              {asked("acme", 2*time.Minute), 1},
		"of another tenant":       {asked("other", 2*time.Minute), 0},
		"in a different protocol": {func() *fact.Fact { f := asked("acme", 2*time.Minute); f.Protocol = subject.ProtoAAEP; return f }(), 0},
	} {
		if ap.checkIgnoredApproval(c.f); len(takeRules(fs)) != c.want {
			t.Errorf("%s: want %d findings of AH-C-051", name, c.want)
		}
	}
}

// TestNamedDecisions: a decision that an event named before it was on record was known too
// early; one that is on record is not.
func TestNamedDecisions(t *testing.T) {
	fs := newFindingsPart()
	ad := newAdmissions(fs, fs.history)
	event := &fact.Fact{Seq: 5, Kind: fact.KindPost, Protocol: subject.ProtoAgentHook, Origin: fact.OriginOf("acme", "rt1", "s1"), EventID: "e1", ReceiptDecisionID: "d1"}
	decision := &fact.Fact{Seq: 6, Kind: fact.KindDecision, Protocol: subject.ProtoAgentHook, Origin: event.Origin, DecisionID: "d1", Decision: &fact.RecordedVerdict{Verdict: events.Allow}}
	ad.recordNamedDecision(event)
	ad.checkAdmissionDecision(decision)
	if got := takeRules(fs); len(got) != 1 || got[0] != "AH-C-071" {
		t.Errorf("named first: %v", got)
	}
	later := *decision
	later.DecisionID, later.CachedReceiptKey = "d2", fact.Sum{}
	if n, _, _ := fs.history.classifyNovelty(&later); n != novel {
		t.Fatal("the second decision is not new")
	}
	named := *event
	named.ReceiptDecisionID = "d2"
	ad.recordNamedDecision(&named)
	ad.checkAdmissionDecision(&later)
	if got := takeRules(fs); len(got) != 0 {
		t.Errorf("recorded first: %v", got)
	}
}
