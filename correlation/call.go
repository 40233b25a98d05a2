package correlation

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
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
		if c.decisions == nil {
			c.decisions = c.session.calls.freeLists.allocVerdicts(1)
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
		if c.events == nil {
			c.events = c.session.calls.freeLists.allocStrings(1)
		}
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
		c.timeline = c.session.calls.freeLists.allocTimeline(typicalSteps)
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

// lastDecision is the verdict that counts: the latest one recorded.
func (x *details) lastDecision() *fact.RecordedVerdict {
	if n := len(x.decisions); n > 0 {
		return &x.decisions[n-1]
	}
	return nil
}

func (c *call) hasWeakScope() bool { return c.session.Key.Session == noSession }

// currentState is what a record would say, by the verdict that stands.
func (c *call) currentState(st *effectiveVerdict) emittedState {
	e := emittedState{state: c.state, outcome: c.outcome, match: c.match, findings: len(c.rules), execSeq: c.execSeq, seenIn: c.seenIn, endedIn: c.endedIn, retriedTo: c.retryChain.to,
		parentLinkRank: max(c.session.parentLinkRank, c.lastEmitted.parentLinkRank)}
	if st.recorded != nil {
		e.decision, e.verdict = st.recorded.Id, string(st.verdict)
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

// callView is a call as it was when it was emitted: what its record is made of, once
// the caller encodes it. It is never changed after it was made.
type callView struct {
	publicDetails // of its own
	timelineRoom  [typicalSteps]timelineEntry

	prefix       string // of its subject
	origin       *fact.Origin
	occurrence   int
	state        events.CallState
	idSum        fact.Sum // see call.sum
	recordNumber int      // record of its state
	parentLink   parentLink

	// admittedDigest and executed are the digests of its arguments.
	admittedDigest, executedDigest string
	hasDecision                    bool // there is a recorded verdict
	decision                       string
	decisionSeq                    uint64
	decidedAt                      time.Time // zero if the verdict is another call's
	verdict                        events.Verdict
}

// callViewPool is memory for them.
type callViewPool struct {
	chunk     []callView  // for several at a time
	freeViews []*callView // that were used, and may be again
}

const (
	callViewsPerChunk = 4 // memory is made for
	maxFreeViews      = 1024
)

// release takes a view back.
func (l *callViewPool) release(v *callView) {
	if len(l.freeViews) < maxFreeViews {
		l.freeViews = append(l.freeViews, v)
	}
}

func (l *callViewPool) next() *callView {
	if last := len(l.freeViews) - 1; last >= 0 {
		one := l.freeViews[last]
		l.freeViews = l.freeViews[:last]
		return one
	}
	if len(l.chunk) == 0 {
		l.chunk = make([]callView, callViewsPerChunk)
	}
	one := &l.chunk[0]
	l.chunk = l.chunk[1:]
	return one
}

// ReleaseOutput takes back what an output was to be encoded from, for outputs to come. A caller that
// does so spares the garbage collector most of its work. The output is encoded or
// will never be, and so is every copy of it; what was encoded stays good.
func (c *Correlator) ReleaseOutput(o *Output) {
	if o.call != nil {
		c.engine.findings.release(o.call)
	}
	o.call = nil
}

// fillFrom makes it the likeness of a call; st is the verdict that stands for it.
func (l *callView) fillFrom(c *call, st *effectiveVerdict, parents *lineage) {
	l.publicDetails = c.publicDetails
	l.timeline = append(l.timelineRoom[:0], c.timeline...)
	if c.rules != nil || c.differences != nil {
		l.rules, l.differences = slices.Clone(c.rules), slices.Clone(c.differences)
	}
	l.origin, l.occurrence, l.state, l.idSum = c.session.Origin, c.occurrence, c.state, c.idSum()
	l.parentLink = parentLink{}
	if c.session.parentLinkRank != 0 {
		l.parentLink = parents.parentOf(c.session.Key)
	}
	l.admittedDigest, l.executedDigest = c.args.RecordDigest, c.executedArgs.RecordDigest
	if l.hasDecision = st.recorded != nil; !l.hasDecision {
		return
	}
	d := st.recorded
	l.verdict, l.decision, l.decisionSeq, l.decidedAt = st.verdict, d.Id, d.Seq, d.At
	if st.inherited {
		l.decidedAt = time.Time{}
	}
	if d.ArgsDigest != "" {
		l.admittedDigest, l.executedDigest = d.ArgsDigest, c.executedArgs.DigestLike(d.ArgsDigest)
	}
}

// callRecordBuffer is memory for a record while it is encoded.
type callRecordBuffer struct {
	events.Call
	durations events.CallDurations
	micros    [3]int64 // of durations
	parent    events.CallParent
}

var recordBuffers = sync.Pool{New: func() any {
	return &callRecordBuffer{Call: events.Call{Timeline: make([]events.TimelineEntry, 0, typicalSteps)}}
}}

// encode gives the record, where it belongs and its id.
func (l *callView) encode() (subject, id string, body []byte, err error) {
	r := recordBuffers.Get().(*callRecordBuffer)
	defer recordBuffers.Put(r)
	var room [256]byte
	b := appendSubject(room[:0], l.prefix, string(l.state), l.origin.Key)
	end := len(b)
	both := string(l.appendID(b))
	r.CallID = both[end : end+callIDSize]
	r.fillFrom(l)
	body, err = events.Encode(&r.Call)
	return both[:end], both[end:], body, err
}

// appendID appends the id of the record; it begins with the call's own.
func (l *callView) appendID(b []byte) []byte {
	b = append(append(appendCallID(b, &l.idSum), '-'), l.state...)
	if l.recordNumber > 1 {
		b = strconv.AppendInt(append(b, '-'), int64(l.recordNumber), 10)
	}
	return b
}

// fillFrom writes everything but the call_id.
func (r *callRecordBuffer) fillFrom(l *callView) {
	r.Tenant, r.Source, r.Session = l.origin.Tenant, l.origin.Source, l.origin.Session
	r.Protocol, r.Agent, r.ToolCallID, r.Occurrence, r.Tool = l.protocol, l.agent, l.id, l.occurrence, l.tool
	r.State, r.Outcome, r.ExecutionSeq, r.Match = l.state, l.outcome, l.execSeq, l.match
	r.Inferred, r.WeakScope, r.Findings = l.inferred, l.origin.Key.Session == noSession, l.rules
	r.Protocols, r.MatchReason, r.Differences, r.MoreDifferences = l.seenIn.names(), l.reason, l.differences, l.moreDifferences
	r.Attempt, r.RetriedFrom, r.RetriedTo = int(l.retryChain.attempt), callIDOf(l.retryChain.from), callIDOf(l.retryChain.to)
	r.Traceparent, r.Binding = l.trace, l.binding
	r.AdmittedDigest, r.ExecutedDigest = l.admittedDigest, l.executedDigest
	r.Verdict, r.DecisionID, r.DecisionSeq = "", "", 0
	decided := time.Time{}
	if l.hasDecision {
		r.Verdict, r.DecisionID, r.DecisionSeq, decided = l.verdict, l.decision, l.decisionSeq, l.decidedAt
	}
	r.fillOptionalParts(l, decided)
	r.fillTimeline(l)
}

// fillTimeline writes the timeline, which names a protocol only where it is another than
// the call's.
func (r *callRecordBuffer) fillTimeline(l *callView) {
	r.Timeline = r.Timeline[:0]
	for i := range l.timeline {
		e := &l.timeline[i]
		shown := events.TimelineEntry{Step: stepNames[e.step], Seq: e.seq, At: events.At(e.brokerTime()), EventID: e.eventID}
		if e.protocol != l.protocol {
			shown.Protocol = e.protocol
		}
		r.Timeline = append(r.Timeline, shown)
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

// withEventsOf adds the places of its events that belong to another call than the one that
// it is reported of.
func (v *findingSpec) withEventsOf(o *call) *findingSpec {
	v.seqs = append(v.seqs, o.eventSeqs(v.events)...)
	return v
}

// evidenceSeqs are the sequences that prove it, in order: of its events, and of the
// message that showed it. Where time does, and what was said before, that is all
// of the call.
func (v *findingSpec) evidenceSeqs(c *call, f *fact.Fact) []uint64 {
	list := slices.Clone(v.seqs)
	if f.Seq != 0 {
		list = append(list, f.Seq)
	}
	switch {
	case c != nil && len(list) == 0:
		list = c.timelineSeqs()
	case c != nil:
		list = append(list, c.eventSeqs(v.events)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
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

// fillOptionalParts writes what there is of a record's durations, claims and parent. decided is
// when the verdict that counts was recorded; zero if there is none.
func (r *callRecordBuffer) fillOptionalParts(l *callView, decided time.Time) {
	r.Parent, r.Claimed, r.Durations = nil, nil, nil
	if of := &l.parentLink; !of.isZero() {
		r.parent = events.CallParent{CallID: callIDOf(of.callSum), Source: of.origin.Source, Session: of.origin.Session, By: linkNames[of.rank]}
		r.Parent = &r.parent
	}
	if l.claimedTimes != (events.CallClaim{}) {
		r.Claimed = &l.claimedTimes
	}
	requested, started, completed := l.stepTimes()
	r.micros = [...]int64{microsFrom(requested, decided), microsFrom(decided, started), microsFrom(started, completed)}
	for i, to := range [...]**int64{&r.durations.Decided, &r.durations.Started, &r.durations.Ran} {
		if *to = nil; r.micros[i] != noTimeSpan {
			*to, r.Durations = &r.micros[i], &r.durations
		}
	}
}

// noTimeSpan is that no time is known to have passed.
const noTimeSpan = -1

// microsFrom is how much time passed if both ends are known, and in this order.
func microsFrom(from, to time.Time) int64 {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return noTimeSpan
	}
	return to.Sub(from).Microseconds()
}

// stepTimes are when the call was requested, when it started and when it ended; zero
// where that is not known.
func (k *publicDetails) stepTimes() (requested, started, completed time.Time) {
	for i := range k.timeline {
		switch e := &k.timeline[i]; e.step {
		case stepRequested:
			keepFirstTime(&requested, e.brokerTime())
		case stepInvoked:
			keepFirstTime(&started, e.brokerTime())
		case stepCompleted:
			keepFirstTime(&completed, e.brokerTime())
		}
	}
	return requested, started, completed
}

// keepFirstTime keeps the first of the times that were seen.
func keepFirstTime(to *time.Time, at time.Time) {
	if to.IsZero() {
		*to = at
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
