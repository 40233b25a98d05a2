package correlation

import (
	"cmp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

const resumeSameEvent = "retry_same_event"

// An ask or defer decision opens an approval workflow, or joins one. An allow decision that
// names a workflow uses its approval. The approval is for what the workflow was opened for:
// one session, one tool, one set of arguments, the calls that wait for it and their retries,
// and one use (AH-C-104).

// workflow is what an approval workflow was opened for, by the decisions that name it.
type workflow struct {
	sessionSum   fact.Sum   // see sessionSum
	waitingCalls []fact.Sum // the calls that wait for it, at most maxWaitingCalls; see callKeySum
	tool         string
	canonical    string // "" if it is not known
	argsDigest   string // of the arguments; "" if it is not known
	resume       string
	event        string // the event of its first request
	seq          uint64 // of the first decision
	usedBy       uint64 // the sequence of the decision that used it up; 0 if none did
}

// Cases of AH-C-104, about an allow and the workflow that it names.
const (
	caseOtherSession      = "session"
	caseOtherWorkflowTool = "tool"
	caseOtherArguments    = "arguments"
	caseOtherCall         = "call"
	caseUsedTwice         = "used"
)

// sessionSum identifies a session. callKeySum identifies the calls of a session under one key.
func sessionSum(k fact.SourceSession) fact.Sum { return fact.SumOf("session", k.Source, k.Session) }

func callKeySum(k fact.CallKey) fact.Sum { return fact.SumOf("slot", k.ID, k.Tool) }

func (ap *approvals) findWorkflow(tenant, id string) *workflow {
	if id == "" {
		return nil
	}
	if w := ap.workflows.Lookup(tenant, fact.SumOf(id)); w != nil {
		return *w
	}
	return nil
}

// useWorkflow applies what an announcement says of a workflow: a call waits for it, uses it
// up, names it in a request, or retries a call of it.
func (ap *approvals) useWorkflow(c *call, f *fact.Fact) {
	switch {
	case f.Kind != fact.KindDecision:
		if w := ap.findWorkflow(f.Key.Tenant, f.NamedWorkflow); w != nil && w.sessionSum == sessionSum(f.Key) {
			w.addWaiting(callKeySum(c.group.key))
		}
		ap.describeWorkflow(c, f)
		ap.retractOtherCall(c, f)
	case f.Decision.Approval.ValueOrZero().Workflow == "":
	case f.Decision.Verdict == events.Ask, f.Decision.Verdict == events.Defer:
		ap.openWorkflow(c, f)
	case f.Decision.Verdict == events.Allow:
		if w := ap.findWorkflow(f.Key.Tenant, f.Decision.Approval.Workflow); w != nil {
			ap.judgeWorkflowUse(c, f, w)
		}
	}
}

func (ap *approvals) openWorkflow(c *call, f *fact.Fact) {
	p, d := f.Decision.Approval, f.Decision
	w := ap.findWorkflow(f.Key.Tenant, p.Workflow)
	if w == nil {
		w = &workflow{
			sessionSum: sessionSum(f.Key), tool: cmp.Or(f.Tool, c.tool), canonical: c.canonicalTool, argsDigest: d.ArgsDigest, resume: p.ResumePolicy, event: d.EventID, seq: d.Seq,
		}
		ap.workflows.Put(f.Key.Tenant, fact.SumOf(p.Workflow), w)
	}
	if w.sessionSum == sessionSum(f.Key) {
		w.addWaiting(callKeySum(c.group.key))
	}
}

// describeWorkflow adds to a workflow what the call's own events say of its tool.
func (ap *approvals) describeWorkflow(c *call, f *fact.Fact) {
	for i := range c.decisions {
		if w := ap.findWorkflow(f.Key.Tenant, c.decisions[i].Approval.ValueOrZero().Workflow); w != nil && w.seq == c.decisions[i].Seq {
			mergeText(&w.tool, f.Tool, false)
			mergeText(&w.canonical, f.CanonicalTool, false)
		}
	}
}

// addWaiting records that a call waits for the workflow.
func (w *workflow) addWaiting(callKey fact.Sum) {
	if len(w.waitingCalls) < maxWaitingCalls && !slices.Contains(w.waitingCalls, callKey) {
		w.waitingCalls = append(w.waitingCalls, callKey)
	}
}

// coversCall reports whether the workflow is for the call, or for one that it retries.
func (w *workflow) coversCall(c *call) bool {
	return w.resume == resumeManual || len(w.waitingCalls) >= maxWaitingCalls ||
		slices.Contains(w.waitingCalls, callKeySum(c.group.key)) || !c.retriedKeySum.IsZero() && slices.Contains(w.waitingCalls, c.retriedKeySum)
}

// Other resume policies (AgentHook SPEC 10).
const (
	resumeWorkflowID = "retry_with_workflow_id" // the allow shows that the retry named the workflow
	resumeManual     = "manual_retry"
)

// callMismatch says how a call differs from what the workflow was opened for; "" if no
// difference is known. digest is the argument digest of the call's decision.
func (w *workflow) callMismatch(c *call, digest string) (caseOf, what string) {
	sameName := w.tool == "" || c.tool == "" || w.tool == c.tool || normaliseToolName(w.tool) == normaliseToolName(c.tool)
	switch {
	case w.sessionSum != sessionSum(c.session.Key):
		return caseOtherSession, "it was given for another session"
	case !sameName && (w.canonical == "" || w.canonical != c.canonicalTool):
		return caseOtherWorkflowTool, "it was given for another tool"
	case digestsDiffer(w.argsDigest, digest), digest == "" && fact.CompareToDecision(&c.args, w.argsDigest) == fact.ArgsDifferent:
		return caseOtherArguments, "it was given for other arguments"
	}
	return "", ""
}

// digestsDiffer reports whether two digests are of different arguments. Digests under
// different keys cannot be compared.
func digestsDiffer(a, b string) bool {
	inA, _, _ := strings.Cut(a, ":")
	inB, _, _ := strings.Cut(b, ":")
	return a != "" && b != "" && inA == inB && a != b
}

// judgeWorkflowUse checks an allow decision against the workflow that it uses.
func (ap *approvals) judgeWorkflowUse(c *call, f *fact.Fact, w *workflow) {
	before := w.usedBy
	if w.usedBy == 0 {
		w.usedBy = f.Seq
	}
	if !rowOf(f.Protocol).resumesByRule {
		return
	}
	say := func(caseOf, what string) string {
		spec := findingFrom(w.event, f.EventID).withVerdict(effectiveVerdict{recorded: f.Decision}).withSeq(w.seq).withSeq(before)
		return ap.findings.reportCheck("AH-C-104", c, f, spec.withCase(caseOf).withText(what))
	}
	if caseOf, what := w.callMismatch(c, f.Decision.ArgsDigest); caseOf != "" {
		say(caseOf, what)
		return
	}
	if before != 0 && before != f.Seq {
		say(caseUsedTwice, "it had been used before")
	}
	if !w.coversCall(c) && w.resume != resumeWorkflowID {
		c.addRetractable(otherCallRetraction, say(caseOtherCall, "it was given for another call, which this one does not say to try again"))
	}
	if w.resume == resumeSameEvent && w.event != "" && f.EventID != "" && f.EventID != w.event && !slices.Contains(w.waitingCalls, callKeySum(c.group.key)) {
		ap.findings.reportCheck("AH-C-106", c, f, findingFrom(w.event, f.EventID).withVerdict(effectiveVerdict{recorded: f.Decision}).withSeq(w.seq).withText("it came back as another event of another call"))
	}
}

// otherCallRetraction is the name of a retractable finding that the workflow is for another
// call. A later event of the call may name that one as the call that it retries.
const otherCallRetraction = "AH-C-104 " + caseOtherCall

// retractOtherCall retracts that finding when the call names the call that it retries.
func (ap *approvals) retractOtherCall(c *call, f *fact.Fact) {
	if f.RetriedKey == (fact.CallKey{}) || len(c.retractable) == 0 {
		return
	}
	d := c.lastDecision()
	if d == nil {
		return
	}
	w := ap.findWorkflow(c.session.Key.Tenant, d.Approval.ValueOrZero().Workflow)
	if w == nil || !w.coversCall(c) {
		return
	}
	for _, made := range c.takeRetractable(otherCallRetraction) {
		ap.findings.reportCheck("AH-C-104", c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseRetracted).withSeverity(events.SeverityInfo).
			retracting(made.id).withText("the call says that it tries that one again"))
	}
}
