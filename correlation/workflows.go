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
	sessionSum   sum   // see sessionSum
	waitingCalls []sum // of the calls that wait for it, at most maxWaiting; see slotSum
	tool         string
	canonical    string // "" if it is not known
	argsDigest   string // of the arguments; "" if it is not known
	resume       string
	event        string // the event of the request that opened it
	seq          uint64 // of the decision that opened it
	usedBy       uint64 // the sequence of the decision that used it up; 0 if none has
}

// Cases of AH-C-104 about an allow and the workflow that it names.
const (
	caseOtherSession      = "session"
	caseOtherWorkflowTool = "tool"
	caseOtherArguments    = "arguments"
	caseOtherCall         = "call"
	caseUsedTwice         = "used"
)

// sessionSum stands for a session, slotSum for a call of one, whatever its occurrence.
func sessionSum(k sessionKey) sum { return sumOf("session", k.source, k.session) }

func callKeySum(k callKey) sum { return sumOf("slot", k.id, k.tool) }

func (ap *approvals) findWorkflow(tenant, id string) *workflow {
	if id == "" {
		return nil
	}
	if w := ap.workflows.lookup(workflowKey{tenant, sumOf(id)}); w != nil {
		return *w
	}
	return nil
}

// useWorkflow notes what an announcement says of a workflow: that a call waits
// for it, that it uses it up, that a request names it, or which call it tries again.
func (ap *approvals) useWorkflow(c *call, f *fact) {
	switch {
	case f.kind != kindDecision:
		if w := ap.findWorkflow(f.key.tenant, f.namedWorkflow); w != nil && w.sessionSum == sessionSum(f.key) {
			w.addWaiting(callKeySum(c.group.key))
		}
		ap.describeWorkflow(c, f)
		ap.retractOtherCall(c, f)
	case f.decision.approval.valueOrZero().workflow == "":
	case f.decision.verdict == events.Ask, f.decision.verdict == events.Defer:
		ap.openWorkflow(c, f)
	case f.decision.verdict == events.Allow:
		if w := ap.findWorkflow(f.key.tenant, f.decision.approval.workflow); w != nil {
			ap.judgeWorkflowUse(c, f, w)
		}
	}
}

func (ap *approvals) openWorkflow(c *call, f *fact) {
	p, d := f.decision.approval, f.decision
	w := ap.findWorkflow(f.key.tenant, p.workflow)
	if w == nil {
		w = &workflow{
			sessionSum: sessionSum(f.key), tool: firstNonEmpty(f.tool, c.tool), canonical: c.canonicalTool, argsDigest: d.argsDigest, resume: p.resumePolicy, event: d.eventID, seq: d.seq,
		}
		ap.workflows.put(workflowKey{f.key.tenant, sumOf(p.workflow)}, w)
	}
	if w.sessionSum == sessionSum(f.key) {
		w.addWaiting(callKeySum(c.group.key))
	}
}

// describeWorkflow completes what a workflow was opened for by what the call's own
// events say of its tool.
func (ap *approvals) describeWorkflow(c *call, f *fact) {
	for i := range c.decisions {
		if w := ap.findWorkflow(f.key.tenant, c.decisions[i].approval.valueOrZero().workflow); w != nil && w.seq == c.decisions[i].seq {
			mergeText(&w.tool, f.tool, false)
			mergeText(&w.canonical, f.canonicalTool, false)
		}
	}
}

// addWaiting notes that a call waits for the workflow.
func (w *workflow) addWaiting(slot sum) {
	if len(w.waitingCalls) < maxWaitingCalls && !slices.Contains(w.waitingCalls, slot) {
		w.waitingCalls = append(w.waitingCalls, slot)
	}
}

// coversCall tells whether the workflow is for a call, or for one that it tries again.
func (w *workflow) coversCall(c *call) bool {
	return w.resume == resumeManual || len(w.waitingCalls) >= maxWaitingCalls ||
		slices.Contains(w.waitingCalls, callKeySum(c.group.key)) || !c.retriedKeySum.isZero() && slices.Contains(w.waitingCalls, c.retriedKeySum)
}

// Other ways in which a call comes back (AgentHook SPEC 10).
const (
	resumeWorkflowID = "retry_with_workflow_id" // an allow under it says that the workflow was named
	resumeManual     = "manual_retry"
)

// callMismatch says in which way a call is not what the workflow was opened for; "" if
// nothing is known to differ. digest is that of the call's decision.
func (w *workflow) callMismatch(c *call, digest string) (caseOf, what string) {
	sameName := w.tool == "" || c.tool == "" || w.tool == c.tool || normaliseToolName(w.tool) == normaliseToolName(c.tool)
	switch {
	case w.sessionSum != sessionSum(c.session.key):
		return caseOtherSession, "it was given for another session"
	case !sameName && (w.canonical == "" || w.canonical != c.canonicalTool):
		return caseOtherWorkflowTool, "it was given for another tool"
	case digestsDiffer(w.argsDigest, digest), digest == "" && compareToDecision(&c.args, w.argsDigest) == argsDifferent:
		return caseOtherArguments, "it was given for other arguments"
	}
	return "", ""
}

// digestsDiffer tells whether two digests are of different arguments. Digests with
// other keys cannot be compared.
func digestsDiffer(a, b string) bool {
	inA, _, _ := strings.Cut(a, ":")
	inB, _, _ := strings.Cut(b, ":")
	return a != "" && b != "" && inA == inB && a != b
}

// judgeWorkflowUse holds an allow against the workflow that it rests on.
func (ap *approvals) judgeWorkflowUse(c *call, f *fact, w *workflow) {
	before := w.usedBy
	if w.usedBy == 0 {
		w.usedBy = f.seq
	}
	if f.protocol != protoAgentHook {
		return
	}
	say := func(caseOf, what string) string {
		v := findingFrom(w.event, f.eventID).withVerdict(effectiveVerdict{recorded: f.decision}).withSeq(w.seq).withSeq(before)
		return ap.findings.reportCheckFinding("AH-C-104", c, f, v.withCase(caseOf).withText(what))
	}
	if caseOf, what := w.callMismatch(c, f.decision.argsDigest); caseOf != "" {
		say(caseOf, what)
		return
	}
	if before != 0 && before != f.seq {
		say(caseUsedTwice, "it had been used before")
	}
	if !w.coversCall(c) && w.resume != resumeWorkflowID {
		c.addRetractable(otherCallRetraction, say(caseOtherCall, "it was given for another call, which this one does not say to try again"))
	}
	if w.resume == resumeSameEvent && w.event != "" && f.eventID != "" && f.eventID != w.event && !slices.Contains(w.waitingCalls, callKeySum(c.group.key)) {
		ap.findings.reportCheckFinding("AH-C-106", c, f, findingFrom(w.event, f.eventID).withVerdict(effectiveVerdict{recorded: f.decision}).withSeq(w.seq).withText("it came back as another event of another call"))
	}
}

// otherCallRetraction is the note of a finding that a call is another than the
// workflow is for: its own event, which may come later, may say what it tries again.
const otherCallRetraction = "AH-C-104 " + caseOtherCall

// retractOtherCall takes that finding back.
func (ap *approvals) retractOtherCall(c *call, f *fact) {
	if f.retriedKey == (callKey{}) || len(c.retractable) == 0 {
		return
	}
	d := c.lastDecision()
	if d == nil {
		return
	}
	w := ap.findWorkflow(c.session.key.tenant, d.approval.valueOrZero().workflow)
	if w == nil || !w.coversCall(c) {
		return
	}
	for _, made := range c.takeRetractable(otherCallRetraction) {
		ap.findings.reportCheckFinding("AH-C-104", c, f, findingFrom(c.firstEvent(), f.eventID).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).
			retracting(made.id).withText("the call says that it tries that one again"))
	}
}
