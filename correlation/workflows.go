package correlation

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// A decision that puts a call off opens an approval workflow, or joins one. A
// decision that allows a call and names a workflow rests on its approval, which
// holds for what the workflow was opened for: one session, one tool, one set of
// arguments, the calls that wait for it and their retries, one use (AH-C-104).

// workflow is what an approval workflow was opened for, by the decisions that name it.
type workflow struct {
	session   sum   // see sessionSum
	slots     []sum // of the calls that wait for it, at most maxWaiting; see slotSum
	tool      string
	canonical string // "" if it is not known
	digest    string // of the arguments; "" if it is not known
	resume    string
	event     string // the event of the request that opened it
	seq       uint64 // of the decision that opened it
	usedBy    uint64 // the sequence of the decision that used it up; 0 if none has
}

// Cases of AH-C-104 about an allow and the workflow that it names.
const (
	detailOtherSession   = "session"
	detailOtherWorkTool  = "tool"
	detailOtherArguments = "arguments"
	detailOtherCall      = "call"
	detailUsedTwice      = "used"
)

// sessionSum stands for a session, slotSum for a call of one, whatever its occurrence.
func sessionSum(k sessionKey) sum { return sumOf("session", k.source, k.session) }

func slotSum(k slotKey) sum { return sumOf("slot", k.id, k.tool) }

func (m *machine) workflow(tenant, id string) *workflow {
	if id == "" {
		return nil
	}
	if w := m.workflows.at(workflowKey{tenant, sumOf(id)}); w != nil {
		return *w
	}
	return nil
}

// useWorkflow notes what an announcement says of a workflow: that a call waits
// for it, that it uses it up, that a request names it, or which call it tries again.
func (m *machine) useWorkflow(c *call, f *fact) {
	if f.kind == kindDecision && len(c.excuses) > 0 {
		m.referredAfterAll(c, f)
	}
	switch {
	case f.kind != kindDecision:
		if w := m.workflow(f.key.tenant, f.named); w != nil && w.session == sessionSum(f.key) {
			w.wait(slotSum(c.slot.key))
		}
		m.describeWorkflow(c, f)
		m.linkedAfterAll(c, f)
	case f.decision.pending.value().workflow == "":
	case f.decision.verdict == events.Ask, f.decision.verdict == events.Defer:
		m.openWorkflow(c, f)
	case f.decision.verdict == events.Allow:
		if w := m.workflow(f.key.tenant, f.decision.pending.workflow); w != nil {
			m.judgeUse(c, f, w)
		}
	}
}

func (m *machine) openWorkflow(c *call, f *fact) {
	p, d := f.decision.pending, f.decision
	w := m.workflow(f.key.tenant, p.workflow)
	if w == nil {
		w = &workflow{
			session: sessionSum(f.key), tool: first(f.tool, c.tool), canonical: c.canonical, digest: d.digest, resume: p.resume, event: d.eventID, seq: d.seq,
		}
		m.workflows.put(workflowKey{f.key.tenant, sumOf(p.workflow)}, w)
	}
	if w.session == sessionSum(f.key) {
		w.wait(slotSum(c.slot.key))
	}
}

// describeWorkflow completes what a workflow was opened for by what the call's own
// events say of its tool.
func (m *machine) describeWorkflow(c *call, f *fact) {
	for i := range c.decisions {
		if w := m.workflow(f.key.tenant, c.decisions[i].pending.value().workflow); w != nil && w.seq == c.decisions[i].seq {
			take(&w.tool, f.tool, false)
			take(&w.canonical, f.canonical, false)
		}
	}
}

// wait notes that a call waits for the workflow.
func (w *workflow) wait(slot sum) {
	if len(w.slots) < maxWaiting && !slices.Contains(w.slots, slot) {
		w.slots = append(w.slots, slot)
	}
}

// covers tells whether the workflow is for a call, or for one that it tries again.
func (w *workflow) covers(c *call) bool {
	return w.resume == resumeManual || len(w.slots) >= maxWaiting ||
		slices.Contains(w.slots, slotSum(c.slot.key)) || !c.again.none() && slices.Contains(w.slots, c.again)
}

// Other ways in which a call comes back (AgentHook SPEC 10).
const (
	resumeWorkflowID = "retry_with_workflow_id" // an allow under it says that the workflow was named
	resumeManual     = "manual_retry"
)

// unlike says in which way a call is not what the workflow was opened for; "" if
// nothing is known to differ. digest is that of the call's decision.
func (w *workflow) unlike(c *call, digest string) (caseOf, what string) {
	sameName := w.tool == "" || c.tool == "" || w.tool == c.tool || spelling(w.tool) == spelling(c.tool)
	switch {
	case w.session != sessionSum(c.session.key):
		return detailOtherSession, "it was given for another session"
	case !sameName && (w.canonical == "" || w.canonical != c.canonical):
		return detailOtherWorkTool, "it was given for another tool"
	case otherDigest(w.digest, digest), digest == "" && againstVerdict(&c.args, w.digest) == different:
		return detailOtherArguments, "it was given for other arguments"
	}
	return "", ""
}

// otherDigest tells whether two digests are of different arguments. Digests with
// other keys cannot be compared.
func otherDigest(a, b string) bool {
	inA, _, _ := strings.Cut(a, ":")
	inB, _, _ := strings.Cut(b, ":")
	return a != "" && b != "" && inA == inB && a != b
}

// judgeUse holds an allow against the workflow that it rests on.
func (m *machine) judgeUse(c *call, f *fact, w *workflow) {
	before := w.usedBy
	if w.usedBy == 0 {
		w.usedBy = f.seq
	}
	if f.protocol != protoAgentHook {
		return
	}
	say := func(caseOf, what string) string {
		v := about(w.event, f.eventID).proof(standing{ledger: f.decision}).proven(w.seq).proven(before)
		return m.check("AH-C-104", c, f, v.detail(caseOf).saying(what))
	}
	if caseOf, what := w.unlike(c, f.decision.digest); caseOf != "" {
		say(caseOf, what)
		return
	}
	if before != 0 && before != f.seq {
		say(detailUsedTwice, "it had been used before")
	}
	if !w.covers(c) && w.resume != resumeWorkflowID {
		c.excusable(otherCallExcuse, say(detailOtherCall, "it was given for another call, which this one does not say to try again"))
	}
	if w.resume == resumeSameEvent && w.event != "" && f.eventID != "" && f.eventID != w.event && !slices.Contains(w.slots, slotSum(c.slot.key)) {
		m.check("AH-C-106", c, f, about(w.event, f.eventID).proof(standing{ledger: f.decision}).proven(w.seq).saying("it came back as another event of another call"))
	}
}

// otherCallExcuse is the note of a finding that a call is another than the
// workflow is for: its own event, which may come later, may say what it tries again.
const otherCallExcuse = "AH-C-104 " + detailOtherCall

// linkedAfterAll takes that finding back.
func (m *machine) linkedAfterAll(c *call, f *fact) {
	if f.previous == (slotKey{}) || len(c.excuses) == 0 {
		return
	}
	d := c.lastDecision()
	if d == nil {
		return
	}
	w := m.workflow(c.session.key.tenant, d.pending.value().workflow)
	if w == nil || !w.covers(c) {
		return
	}
	for _, made := range c.taken(otherCallExcuse) {
		m.check("AH-C-104", c, f, about(c.firstEvent(), f.eventID).detail(detailWithdrawn).grade(events.SeverityInfo).
			withdrawing(made.id).saying("the call says that it tries that one again"))
	}
}
