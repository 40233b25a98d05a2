package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Bounds of what is remembered of one session. What they make it forget is
// judged in favour of nobody: a session that reaches them is marked as partial.
const (
	maxIDs    = 4096 // event ids, to tell what came again
	maxCalls  = 4096 // calls, to tell what they claim and whether they ended
	maxTokens = 65_536
)

// sessionKey is a session of a publisher.
type sessionKey struct{ source, session string }

// Tally folds the traffic of one tenant. It is not safe for concurrent use.
type Tally struct {
	sessions          map[string]map[sessionKey]*sessionTally // by protocol
	findingsBySession map[sessionKey]*sessionFindings
	rulesOff          map[string]bool
	questionSessions  map[string]sessionKey // the session of a question, by reply token
}

// sessionFindings are a session's findings, by rule.
type sessionFindings struct {
	standing  map[string]map[string]standingFinding // by rule and finding_id
	retracted map[string]bool
}

type standingFinding struct {
	hint bool
	seqs []uint64
}

// New makes a Tally that has seen nothing.
func New() *Tally {
	return &Tally{sessions: map[string]map[sessionKey]*sessionTally{}, findingsBySession: map[sessionKey]*sessionFindings{}, rulesOff: map[string]bool{}, questionSessions: map[string]sessionKey{}}
}

// boundID bounds an id as findings do.
func boundID(s string) string {
	const longest = 1024
	if len(s) <= longest {
		return s
	}
	return subject.Escape(s)
}

func (t *Tally) sessionTally(protocol string, p sessionKey) *sessionTally {
	sessions := t.sessions[protocol]
	if sessions == nil {
		sessions = map[sessionKey]*sessionTally{}
		t.sessions[protocol] = sessions
	}
	o := sessions[p]
	if o == nil {
		o = &sessionTally{counts: map[Facet]uint64{}, ids: map[uint64]bool{}, calls: map[string]callState{}}
		sessions[p] = o
	}
	return o
}

// AddEvent takes a publisher's event as its bytes. source and session are what the
// broker knows; a session that the body names comes before it. An event that
// cannot be read counts, and shows nothing else; the finding says the rest.
func (t *Tally) AddEvent(protocol, source, session string, raw []byte) {
	switch protocol {
	case subject.ProtoAgentHook:
		e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
		if e != nil {
			t.addAgentHook(e, sessionKey{boundID(cmp.Or(source, e.Source)), boundID(e.SessionID)})
			return
		}
	case subject.ProtoAAEP:
		e, _ := aaep.Decode(raw, strictjson.DefaultLimits)
		if e != nil {
			t.addAAEP(e, sessionKey{boundID(cmp.Or(source, e.Producer.AgentID)), boundID(e.SessionID)}, raw)
			return
		}
	default:
		return
	}
	t.sessionTally(protocol, sessionKey{boundID(source), boundID(session)}).addEvent("", facetList{Event})
}

func (t *Tally) addAgentHook(e *agenthook.Event, p sessionKey) {
	o := t.sessionTally(subject.ProtoAgentHook, p)
	fresh := o.addEvent(e.EventID, agentHookFacets(e))
	id := e.ToolCallID()
	switch {
	case !fresh:
	case e.EventType == agenthook.PreLLMCall:
		o.openModelCalls++
	case e.EventType == agenthook.PostLLMCall, e.EventType == agenthook.ErrorOccurred && id == "": // H-13
		o.openModelCalls--
	}
	if e.EventType == agenthook.PostToolUse && (e.HasGovernanceBlock() || o.isGoverned(id)) {
		o.counts[GovernedPost]++
	}
	verdict, stamped := e.AdmissionVerdict()
	mode, is := e.FailMode()
	excused := is && mode.Triggered
	pre := e.EventType == agenthook.PreToolUse
	if pre && e.HasGovernanceBlock() && id != "" {
		o.rememberID("governed\x00" + id)
	}
	if id == "" {
		id = "event " + e.EventID
	}
	waits := pre && (e.EvidencePhase == agenthook.PhasePreCommit || e.EvidencePhase == "")
	denied := stamped && verdict.Verdict == string(events.Deny)
	o.ended = o.ended || e.EventType == agenthook.SessionEnd
	if pre || excused || e.ClosesCall() {
		o.addCall(id, callState{needsVerdict: waits, hasVerdict: stamped || excused, announced: pre && e.ToolCallID() != "", ended: e.ClosesCall() || denied})
	}
}

func (t *Tally) addAAEP(e *aaep.Event, p sessionKey, raw []byte) {
	token := ""
	switch q := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		token = q.ReplyToken
	case *aaep.AwaitingClarification:
		token = q.ReplyToken
	case *aaep.ConfirmationReply:
		p = t.questionSession(q.ReplyToken, p)
	case *aaep.ClarificationReply:
		p = t.questionSession(q.ReplyToken, p)
	}
	if token != "" && len(t.questionSessions) < maxTokens {
		t.questionSessions[token] = p
	}
	if strings.HasPrefix(e.Type, handshakePrefix) {
		o, list := t.sessionTally(subject.ProtoAAEP, p), handshakeFacets(e)
		o.addFacets(list)
		switch {
		case slices.Contains(list, SubscriptionAnswers):
			o.openRequests--
		case (slices.Contains(list, SubscriptionRequests) || slices.Contains(list, Renewal)) && !o.rememberID("asked\x00"+string(raw)):
			o.openRequests++
		}
		return
	}
	if e.IsReply() {
		t.sessionTally(subject.ProtoAAEP, p).addFacets(aaepFacets(e))
		return
	}
	o := t.sessionTally(subject.ProtoAAEP, p)
	o.addEvent(e.EventID, aaepFacets(e))
	o.ended = o.ended || e.IsTerminal()
	switch e.Payload.(type) {
	case *aaep.ToolInvoked:
		o.addCall(e.ToolCallID(), callState{announced: e.ToolCallID() != ""})
	case *aaep.ToolCompleted:
		o.addCall(e.ToolCallID(), callState{ended: true})
	}
}

// questionSession is where a reply belongs: it has no session of its own.
func (t *Tally) questionSession(token string, p sessionKey) sessionKey {
	if q, known := t.questionSessions[token]; known {
		return q
	}
	return p
}

// AddRequest takes the admitter's copy of a request: it says what was asked for, and
// nothing of how its publisher reports.
func (t *Tally) AddRequest(protocol, source, session string, raw []byte) {
	if protocol != subject.ProtoAgentHook {
		return
	}
	e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return
	}
	o := t.sessionTally(protocol, sessionKey{boundID(source), boundID(cmp.Or(e.SessionID, session))})
	if e.ToolInput != nil {
		o.counts[AnnouncedArguments]++
	}
}

// AddDecision takes a recorded decision.
func (t *Tally) AddDecision(d events.Decision) {
	if d.Protocol == subject.ProtoAgentHook || d.Protocol == subject.ProtoAAEP {
		o := t.sessionTally(d.Protocol, sessionKey{boundID(d.Source), boundID(d.Session)})
		o.addFacets(decisionFacets(d.Verdict))
		if d.Verdict == events.Deny && d.ToolCallID != "" {
			o.addCall(d.ToolCallID, callState{ended: true})
		}
	}
}

// AddFinding takes a finding, or what takes one back.
func (t *Tally) AddFinding(f events.Finding) {
	p := sessionKey{f.Source, f.Session}
	at := t.findingsBySession[p]
	if at == nil {
		at = &sessionFindings{standing: map[string]map[string]standingFinding{}, retracted: map[string]bool{}}
		t.findingsBySession[p] = at
	}
	if f.Retracts != "" {
		at.retracted[f.Retracts] = true
		return
	}
	if at.standing[f.Rule] == nil {
		at.standing[f.Rule] = map[string]standingFinding{}
	}
	at.standing[f.Rule][f.FindingID] = standingFinding{f.Severity == events.SeverityInfo, f.Seqs}
}

// MarkRuleOff notes that a rule was switched off for the tenant for a part of the log at
// least: that nothing was found of it proves nothing.
func (t *Tally) MarkRuleOff(rule string) { t.rulesOff[rule] = true }

// Subject is whom a report is about: a publisher, or one session of it.
type Subject struct {
	Source  string `json:"publisher"`
	Session string `json:"session,omitempty"` // "" for all
	// Sessionless says that Session is empty because the events name none.
	Sessionless bool `json:"sessionless,omitempty"`
}

// Publishers lists who published events in a protocol, in order.
func (t *Tally) Publishers(protocol string) []Subject {
	seen := map[string]bool{}
	for p := range t.sessions[protocol] {
		seen[p.source] = true
	}
	var list []Subject
	for _, s := range slices.Sorted(maps.Keys(seen)) {
		list = append(list, Subject{Source: s})
	}
	return list
}

// Sessions lists a publisher's sessions in a protocol, in order.
func (t *Tally) Sessions(protocol, source string) []Subject {
	var list []Subject
	for p := range t.sessions[protocol] {
		if p.source == source {
			list = append(list, Subject{p.source, p.session, p.session == ""})
		}
	}
	slices.SortFunc(list, func(a, b Subject) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

func (s Subject) coversSession(p sessionKey) bool {
	return p.source == s.Source && (s.Session == p.session || (s.Session == "" && !s.Sessionless))
}
