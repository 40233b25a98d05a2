package correlation

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// judge holds what calls did against the verdicts on record. It has no state of its own:
// what it finds is noted on the call.
type judge struct {
	opts      *engineOptions `snapshot:"-"` // given anew
	findings  *findings
	calls     *calls
	approvals *approvals
	receipts  *receipts
	trackers  *trackers
}

// effectiveVerdict is the verdict that stands for a call, and where it comes from.
type effectiveVerdict struct {
	verdict   events.Verdict        // "" if there is none
	recorded  *fact.RecordedVerdict // the recorded decision; nil if the verdict is only claimed
	decidedAt time.Time             // of a claimed verdict, if it says so
	inherited bool                  // from the call that this one tries again
}

// directVerdict is the verdict for this very call: the latest recorded decision counts.
// Without one, or against a later claim that the runtime's gates denied, what
// its events say counts: no publisher claims a denial that was not (AH-C-075).
//
// A call that AAEP says was invoked runs on the allow that was recorded before: what
// is decided when it is asked about once more is no verdict on what runs already.
func (x *details) directVerdict() effectiveVerdict {
	d := x.lastDecision()
	if before := x.decidedBefore(x.invokedSeq); before != nil && before.Verdict == events.Allow {
		d = before
	}
	if d == nil || (x.verdictClaim.Verdict == events.Deny && x.verdictClaim.Seq > d.Seq) {
		return effectiveVerdict{verdict: x.verdictClaim.Verdict, decidedAt: x.verdictClaim.DecidedAt}
	}
	return effectiveVerdict{verdict: d.Verdict, recorded: d}
}

// decidedBefore is the last decision before a place in the log, nil if there is none.
func (x *details) decidedBefore(seq uint64) *fact.RecordedVerdict {
	for i := len(x.decisions) - 1; i >= 0; i-- {
		if x.decisions[i].Seq < seq {
			return &x.decisions[i]
		}
	}
	return nil
}

// effectiveVerdict follows the retries back where the call has no recorded verdict of
// its own: what was denied or put off stays so under another id, but an allow
// counts only for the same tool and arguments.
func (c *call) effectiveVerdict() effectiveVerdict { return c.effectiveVerdictWithin(maxRetryChain) }

func (c *call) effectiveVerdictWithin(depth int) effectiveVerdict {
	own := c.directVerdict()
	if own.recorded != nil || c.retriedCall == nil || depth == 0 {
		return own
	}
	before := c.retriedCall.expand().effectiveVerdictWithin(depth - 1)
	if before.verdict == "" || (own.verdict != "" && before.verdict.Strictness() < own.verdict.Strictness()) {
		return own
	}
	if before.verdict == events.Allow && (c.retriedCall.tool != c.tool || fact.CompareArguments(&c.retriedCall.args, &c.args) == fact.ArgsDifferent) {
		return own
	}
	before.inherited = true
	return before
}

// judgeExecution holds an execution against the verdicts recorded before it.
func (j *judge) judgeExecution(c *call, f *fact.Fact) {
	if f.Effect == fact.NoEffect {
		return
	}
	st := c.effectiveVerdict()
	before := j.findings.made()
	switch {
	case st.verdict == "":
		j.judgeUnasked(c, f)
	case f.Effect == fact.MaybeEffect && st.verdict == events.Deny:
		j.judgeDoubtful(c, f, st)
	case f.Effect == fact.MaybeEffect && st.verdict != events.Allow:
	case st.verdict == events.Deny:
		j.findings.reportRule(ruleDespiteDeny, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st))
	case st.verdict != events.Allow:
		j.judgeAsked(c, f, st)
	default:
		j.judgeAllowed(c, f, st)
	}
	if st.recorded == nil && st.verdict != "" && j.opts.RequireVerdict && j.findings.made() == before {
		j.findings.reportRetractable(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseOnlyClaimed))
	}
	if st.verdict != events.Deny {
		j.compareCallInput(c, f, st)
	}
	j.judgeVerdictClaim(c, f)
	j.receipts.checkReceiptUse(c, f)
}

// judgeDoubtful judges the end of a denied call in a word that AAEP has for what
// failed and for what never began. A call that was invoked after its denial began
// nonetheless. One that was invoked before may only have been closed, but it did not
// wait.
func (j *judge) judgeDoubtful(c *call, f *fact.Fact, st effectiveVerdict) {
	denied := c.verdictClaim.Seq
	if st.recorded != nil {
		denied = st.recorded.Seq
	}
	switch {
	case c.invokedSeq == 0 || denied == 0 || c.maxEffect == fact.HadEffect: // another protocol's event said that it ran
	case c.invokedSeq > denied:
		c.maxEffect = fact.HadEffect
		j.findings.reportRule(ruleDespiteDeny, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st).withSeq(c.invokedSeq))
	case st.recorded != nil:
		j.findings.reportRule(ruleBeforeVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st).withSeq(c.invokedSeq).withCase(detailInvokedFirst))
	}
}

func (j *judge) judgeUnasked(c *call, f *fact.Fact) {
	j.checkUnanswered(c, f)
	j.checkDeniedBypass(c, f)
	switch {
	case !j.opts.RequireVerdict:
	case c.isFailOpen():
		j.findings.reportRule(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseFailOpen).withSeverity(events.SeverityInfo))
	case c.failOpen:
		j.findings.reportRetractable(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseFailOpenClaimed))
		protocols.checkUngated(j.trackers, c, f)
	default:
		j.findings.reportRetractable(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID))
		protocols.checkUngated(j.trackers, c, f)
	}
}

// judgeAsked: ask and defer let a call run only once it was approved. Of a
// recorded ask, only a new decision says that it was (AH-C-105); for a verdict
// that is only claimed, what the events say counts.
func (j *judge) judgeAsked(c *call, f *fact.Fact, st effectiveVerdict) {
	granted := f.Approval.ValueOrZero()
	if granted.Status != fact.StatusApproved {
		granted = c.eventApproval.ValueOrZero()
	}
	if st.recorded != nil || !c.approvedBy(granted) {
		detail := approvalDetail(c, granted)
		c.claims.markReportedIf(detail != "", claimedApprovalKind)
		j.findings.reportRule(rulePending, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st).withCase(detail))
		return
	}
	if !f.StartedAt.IsZero() && f.StartedAt.Add(j.opts.ClockSkew).Before(granted.DecidedAt) {
		j.findings.reportRule(rulePending, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st))
		return
	}
	until := c.awaitedApproval().ExpiresAt
	if until.IsZero() {
		until = granted.ExpiresAt
	}
	if start := c.executionStart(f); !until.IsZero() && start.After(until) {
		j.findings.reportRule(ruleExpired, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st).withCase(caseApprovalExpired))
	}
}

// awaitedApproval is the approval that the call waits for.
func (x *details) awaitedApproval() fact.Approval {
	if d := x.lastDecision(); d != nil && d.Approval != nil {
		return *d.Approval
	}
	return x.pendingApproval.ValueOrZero()
}

// approvedBy reports whether an approval is for what the call waits for
// (AH-C-104) and was given in time (AH-C-103).
func (x *details) approvedBy(a fact.Approval) bool {
	want := x.awaitedApproval()
	inTime := want.ExpiresAt.IsZero() || a.DecidedAt.IsZero() || !a.DecidedAt.After(want.ExpiresAt)
	return a.Status == fact.StatusApproved && inTime &&
		agreeIfKnown(a.Workflow, want.Workflow) && agreeIfKnown(a.Action, want.Action)
}

func agreeIfKnown(a, b string) bool { return a == "" || b == "" || a == b }

// executionStart is when the execution began, as far as can be said: the producer's
// claim if it is not after its report, an announcement that says so, or the report.
func (x *details) executionStart(f *fact.Fact) time.Time {
	switch {
	case !f.StartedAt.IsZero() && !f.StartedAt.After(f.At):
		return f.StartedAt
	case x.hasPre && x.preProtocol == f.Protocol && rowOf(f.Protocol).announcesStart:
		return x.preAt
	}
	return f.At
}

func (j *judge) judgeAllowed(c *call, f *fact.Fact, st effectiveVerdict) {
	j.approvals.checkUnnamedApproval(c, f)
	j.approvals.checkExecutedApproval(c, f, st)
	decided := st.decidedAt
	if st.recorded != nil {
		decided = st.recorded.At
		if !st.recorded.Expires.IsZero() && c.executionStart(f).After(st.recorded.Expires) {
			j.findings.reportRule(ruleExpired, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st))
		}
	}
	if !f.StartedAt.IsZero() && !decided.IsZero() && f.StartedAt.Add(j.opts.ClockSkew).Before(decided) {
		j.findings.reportRule(ruleBeforeVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st))
	}
}

// judgeLateVerdict judges a first verdict that was recorded after the execution.
func (j *judge) judgeLateVerdict(c *call, f *fact.Fact) {
	if c.execSeq == 0 {
		return
	}
	late := findingFrom(c.firstEvent(), c.postEvent).withCase(caseRecordedLate)
	if f.Decision.Verdict == events.Deny {
		late.withCase(detailDeniedLate)
	}
	if j.opts.RequireVerdict && !c.isFailOpen() {
		late.withSeverity(ruleWithoutVerdict.Severity) // a verdict afterwards makes it no better
	}
	var wrong []findingRef
	if c.verdictClaim.Verdict == "" || c.verdictClaim.Verdict.Strictness() >= nativeVerdict(f.Decision.Verdict).Strictness() {
		wrong = c.takeRetractable(ExecutedWithoutVerdict, "AH-C-073", "AH-C-082")
	}
	for _, made := range wrong {
		back := findingFrom(c.firstEvent(), f.EventID).withSeq(f.Seq).withCase(caseRecordedLate).withSeverity(events.SeverityInfo).retracting(made.id)
		if made.rule == ExecutedWithoutVerdict {
			j.findings.reportRule(ruleWithoutVerdict, c, f, back)
			continue
		}
		j.findings.emitFinding(checkRules[made.rule], c, f, back.withText("the verdict was recorded later"))
	}
	j.findings.reportRule(ruleBeforeVerdict, c, f, late)
}

// decisionFor is the decision that an event of the given sequence could know:
// the last one before it, else the first.
func (x *details) decisionFor(seq uint64) *fact.RecordedVerdict {
	for i := len(x.decisions) - 1; i >= 0; i-- {
		if x.decisions[i].Seq < seq {
			return &x.decisions[i]
		}
	}
	if len(x.decisions) > 0 {
		return &x.decisions[0]
	}
	return nil
}

// nativeVerdict is a verdict as AgentHook can say it.
func nativeVerdict(v events.Verdict) events.Verdict {
	if v == events.Defer {
		return events.Ask
	}
	return v
}

// reportDrift reports that a call ran as something else than what its verdict, request or
// announcement says. A recorded reason is the publisher's own claim: it lowers the
// grade and excuses nothing.
func (j *judge) reportDrift(c *call, f *fact.Fact, st effectiveVerdict, reason bool, detail string) {
	grade := events.SeverityHigh
	switch {
	case reason:
		grade = events.SeverityMedium
	case st.recorded != nil && st.recorded.HasReceipt:
		grade = events.SeverityCritical
	}
	j.findings.reportRule(ruleDrift, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(st).withCase(detail).withSeverity(grade).withText(c.admissionStage(st)))
}

// admissionStage says what is known of a call before it ran: only what a recorded allow
// is about was admitted.
func (x *details) admissionStage(st effectiveVerdict) string {
	switch {
	case st.recorded != nil && st.verdict == events.Allow:
		return "admitted"
	case st.recorded != nil || x.hasRequest:
		return "requested"
	}
	return "announced"
}

// reportMissingCompletion reports a call without a completion. A deny is no missing
// completion. What was only asked for must be completed too, but not in a protocol that
// demands the end of each announced call.
func (j *judge) reportMissingCompletion(c *call, f *fact.Fact) {
	grade, due := events.SeverityMedium, c.hasPre || c.hasRequest
	if c.announcingProtocol().endIsMust {
		grade, due = events.SeverityHigh, c.hasPre
	}
	if !due || c.replaced {
		return
	}
	detail := caseDeadline
	if c.closeReason == closedBySessionEnd {
		detail = caseSessionEnd
	}
	v := findingFrom(c.firstEvent()).withCase(detail).withSeverity(grade)
	c.missingFinding = j.findings.reportRule(ruleMissing, c, f, v)
	if check := c.missingRule(); check != nil {
		c.missingCheckFinding = j.findings.emitFinding(check, c, f, v.asCheckFinding(ruleMissing))
	}
}

// retractMissingCompletion takes a missing completion back that a late event proved wrong. In
// a protocol in which the completion must come before the session's end, the finding
// stands.
func (j *judge) retractMissingCompletion(c *call, f *fact.Fact) {
	if c.missingFinding == "" || (c.closeReason == closedBySessionEnd && c.announcingProtocol().endIsMust) {
		return
	}
	j.retractMissingFinding(c, f, caseWithdrawn, "the completion has arrived after all")
}

// retractMissingFinding takes the finding of a missing completion back, and says why.
func (j *judge) retractMissingFinding(c *call, f *fact.Fact, detail, why string) {
	back := findingFrom(c.firstEvent(), f.EventID).withCase(detail).withSeverity(events.SeverityInfo).retracting(c.missingFinding)
	j.findings.reportRule(ruleMissing, c, f, back)
	check := findingFrom(c.firstEvent(), f.EventID).withCase(detail).retracting(c.missingCheckFinding)
	if rule := c.missingRule(); rule != nil {
		j.findings.emitFinding(rule, c, f, check.withText(why).withSeverity(events.SeverityInfo))
	}
	c.missingFinding, c.missingCheckFinding = "", ""
}

// An approval may be used by another call than the one that waits for it: a retry
// under an id of its own, as docs/approvals.md permits. The call that waited then
// never runs, and no completion of it is missing. Whether the other call may use the
// approval is judged elsewhere (AH-C-104, AH-C-106).

// replaceWaitingCalls notes the calls that an allowed call replaces: those that it tries again,
// and those that wait for its approval.
func (j *judge) replaceWaitingCalls(s *session, c *call, f *fact.Fact) {
	if c.directVerdict().verdict != events.Allow {
		return
	}
	before := c.retriedCall
	for range maxRetryChain {
		if before == nil {
			break
		}
		j.replaceCall(before.expand(), c, f)
		before = before.retriedCall
	}
	workflow := cmp.Or(c.awaitedApproval().Workflow, c.eventApproval.ValueOrZero().Workflow)
	if workflow == "" {
		return
	}
	s.findNamed(workflow, func(o *call) bool {
		if o.awaitedApproval().Workflow == workflow {
			j.replaceCall(o, c, f)
		}
		return false // every call that waits for it
	})
}

// replaceCall notes that a call waited for an approval that another one uses. What AAEP
// says was invoked has to be completed all the same (AAEP-C-081).
func (j *judge) replaceCall(o, by *call, f *fact.Fact) {
	v := o.directVerdict().verdict
	waits := (v == events.Ask || v == events.Defer) && !o.hasPost && o.invokedEvent == ""
	if o == by || o.replaced || !waits {
		return
	}
	o.replaced = true
	if o.missingFinding != "" {
		j.retractMissingFinding(o, f, caseReplaced, "another call uses its approval")
		j.findings.emitCall(o)
	}
}

// Values of Call.Match.
const (
	matchEqual        = "equal"
	matchDrift        = "drift"
	matchInconclusive = "inconclusive"
)

// inputMatch is what is known of what was admitted and what ran.
type inputMatch struct {
	match, reason   string
	differences     []events.Difference
	moreDifferences int
}

// compareCallInput holds what ran against what was admitted, or announced where
// nothing was admitted.
func (j *judge) compareCallInput(c *call, f *fact.Fact, st effectiveVerdict) {
	j.calls.releaseCallDifferences(c)
	if c.tool != "" && f.Tool != "" && c.tool != f.Tool {
		c.inputMatch = inputMatch{match: matchDrift}
		j.reportDrift(c, f, st, false, caseOtherTool)
		return
	}
	result := fact.ArgsUnknown
	if st.recorded != nil {
		result = fact.CompareToDecision(&f.Args, st.recorded.ArgsDigest)
	}
	if result == fact.ArgsUnknown {
		result = fact.CompareArguments(&c.args, &f.Args)
	}
	switch {
	case result == fact.ArgsEqual:
		c.inputMatch = inputMatch{match: matchEqual}
	case result == fact.ArgsDifferent:
		c.inputMatch = c.inputDifferences(f, st)
		j.calls.keepCallDifferences(c)
		j.reportDrift(c, f, st, f.HasMutationReason, "")
	case f.Args.Known || c.args.Known:
		c.inputMatch = inputMatch{match: matchInconclusive, reason: c.inconclusiveReason(f, st)}
	}
}

// inconclusiveReason says why the correlator cannot tell whether what ran is what was
// admitted.
func (x *details) inconclusiveReason(f *fact.Fact, st effectiveVerdict) string {
	switch {
	case !f.Args.Known:
		return events.MatchNotReported
	case x.args.Known && len(x.args.RedactedPaths)+len(f.Args.RedactedPaths) > 0:
		if x.args.Canonical == nil || f.Args.Canonical == nil {
			return events.MatchNotKept
		}
		return events.MatchRedacted
	case st.recorded == nil || st.recorded.ArgsDigest == "":
		return events.MatchNotReported
	case f.Args.DigestLike(st.recorded.ArgsDigest) == "":
		return events.MatchDigestForm
	}
	return events.MatchRedacted
}

// inputDifferences says where what ran is not what was admitted. Both must be known to
// the letter: the admitted arguments are those that the call is open with, if the
// decision is about them.
func (x *details) inputDifferences(f *fact.Fact, st effectiveVerdict) inputMatch {
	r := inputMatch{match: matchDrift}
	paths := slices.Concat(x.args.RedactedPaths, f.Args.RedactedPaths)
	switch {
	case !x.args.Known, st.recorded != nil && st.recorded.ArgsDigest != "" && fact.CompareToDecision(&x.args, st.recorded.ArgsDigest) != fact.ArgsEqual:
		r.reason = events.MatchDigestOnly
		return r
	case x.args.Canonical == nil || len(f.Args.Canonical) > maxArgsPerCall || f.Args.Canonical == nil:
		r.reason = events.MatchNotKept
		return r
	}
	admitted, ok := x.args.UnmaskedTree(paths)
	executed, too := f.Args.UnmaskedTree(paths)
	if !ok || !too {
		r.reason = events.MatchNotKept
		return r
	}
	if r.differences, r.moreDifferences = listDifferences(admitted, executed); len(r.differences) == 0 {
		r.reason = events.MatchRedacted
	}
	return r
}

// keepCallDifferences counts what a call's differences take for as long as it is
// remembered, and drops them if there is no room.
func (cs *calls) keepCallDifferences(c *call) {
	size := 0
	for _, d := range c.differences {
		size += len(d.Pointer) + differenceSize
	}
	if cs.counts.argsBytes+size > cs.opts.MaxArgsBytes {
		c.inputMatch = inputMatch{match: c.match, reason: events.MatchNotKept}
		return
	}
	c.differencesBytes = size
	cs.counts.argsBytes += size
}

// differenceSize is what a difference takes beside its pointer's text.
const differenceSize = 32

func (cs *calls) releaseCallDifferences(c *call) {
	cs.counts.argsBytes -= c.differencesBytes
	if c.differencesBytes = 0; c.details != nil {
		c.differences = nil
	}
}

// Bounds of what is said of one call's differences; see Options for what is kept
// of its arguments.
const (
	maxDifferences = 32
	maxPointer     = 256  // bytes; what lies deeper is said of the place above it
	maxPointers    = 2048 // bytes of all pointers of one call
)

// listDifferences are the places where b is not what a is. The pointers are RFC 6901,
// in the order of the members' bytes. more is how many there are beside the list.
// Values are only compared: what is said of them is that they differ.
func listDifferences(a, b any) (list []events.Difference, more int) {
	d := differenceList{}
	d.walk("", a, b)
	return d.list, d.more
}

type differenceList struct {
	list     []events.Difference
	more     int
	size     int
	deepPath string // the place above what lies too deep, said last
}

func (d *differenceList) walk(at string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, is := b.(map[string]any); is {
			d.compareObjects(at, a, b)
			return
		}
	case []any:
		if b, is := b.([]any); is {
			d.compareLists(at, a, b)
			return
		}
	default:
		switch b.(type) {
		case map[string]any, []any:
		default: // texts, numbers in their canonical form, booleans and null
			if a == b {
				return
			}
		}
	}
	d.add(at, events.DifferenceChanged)
}

func (d *differenceList) compareObjects(at string, a, b map[string]any) {
	names := make([]string, 0, len(a)+len(b))
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		inA, isA := a[name]
		inB, isB := b[name]
		d.compareMember(at, name, inA, inB, isA, isB)
	}
}

func (d *differenceList) compareLists(at string, a, b []any) {
	for i := range max(len(a), len(b)) {
		var inA, inB any
		if i < len(a) {
			inA = a[i]
		}
		if i < len(b) {
			inB = b[i]
		}
		d.compareMember(at, strconv.Itoa(i), inA, inB, i < len(a), i < len(b))
	}
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differenceList) compareMember(at, name string, a, b any, isA, isB bool) {
	if len(name) <= maxPointer {
		name = escapePointer.Replace(name)
	}
	if len(at)+1+len(name) > maxPointer {
		if !isA || !isB || !equalTrees(a, b) {
			d.addDeep(at)
		}
		return
	}
	switch at += "/" + name; {
	case !isA:
		d.add(at, events.DifferenceAdded)
	case !isB:
		d.add(at, events.DifferenceRemoved)
	default:
		d.walk(at, a, b)
	}
}

func equalTrees(a, b any) bool {
	inner := differenceList{}
	inner.walk("", a, b)
	return inner.more+len(inner.list) == 0
}

// addDeep says once that something below a place differs.
func (d *differenceList) addDeep(at string) {
	if n := len(d.list); n > 0 && d.list[n-1].Pointer == at || d.deepPath == at && at != "" {
		return
	}
	d.deepPath = at
	d.add(at, events.DifferenceChanged)
}

func (d *differenceList) add(at, kind string) {
	if len(d.list) == maxDifferences || d.size+len(at) > maxPointers {
		d.more++
		return
	}
	d.size += len(at)
	d.list = append(d.list, events.Difference{Pointer: at, Kind: kind})
}
