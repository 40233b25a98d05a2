package correlation

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// closeReason says what closed a call.
type closeReason uint8

const (
	notClosed          closeReason = iota
	closedByPost                   // a Post event: nothing more is expected
	closedByDeny                   // a deny verdict
	closedByStop                   // ToolUseBlocked, or a fail mode that denied the call
	closedByError                  // ErrorOccurred
	closedByDeadline               // its deadline passed
	closedBySessionEnd             // its session ended first
	closedForRoom                  // the correlator needed room
)

// call is one occurrence of a tool call. The fields of call itself are always readable. The
// details of a closed call may be compacted: a caller that finds a call which may be closed
// must call expand before it reads them.
type call struct {
	session          *session
	group            *callGroup
	occurrence       int
	order            uint64   // the position among all calls opened, over all sessions
	cachedIDSum      fact.Sum // the sum behind its call_id; zero until idSum computes it
	retriedCall      *call    // the call that this one tries again
	state            events.CallState
	closeReason      closeReason
	wasOnRecord      bool        // isOnRecord, when it was forgotten; the call that it retries is forgotten with it
	summary          callSummary // of compacted details
	decisionIDs      []string    // decision ids that lead to it in the session's decisionIndex
	differencesBytes int         // the part of Options.MaxArgsBytes that its differences take

	*details
	compacted string // the compacted details; valid if details is nil
}

// details are what the engine knows of a call beside its identity. Only methods of a call and
// of the part calls write them, except for fields that belong to one other part: that part alone
// writes them (TestPartsWriteTheirOwn).
type details struct {
	publicDetails

	args          fact.Arguments // of the request; without a request, of the pre event
	executedArgs  fact.Arguments
	targetSum     fact.Sum // the resource that it acts on (see targetOf in package agenthook); zero if it is not known
	canonicalTool string   // its tool's name in the action-governance profile; "" if it has none
	nameRank      int      // the rank of the source of its names (sourceRanks)

	hasRequest, hasPre, hasPost bool
	failOpen                    bool
	needsHuman                  bool // a person must approve it
	replaced                    bool // another call uses the approval that it waited for
	preProtocol                 string
	preAt                       time.Time
	preEvent, requestEvent      string
	preFrame                    fact.Sum // FrameSum of its pre event
	postEvent, postProtocol     string
	events                      []string // ids of requests and pre events
	frameSum                    fact.Sum // of its first event
	frameEvent                  string
	frameKind                   fact.Kind

	argsRank int

	decisions       []fact.RecordedVerdict
	verdictClaim    fact.VerdictClaim
	pendingApproval *fact.Approval // the pending approval, as the pre event says
	eventApproval   *fact.Approval // the latest word of an event on that approval

	missingFinding string // finding_id of its missing_completion, "" if none stands
	// missingCheckFinding is the finding_id of the same finding under the protocol's check.
	missingCheckFinding string
	invokedAt           time.Time // when an announcement says that the call begins, by that event's clock
	invokedEvent        string
	invokedSeq          uint64       // the sequence of that event
	deniedStart         bool         // that event was reported as the start of a denied call, and the call has not ended since
	retractable         []findingRef // findings that a late message may retract
	earlierEnd          earlierEnd   // the completion before its announcement, if one was reported
	endedAt             time.Time    // when it ended or was stopped, by its producer's clock; set only if no announcement had come
	sessionEnd          sessionEnd   // what closed it, if the end of its session did
	hasDuration         bool         // claimedTimes.DurationMS was claimed; it may be 0
	hasMutationReason   bool         // its completion gives a reason for other arguments
	claims              callClaims   // what its events claim of verdict and approval
	thread              fact.Sum     // see LineageRefs.Thread; only set for a call without an id
	retriedKeySum       fact.Sum     // the group of the call that it retries, as its events say; see callKeySum

	handoffFinding handoffFinding // the finding that its agent had handed over before
	retryUse       receiptUse     // the retry that ran first on a receipt of the call; zero if none did, or the call had run before

	deadline     time.Time
	lastEmitted  emittedState
	recordCounts recordCounts
}

// sessionEnd is when a session ended, by its producer's clock and by the broker's.
type sessionEnd struct{ claimed, stored time.Time }

// hasOvertaken reports whether a fact says that it was emitted before the end, and came so soon
// afterwards that this may be so.
func (o sessionEnd) hasOvertaken(f *fact.Fact) bool {
	at := f.ProducerTimes.HappenedAt
	return !at.IsZero() && !at.After(o.claimed) && !f.At.After(o.stored.Add(fact.MaxOvertaken))
}

// publicDetails are the details that records show.
type publicDetails struct {
	protocol, tool, id, agent string

	inferred bool
	outcome  string
	execSeq  uint64
	inputMatch
	rules    brokenRules
	timeline []timelineEntry

	protocolViews
	retryChain   retryChain
	trace        string // W3C traceparent
	claimedTimes events.CallClaim
	binding      string // see events.Call.Binding
}

// recordCounts has, for each state, how many records of a call were emitted.
type recordCounts [len(callStates)]uint32

// callStates are all states of a call. The index of a state is its place in recordCounts.
var callStates = [...]events.CallState{events.CallOpen, events.CallCompleted, events.CallFailed, events.CallDenied, events.CallAbandoned, events.CallOrphaned}

func (r *recordCounts) isZero() bool { return *r == recordCounts{} }

// add counts one more record of a state and returns the new count.
func (r *recordCounts) add(s events.CallState) int {
	i := slices.Index(callStates[:], s)
	r[i]++
	return int(r[i])
}

// emittedState is the content of the last record of a call. A new record is emitted only if it
// says more.
type emittedState struct {
	state                             events.CallState
	outcome, match, decision, verdict string
	findings                          int
	execSeq                           uint64
	seenIn, endedIn                   protocolSet
	retriedTo                         fact.Sum // the next attempt
	parentLinkRank                    int8     // the rank of its session's parent link
}

// sourceRanks rank the kinds of facts as sources of a call's names and arguments.
var sourceRanks = [fact.KindCount]struct{ names, args int }{fact.KindDecision: {names: 1}, fact.KindRequest: {2, 2}, fact.KindPre: {3, 1}}

func mergeText(to *string, from string, better bool) {
	if from != "" && (better || *to == "") {
		*to = from
	}
}

// attachFact merges a fact into the call that it belongs to.
func (c *call) attachFact(f *fact.Fact) {
	c.mergeIdentity(f)
	c.recordProtocol(f)
	c.recordTimes(f)
	mergeText(&c.trace, f.LineageRefs.Trace, false)
	c.needsHuman = c.needsHuman || f.NeedsHuman
	if c.group.key.ID == "" && (c.thread.IsZero() || f.Kind == fact.KindPre) {
		c.thread = f.LineageRefs.Thread()
	}
	switch f.Kind {
	case fact.KindRequest:
		c.hasRequest = true
		c.requestEvent = cmp.Or(c.requestEvent, f.EventID)
		c.addEventID(f)
		c.addStep(stepRequested, f)
	case fact.KindPre:
		if !c.hasPre {
			c.hasPre, c.preProtocol, c.preAt, c.preEvent, c.preFrame = true, f.Protocol, f.At, f.EventID, f.FrameSum
		}
		if c.invokedEvent == "" && rowOf(f.Protocol).announcesStart {
			c.invokedAt, c.invokedEvent, c.invokedSeq = f.ProducerTimes.HappenedAt, f.EventID, f.Seq
		}
		c.addEventID(f)
		c.addStep(stepInvoked, f)
		c.recordConfirmation(f)
	case fact.KindDecision:
		if len(c.decisions) == maxCallDecisions { // those that bind arguments are kept: see decidedBefore
			oldest := max(0, slices.IndexFunc(c.decisions, func(d fact.RecordedVerdict) bool { return d.ArgsDigest == "" }))
			c.decisions = slices.Delete(c.decisions, oldest, oldest+1)
		}
		c.decisions = append(c.decisions, *f.Decision)
		c.session.noteVerdict(f.Decision.Verdict)
		c.addStep(stepDecided, f)
	}
	if f.RetriedKey != (fact.CallKey{}) {
		c.retriedKeySum = callKeySum(f.RetriedKey)
	}
	c.applyClaims(f)
}

// applyClaims records what a fact claims about verdict and approval.
func (c *call) applyClaims(f *fact.Fact) {
	if f.VerdictClaim.Verdict != "" {
		c.verdictClaim = f.VerdictClaim
		c.session.noteVerdict(f.VerdictClaim.Verdict)
	}
	c.claims.recordClaims(f)
	switch {
	case f.Approval == nil:
	case f.Approval.HasStatus(fact.StatusPending):
		c.pendingApproval = f.Approval
	default:
		c.eventApproval = f.Approval
	}
}

func (c *call) mergeIdentity(f *fact.Fact) {
	rank := sourceRanks[f.Kind]
	better := rank.names >= c.nameRank
	c.nameRank = max(c.nameRank, rank.names)
	mergeText(&c.protocol, f.Protocol, better)
	mergeText(&c.tool, f.Tool, better)
	mergeText(&c.id, f.CallID, better)
	mergeText(&c.agent, f.Agent, better)
	mergeText(&c.canonicalTool, f.CanonicalTool, better)
	if !f.TargetSum.IsZero() {
		c.targetSum = f.TargetSum
	}
	if f.Args.Known && rank.args > c.argsRank {
		c.session.calls.releaseCallArgs(c)
		c.args, c.argsRank = f.Args, rank.args
		c.session.calls.keepCallArgs(c)
	}
}

func (c *call) addEventID(f *fact.Fact) {
	if f.EventID == "" {
		return
	}
	if c.frameEvent == "" {
		c.frameSum, c.frameEvent, c.frameKind = f.FrameSum, f.EventID, f.Kind
	}
	if !c.hasEvent(f.EventID) && len(c.events) < maxCallEvents {
		c.events = append(c.events, f.EventID)
	}
}

// hasEvent reports whether a request, a pre event or a decision of the call has this event id.
func (x *details) hasEvent(eventID string) bool {
	for _, e := range x.events {
		if e == eventID && eventID != "" {
			return true
		}
	}
	for _, d := range x.decisions {
		if d.EventID == eventID && eventID != "" {
			return true
		}
	}
	return false
}

func (c *call) addStep(s step, f *fact.Fact) {
	if c.timeline == nil {
		c.timeline = make([]timelineEntry, 0, typicalSteps)
	}
	if len(c.timeline) < maxTimeline || lateSteps[s] && !c.hasStep(s) {
		c.timeline = append(c.timeline, newTimelineEntry(s, f.Seq, f.At, f.EventID, f.Protocol))
	}
}

func (c *call) isOpen() bool { return c.state == events.CallOpen }

// compareFact compares the tool and the arguments of a fact with those of the call.
func (x *details) compareFact(f *fact.Fact) fact.Comparison {
	if x.tool != "" && f.Tool != "" && x.tool != f.Tool {
		return fact.ArgsDifferent
	}
	result := fact.CompareArguments(&x.args, &f.Args)
	for i := range x.decisions {
		if result == fact.ArgsEqual {
			return fact.ArgsEqual
		}
		if r := fact.CompareToDecision(&f.Args, x.decisions[i].ArgsDigest); r != fact.ArgsUnknown {
			result = r
		}
	}
	return result
}

// statesArguments reports whether anything says which arguments the call was asked or announced with.
func (x *details) statesArguments() bool {
	return x.args.Known || slices.ContainsFunc(x.decisions, func(d fact.RecordedVerdict) bool { return d.ArgsDigest != "" })
}

func (c *call) hasWeakScope() bool { return c.session.Key.Session == noSession }

// currentState is the content of the record that would be emitted now.
func (c *call) currentState(verdict *effectiveVerdict) emittedState {
	e := emittedState{state: c.state, outcome: c.outcome, match: c.match, findings: c.rules.size(), execSeq: c.execSeq, seenIn: c.seenIn, endedIn: c.endedIn, retriedTo: c.retryChain.to,
		parentLinkRank: max(c.session.parentLinkRank, c.lastEmitted.parentLinkRank)}
	if verdict.recorded != nil {
		e.decision, e.verdict = verdict.recorded.ID, string(verdict.verdict)
	}
	return e
}

// recordConfirmation inserts the confirmation's question and answer into the timeline, in log
// order. Both come before the invocation, and only the invocation shows which call they are
// about.
func (x *details) recordConfirmation(f *fact.Fact) {
	if f.Confirmation == nil {
		return
	}
	if x.binding = events.BindingInferred; f.Confirmation.Explicit {
		x.binding = events.BindingExplicit
	}
	for _, s := range [...]struct {
		step
		fact.ConfirmingMessage
	}{{stepAsked, f.Confirmation.Asked}, {stepApproved, f.Confirmation.Accepted}} {
		if s.Seq == 0 || len(x.timeline) >= maxTimeline {
			continue
		}
		i := len(x.timeline)
		for i > 0 && x.timeline[i-1].seq > s.Seq {
			i--
		}
		x.timeline = slices.Insert(x.timeline, i, newTimelineEntry(s.step, s.Seq, s.At, s.ID, f.Protocol))
	}
}

// timelineSeqs are the sequences of all timeline entries.
func (x *details) timelineSeqs() []uint64 {
	var list []uint64
	for _, s := range x.timeline {
		if s.seq != 0 {
			list = append(list, s.seq)
		}
	}
	return list
}

// eventSeqs are the sequences of the given events that are in the call's timeline.
func (x *details) eventSeqs(ids []string) (list []uint64) {
	for _, id := range ids {
		i := slices.IndexFunc(x.timeline, func(e timelineEntry) bool { return e.eventID == id })
		if i >= 0 && x.timeline[i].seq != 0 {
			list = append(list, x.timeline[i].seq)
		}
	}
	return list
}

// callID is the call_id. Every replay gives the same.
func (c *call) callID() string {
	var room [callIDSize]byte
	h := c.idSum()
	return string(appendCallID(room[:0], &h))
}

// callIDSize is the length of a call_id.
const callIDSize = len(callIDPrefix) + 2*len(fact.Sum{})

const callIDPrefix = "call_"

// idSum is the sum that the call_id is made of.
func (c *call) idSum() fact.Sum {
	if c.cachedIDSum == (fact.Sum{}) {
		c.cachedIDSum = fact.CallSum(c.session.Key, c.group.key, c.occurrence)
	}
	return c.cachedIDSum
}

func appendCallID(b []byte, h *fact.Sum) []byte { return appendHex(append(b, callIDPrefix...), h) }

// recordTimes records the times that a fact claims. The first claim of each time counts.
func (x *details) recordTimes(f *fact.Fact) {
	if f.Kind == fact.KindPost {
		mergeTime(&x.claimedTimes.StartedAt, f.StartedAt)
		mergeTime(&x.claimedTimes.CompletedAt, f.ProducerTimes.CompletedAt)
	}
	setDefault(&x.claimedTimes.DurationMS, f.ProducerTimes.DurationMS)
	x.hasDuration = x.hasDuration || f.ProducerTimes.HasDuration
	setDefault(&x.claimedTimes.Attempt, f.ProducerTimes.Attempt)
}

func mergeTime(to *events.Time, from time.Time) {
	if !from.IsZero() && to.IsZero() {
		*to = events.At(from)
	}
}

// step is a step of a call's timeline.
type step uint8

const (
	noStep step = iota
	stepRequested
	stepDecided
	stepInvoked
	stepCompleted
	stepClosed
	stepTraced // by a trace event
	stepAsked  // a reviewer, or AAEP's user, was asked
	stepApproved
	stepRefused
	stepCancelled
	stepExpired
)

// stepNames are the names of steps in records (events.TimelineEntry).
var stepNames = [...]string{
	stepRequested: "requested", stepDecided: "decided", stepInvoked: "invoked", stepCompleted: "completed", stepClosed: "closed", stepTraced: "traced",
	stepAsked: "asked", stepApproved: "approved", stepRefused: "refused", stepCancelled: "cancelled", stepExpired: "expired",
}

// lateSteps are the steps that a timeline has at least once, however often the call was asked for before: they
// say whether it began and how it ended.
var lateSteps = [len(stepNames)]bool{stepInvoked: true, stepCompleted: true, stepClosed: true}

// typicalSteps is how many steps most calls have.
const typicalSteps = 4

// timelineEntry is a compact events.TimelineEntry: each call has several.
type timelineEntry struct {
	seq      uint64
	second   int64 // broker time
	nanos    int32
	step     step
	eventID  string
	protocol string
}

func newTimelineEntry(s step, seq uint64, at time.Time, eventID, protocol string) timelineEntry {
	return timelineEntry{seq: seq, second: at.Unix(), nanos: int32(at.Nanosecond()), step: s, eventID: fact.BoundID(eventID), protocol: protocol}
}

func (e *timelineEntry) brokerTime() time.Time { return time.Unix(e.second, int64(e.nanos)).UTC() }

// protocolSet is a set of protocols.
//
// A publisher may report one call in several protocols: as a hook in one, as a tool call in
// another, with a decision made in a third. Such reports are one call with one record if
// tenant, source, session and a non-empty tool_call_id are equal byte by byte, if the tool is
// equal where both name one, and if the arguments do not contradict each other. Reports of
// different tenants, publishers or sessions are never one call. Equal times, tools or
// arguments alone do not make reports one call: a call without an id is paired within its own
// protocol.
type protocolSet uint8

func protocolBit(name string) protocolSet {
	for i, known := range protocols {
		if name == known.Token {
			return 1 << i
		}
	}
	return 0
}

func (p protocolSet) has(name string) bool { return p&protocolBit(name) != 0 }

// names are the protocols of the set; nil if there are fewer than two.
func (p protocolSet) names() []string {
	if bits.OnesCount8(uint8(p)) < 2 {
		return nil
	}
	var list []string
	for i, known := range protocols {
		if p&(1<<i) != 0 {
			list = append(list, known.Token)
		}
	}
	return list
}

// protocolViews are the protocols that announced a call, ended it, and mentioned it at all.
type protocolViews struct {
	announcedIn, endedIn, seenIn protocolSet
	maxEffect                    fact.Effect // the strongest effect that any of its ends reports
}

func (x *details) recordProtocol(f *fact.Fact) {
	bit := protocolBit(f.Protocol)
	x.seenIn |= bit
	switch f.Kind {
	case fact.KindPre:
		x.announcedIn |= bit
	case fact.KindPost:
		x.endedIn |= bit
		x.maxEffect = max(x.maxEffect, f.Effect)
	}
}

// isOtherView reports whether an announcement is another protocol's view of a call that was
// announced before.
func (x *details) isOtherView(f *fact.Fact) bool {
	return f.Kind == fact.KindPre && f.CallKey.ID != "" && x.hasPre && !x.announcedIn.has(f.Protocol)
}

// closedByRefusal reports whether a deny or a stop closed the call.
func (c *call) closedByRefusal() bool {
	return c.closeReason == closedByDeny || c.closeReason == closedByStop
}

// firstEvent is the id of the event that announced the call.
func (x *details) firstEvent() string {
	return cmp.Or(x.preEvent, cmp.Or(x.requestEvent, x.decisionEvent()))
}

func (x *details) decisionEvent() string {
	for _, d := range x.decisions {
		if d.EventID != "" {
			return d.EventID
		}
	}
	return ""
}

// firstOwnSeq is the sequence of the call's first own message; 0 if it has none. Questions to
// a user and their answers are not the call's own.
func (x *details) firstOwnSeq() uint64 {
	for _, e := range x.timeline {
		if e.step != stepAsked && e.step != stepApproved {
			return e.seq
		}
	}
	return 0
}

func (x *details) hasStep(s step) bool {
	return slices.ContainsFunc(x.timeline, func(e timelineEntry) bool { return e.step == s })
}

// retryChain is a call's place among the attempts at one action.
type retryChain struct {
	from, to fact.Sum // the attempt before, and the latest attempt after; zero if there is none
	attempt  int32    // 2 for the first retry and so on; zero for the first attempt
}

func callIDOf(s fact.Sum) string {
	if s.IsZero() {
		return ""
	}
	return hexID(callIDPrefix, s)
}

// announcingProtocol is the row of the protocol that announced the call. Without an
// announcement it is the row of the first fact about the call.
func (x *details) announcingProtocol() *protocolRow {
	return rowOf(cmp.Or(x.preProtocol, x.protocol))
}

// recordCompletion records a completion. inferred says that it names the call by its tool only.
func (c *call) recordCompletion(f *fact.Fact, inferred bool) {
	c.inferred = c.inferred || inferred
	c.mergeIdentity(f)
	c.recordProtocol(f)
	c.recordTimes(f)
	c.applyClaims(f)
	c.addStep(stepCompleted, f)
	c.hasPost, c.postEvent, c.postProtocol = true, f.EventID, f.Protocol
	c.outcome, c.hasMutationReason = f.Outcome, f.HasMutationReason
	if !c.hasPre || !c.hasRequest && rowOf(f.Protocol).requestAnnounces {
		c.endedAt = f.ProducerTimes.HappenedAt
	}
	if f.Effect != fact.NoEffect {
		c.execSeq, c.executedArgs = f.Seq, f.Args
	}
}

// recordOtherCompletion records another protocol's view of a completion. It reports whether
// only this one tells the arguments.
func (c *call) recordOtherCompletion(f *fact.Fact) (newArguments bool) {
	c.recordProtocol(f)
	c.applyClaims(f)
	c.recordTimes(f)
	c.addStep(stepCompleted, f)
	if f.Effect == fact.NoEffect {
		return false
	}
	if c.execSeq == 0 {
		c.execSeq = f.Seq
	}
	if !f.Args.Known || c.executedArgs.Known {
		return false
	}
	c.executedArgs = f.Args
	c.dropExecutedText()
	return true
}

// dropExecutedText forgets the text of the executed arguments. Their digests stay.
func (x *details) dropExecutedText() { x.executedArgs.Canonical = nil }

// recordStop records that something ended the call before its completion.
func (c *call) recordStop(f *fact.Fact) {
	c.addStep(stepClosed, f)
	if c.outcome == "" {
		c.outcome = f.Outcome
	}
	if !c.hasRequest {
		c.endedAt = f.ProducerTimes.HappenedAt
	}
}

// recordRetried records the call that this one tries again.
func (c *call) recordRetried(before *call) { c.retriedCall = before.decidedAncestor() }

// recordLateAnnouncement makes an orphan a completed call. end is its completion.
func (c *call) recordLateAnnouncement(end *fact.Fact) { c.state = stateAfter(end) }

// noteFailOpen records that the publisher's fail mode let the call pass.
func (x *details) noteFailOpen() { x.failOpen = true }

// noteDeniedStart records that the start of the denied call was reported.
func (x *details) noteDeniedStart() {
	x.deniedStart = true
	x.confirmEffect()
}

// takeDeniedStart reports whether the start of the denied call was reported. One end belongs to it.
func (x *details) takeDeniedStart() bool {
	was := x.deniedStart
	x.deniedStart = false
	return was
}

// confirmEffect records that the call had an effect, whatever its ends report.
func (x *details) confirmEffect() { x.maxEffect = fact.HadEffect }

// stateAfter is the state of a call after a completion. An unknown outcome completes the call.
func stateAfter(f *fact.Fact) events.CallState {
	switch f.Outcome {
	case "failed", "cancelled", "timed_out", "error", "timeout":
		return events.CallFailed
	case "denied", "blocked":
		return events.CallDenied
	}
	return events.CallCompleted
}

// completionFact builds a fact from the recorded completion of a call.
func (c *call) completionFact() *fact.Fact {
	f := &fact.Fact{
		Kind: fact.KindPost, Seq: c.execSeq, Protocol: c.postProtocol, Origin: *c.session.Origin, EventID: c.postEvent,
		CallID: c.id, Tool: c.tool, CallKey: c.group.key, Args: c.executedArgs, Approval: c.eventApproval,
		Effect: c.maxEffect, Outcome: c.outcome, StartedAt: c.claimedTimes.StartedAt.Time, HasMutationReason: c.hasMutationReason,
		ProducerTimes: fact.ProducerTimes{
			HappenedAt: c.endedAt, CompletedAt: c.claimedTimes.CompletedAt.Time, DurationMS: c.claimedTimes.DurationMS, HasDuration: c.hasDuration,
		},
	}
	for _, s := range c.timeline {
		if s.step == stepCompleted {
			f.At = s.brokerTime()
		}
	}
	return f
}
