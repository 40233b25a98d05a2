package correlation

import (
	"cmp"
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
// remembered, and its details, which are packed while nobody asks about a call
// that is over. Whoever comes by a call that may be over has to unfold it.
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
