package conformance

import (
	"cmp"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// Bounds of what is remembered of one session. What they make it forget is
// judged in favour of no publisher: a session that reaches them is marked as partial.
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
	row, known := protocols[protocol]
	if !known || row.addEvent(t, source, raw) {
		return
	}
	t.sessionTally(protocol, sessionKey{fact.BoundID(source), fact.BoundID(session)}).addEvent("", facetList{Event})
}

// AddRequest takes the admitter's copy of a request: it says what was asked for, and
// nothing of how its publisher reports.
func (t *Tally) AddRequest(protocol, source, session string, raw []byte) {
	row := protocols[protocol]
	if row.readRequest == nil {
		return
	}
	if named, f, ok := row.readRequest(raw); ok {
		t.sessionTally(protocol, sessionKey{fact.BoundID(source), fact.BoundID(cmp.Or(named, session))}).addFacets(f)
	}
}

// AddDecision takes a recorded decision.
func (t *Tally) AddDecision(d events.Decision) {
	if _, known := protocols[d.Protocol]; known {
		o := t.sessionTally(d.Protocol, sessionKey{fact.BoundID(d.Source), fact.BoundID(d.Session)})
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
type Judged struct {
	Publisher string `json:"publisher"`
	Session   string `json:"session,omitempty"` // "" for all
	// Sessionless says that Session is empty because the events name none.
	Sessionless bool `json:"sessionless,omitempty"`
}

// Publishers lists the publishers of events in a protocol, in order.
func (t *Tally) Publishers(protocol string) []Judged {
	seen := map[string]bool{}
	for p := range t.sessions[protocol] {
		seen[p.source] = true
	}
	var list []Judged
	for _, s := range slices.Sorted(maps.Keys(seen)) {
		list = append(list, Judged{Publisher: s})
	}
	return list
}

// Sessions lists a publisher's sessions in a protocol, in order.
func (t *Tally) Sessions(protocol, source string) []Judged {
	var list []Judged
	for p := range t.sessions[protocol] {
		if p.source == source {
			list = append(list, Judged{p.source, p.session, p.session == ""})
		}
	}
	slices.SortFunc(list, func(a, b Judged) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

func (s Judged) coversSession(p sessionKey) bool {
	return p.source == s.Publisher && (s.Session == p.session || (s.Session == "" && !s.Sessionless))
}
