package correlation

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// closeReason says what closed a call that has no Post event.
type closeReason uint8

const (
	notClosed          closeReason = iota
	closedByPost                   // a Post event: nothing more is expected
	closedByDeny                   // a verdict
	closedByStop                   // ToolUseBlocked, or a fail mode that denied
	closedByError                  // ErrorOccurred
	closedByDeadline               // it stayed open too long, or room was needed
	closedBySessionEnd             // its session ended first
)

// call is one occurrence of a tool call: what is looked at of every one that is
// remembered, and its details, which are packed while no message asks about a call
// that is over. A caller that finds a call that may be over has to unfold it.
type call struct {
	session          *session
	group            *callGroup
	occurrence       int
	order            uint64   // in which calls were opened, over all sessions
	cachedIDSum      fact.Sum // of what makes its call_id, once that was needed
	retriedCall      *call    // the call that this one tries again
	state            events.CallState
	closeReason      closeReason
	summary          callSummary // of what is packed
	differencesBytes int         // of Options.MaxArgsBytes, that its differences take

	*details
	compacted string // the details, if those are nil
}

// details are what is known of a call beside its place.
type details struct {
	publicDetails

	args          fact.Arguments // the request's, else the pre event's
	executedArgs  fact.Arguments
	targetSum     fact.Sum // what it is done to: see targetOf; zero if that is not known
	canonicalTool string   // its tool's name in the action-governance profile; "" if it has none
	nameRank      int      // how good the source of its names is

	hasRequest, hasPre, hasPost bool
	failOpen                    bool
	needsHuman                  bool // a person has to approve it
	replaced                    bool // another call uses the approval that it waited for
	preProtocol                 string
	preAt                       time.Time
	preEvent, requestEvent      string
	postEvent, postProtocol     string
	events                      []string // ids of requests and pre events
	decisionIDs                 []string // decision ids under which the session finds it
	frameSum                    fact.Sum // of the first of its events
	frameEvent                  string
	frameKind                   fact.Kind

	argsRank int

	decisions       []fact.RecordedVerdict
	verdictClaim    fact.VerdictClaim
	pendingApproval *fact.Approval // the approval that is waited for, as the pre event says
	eventApproval   *fact.Approval // what an event said of it since

	missingFinding string // finding_id of its missing_completion, "" if none stands
	// missingCheckFinding is the finding_id of the same under the protocol's check.
	missingCheckFinding string
	invokedAt           time.Time // by an announcement that says that the call begins, in that event's time
	invokedEvent        string
	invokedSeq          uint64       // the place of that event in the log
	retractable         []findingRef // that a late word may take back
	earlierEndFinding   findingRef   // AH-C-083, by the id of the event that came first
	endedAt             time.Time    // by its producer's clock, if no pre event or request had come; or stopped
	hasMutationReason   bool         // its completion gives a reason for other arguments
	claims              callClaims   // what its events claim of verdict and approval
	thread              fact.Sum     // see lineage.thread; of a call without an id
	retriedKeySum       fact.Sum     // the group of the call that its events say it tries again; see callKeySum

	handoffFinding handoffFinding // it came after a handoff of its agent

	deadline     time.Time
	lastEmitted  emittedState
	recordCounts recordCounts
}

// publicDetails is what records show of the details.
type publicDetails struct {
	protocol, tool, id, agent string

	inferred bool
	outcome  string
	execSeq  uint64
	inputMatch
	rules    []string
	timeline []timelineEntry

	protocolViews
	retryChain   retryChain
	trace        string // W3C traceparent
	claimedTimes events.CallClaim
	binding      string // see events.Call.Binding
}

// recordCounts counts the records of a call that were emitted, by state.
type recordCounts [len(callStates)]uint32

// callStates are all states of a call, in the order of records.
var callStates = [...]events.CallState{events.CallOpen, events.CallCompleted, events.CallFailed, events.CallDenied, events.CallAbandoned, events.CallOrphaned}

func (r *recordCounts) isZero() bool { return *r == recordCounts{} }

// add counts one more record of a state and gives how many there are.
func (r *recordCounts) add(s events.CallState) int {
	i := slices.Index(callStates[:], s)
	r[i]++
	return int(r[i])
}

// emittedState is what the last record of a call said, to see whether a new one says
// more.
type emittedState struct {
	state                             events.CallState
	outcome, match, decision, verdict string
	findings                          int
	execSeq                           uint64
	seenIn, endedIn                   protocolSet
	retriedTo                         fact.Sum // the attempt after it
	parentLinkRank                    int8     // the rank of what its session belongs to
}

// sourceRanks of facts as sources of a call's names and arguments.
var sourceRanks = [fact.KindCount]struct{ names, args int }{fact.KindDecision: {names: 1}, fact.KindRequest: {2, 2}, fact.KindPre: {3, 1}}

func mergeText(to *string, from string, better bool) {
	if from != "" && (better || *to == "") {
		*to = from
	}
}

// attachFact notes that a fact belongs to the call.
func (c *call) attachFact(f *fact.Fact) {
	c.mergeIdentity(f)
	c.recordProtocol(f)
	c.recordTimes(f)
	mergeText(&c.trace, f.LineageRefs.Trace, false)
	c.needsHuman = c.needsHuman || f.NeedsHuman
	if c.group.key.Id == "" && (c.thread.IsZero() || f.Kind == fact.KindPre) {
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
			c.hasPre, c.preProtocol, c.preAt, c.preEvent = true, f.Protocol, f.At, f.EventID
		}
		if c.invokedEvent == "" && rowOf(f.Protocol).announcesStart {
			c.invokedAt, c.invokedEvent, c.invokedSeq = f.ProducerTimes.HappenedAt, f.EventID, f.Seq
		}
		c.addEventID(f)
		c.addStep(stepInvoked, f)
		c.recordConfirmation(f)
	case fact.KindDecision:
		if len(c.decisions) == maxCallDecisions {
			c.decisions = append(c.decisions[:0], c.decisions[1:]...)
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

// applyClaims takes what a fact says about verdict and approval.
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
	argsRank := rank.args
	if f.Args.Known && argsRank > c.argsRank {
		c.session.calls.releaseCallArgs(c)
		c.args, c.argsRank = f.Args, argsRank
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

// hasEvent reports whether a request or pre event with this id belongs to the call.
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
	if len(c.timeline) < maxTimeline {
		c.timeline = append(c.timeline, newTimelineEntry(s, f.Seq, f.At, f.EventID, f.Protocol))
	}
}

func (c *call) isOpen() bool { return c.state == events.CallOpen }

// compareFact reports whether a fact is about the same tool and arguments as the call.
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

func (c *call) hasWeakScope() bool { return c.session.Key.Session == noSession }

// currentState is what a record would say, by the verdict that stands.
func (c *call) currentState(verdict *effectiveVerdict) emittedState {
	e := emittedState{state: c.state, outcome: c.outcome, match: c.match, findings: len(c.rules), execSeq: c.execSeq, seenIn: c.seenIn, endedIn: c.endedIn, retriedTo: c.retryChain.to,
		parentLinkRank: max(c.session.parentLinkRank, c.lastEmitted.parentLinkRank)}
	if verdict.recorded != nil {
		e.decision, e.verdict = verdict.recorded.Id, string(verdict.verdict)
	}
	return e
}

// recordConfirmation notes them where they belong by the log's order: both come before the
// invocation, which shows which call they were about.
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
		x.timeline = slices.Insert(x.timeline, i, newTimelineEntry(s.step, s.Seq, s.At, s.Id, f.Protocol))
	}
}

// timelineSeqs are those of all that is known of the call.
func (x *details) timelineSeqs() []uint64 {
	var list []uint64
	for _, s := range x.timeline {
		if s.seq != 0 {
			list = append(list, s.seq)
		}
	}
	return list
}

// eventSeqs are the sequences of events that belong to the call, as far as it
// remembers them.
func (x *details) eventSeqs(ids []string) (list []uint64) {
	for _, id := range ids {
		i := slices.IndexFunc(x.timeline, func(e timelineEntry) bool { return e.eventID == id })
		if i >= 0 && x.timeline[i].seq != 0 {
			list = append(list, x.timeline[i].seq)
		}
	}
	return list
}

// callID is the same for the same call in every replay.
func (c *call) callID() string {
	var room [callIDSize]byte
	h := c.idSum()
	return string(appendCallID(room[:0], &h))
}

// callIDSize is how long a call_id is.
const callIDSize = len(callIDPrefix) + 2*len(fact.Sum{})

const callIDPrefix = "call_"

// idSum gives what the call_id is made of.
func (c *call) idSum() fact.Sum {
	if c.cachedIDSum == (fact.Sum{}) {
		c.cachedIDSum = fact.CallSum(c.session.Key, c.group.key, c.occurrence)
	}
	return c.cachedIDSum
}

func appendCallID(b []byte, h *fact.Sum) []byte { return appendHex(append(b, callIDPrefix...), h) }

// recordTimes notes what a fact claims; the first word on each counts.
func (x *details) recordTimes(f *fact.Fact) {
	if f.Kind == fact.KindPost {
		mergeTime(&x.claimedTimes.StartedAt, f.StartedAt)
		mergeTime(&x.claimedTimes.CompletedAt, f.ProducerTimes.CompletedAt)
	}
	setDefault(&x.claimedTimes.DurationMS, f.ProducerTimes.DurationMS)
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
	stepTraced // a trace event
	stepAsked  // a reviewer has to agree
	stepApproved
	stepRefused
	stepCancelled
	stepExpired
)

// stepNames are how records name them (events.TimelineEntry).
var stepNames = [...]string{
	stepRequested: "requested", stepDecided: "decided", stepInvoked: "invoked", stepCompleted: "completed", stepClosed: "closed", stepTraced: "traced",
	stepAsked: "asked", stepApproved: "approved", stepRefused: "refused", stepCancelled: "cancelled", stepExpired: "expired",
}

// typicalSteps is how many steps most calls have.
const typicalSteps = 4

// timelineEntry is an events.TimelineEntry in less room: there are several of every call.
type timelineEntry struct {
	seq      uint64
	second   int64 // of broker time
	nanos    int32
	step     step
	eventID  string
	protocol string
}

func newTimelineEntry(s step, seq uint64, at time.Time, eventID, protocol string) timelineEntry {
	return timelineEntry{seq: seq, second: at.Unix(), nanos: int32(at.Nanosecond()), step: s, eventID: fact.BoundID(eventID), protocol: protocol}
}

func (e *timelineEntry) brokerTime() time.Time { return time.Unix(e.second, int64(e.nanos)).UTC() }

// protocolSet says in which protocols something was seen.
//
// A publisher may tell of one call in several protocols: one calls it a hook,
// one a tool call, and the decision on it may have been made in a third. It is one
// call, and one record says all of it, if tenant, source, session and a
// tool_call_id that is not empty are the same, to the byte, and so is the tool
// where both name one; arguments must not contradict each other. It is never one
// call across tenants, publishers or sessions, nor by time, tool or arguments
// alone: what has no id is paired within its own protocol.
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

// names are the protocols, nil if there is but one.
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

// protocolViews are the protocols in which a call was announced, ended, and heard of at
// all.
type protocolViews struct {
	announcedIn, endedIn, seenIn protocolSet
	maxEffect                    fact.Effect // the most that any of its ends says
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

// isOtherView reports whether an announcement that fits a call is the other
// protocol's of one that is over already.
func (x *details) isOtherView(f *fact.Fact) bool {
	return f.Kind == fact.KindPre && f.CallKey.Id != "" && x.hasPre && !x.announcedIn.has(f.Protocol)
}

// wasRefused reports whether the call was closed by a deny.
func (c *call) closedByRefusal() bool {
	return c.closeReason == closedByDeny || c.closeReason == closedByStop
}

// firstEvent is the event that announced the call.
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

// firstOwnSeq is the sequence of the first of a call's own messages; 0 if there is
// none. What a user was asked before it is not the call's.
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

// retryChain is a call's place among the attempts at the same thing.
type retryChain struct {
	from, to fact.Sum // of the attempt before and of the last one after; zero if there is none
	attempt  int32    // from 2; zero for the first one
}

func callIDOf(s fact.Sum) string {
	if s.IsZero() {
		return ""
	}
	return hexID(callIDPrefix, s)
}

// announcingProtocol is the row of the protocol that announced a call; of one that was not
// announced, that of the first fact about it.
func (x *details) announcingProtocol() *protocolRow {
	return rowOf(cmp.Or(x.preProtocol, x.protocol))
}

func (c *call) recordCompletion(f *fact.Fact) {
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

// stateAfter is the state after a completion, by the protocol's own word; a word
// that is not known completes the call.
func stateAfter(f *fact.Fact) events.CallState {
	switch f.Outcome {
	case "failed", "cancelled", "timed_out", "error", "timeout":
		return events.CallFailed
	case "denied", "blocked":
		return events.CallDenied
	}
	return events.CallCompleted
}

// completionFact is the completion of a call, as a fact.
func (c *call) completionFact() *fact.Fact {
	f := &fact.Fact{
		Kind: fact.KindPost, Seq: c.execSeq, Protocol: c.postProtocol, Origin: *c.session.Origin, EventID: c.postEvent,
		CallID: c.id, Tool: c.tool, CallKey: c.group.key, Args: c.executedArgs, Approval: c.eventApproval,
		Effect: c.maxEffect, Outcome: c.outcome, StartedAt: c.claimedTimes.StartedAt.Time, HasMutationReason: c.hasMutationReason,
	}
	for _, s := range c.timeline {
		if s.step == stepCompleted {
			f.At = s.brokerTime()
		}
	}
	return f
}
