package conformance

import (
	"cmp"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events"
)

// Tally folds the traffic of one tenant. It is not safe for concurrent use.
type Tally struct {
	sessions          map[string]*profile.Sessions // by protocol
	findingsBySession map[profile.Key]*sessionFindings
	rulesOff          map[string]bool
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
	return &Tally{sessions: map[string]*profile.Sessions{}, findingsBySession: map[profile.Key]*sessionFindings{}, rulesOff: map[string]bool{}}
}

// sessionsOf are the sessions of a protocol.
func (t *Tally) sessionsOf(protocol string) *profile.Sessions {
	s := t.sessions[protocol]
	if s == nil {
		s = profile.NewSessions()
		t.sessions[protocol] = s
	}
	return s
}

// AddEvent takes a publisher's event as its bytes. source and session are what the
// broker knows; a session that the body names comes before it. An event that
// cannot be read counts, and shows nothing else; the finding says the rest.
func (t *Tally) AddEvent(protocol, source, session string, raw []byte) {
	row, known := protocols[protocol]
	if !known || row.AddEvent(t.sessionsOf(protocol), source, raw) {
		return
	}
	t.sessionsOf(protocol).Of(profile.KeyOf(source, session)).AddEvent("", profile.Facets{profile.Event})
}

// AddRequest takes the admitter's copy of a request: it says what was asked for, and
// nothing of how its publisher reports.
func (t *Tally) AddRequest(protocol, source, session string, raw []byte) {
	row := protocols[protocol]
	if row.ReadRequest == nil {
		return
	}
	if named, f, ok := row.ReadRequest(raw); ok {
		t.sessionsOf(protocol).Of(profile.KeyOf(source, cmp.Or(named, session))).AddFacets(f)
	}
}

// AddDecision takes a recorded decision.
func (t *Tally) AddDecision(d events.Decision) {
	if _, known := protocols[d.Protocol]; known {
		o := t.sessionsOf(d.Protocol).Of(profile.KeyOf(d.Source, d.Session))
		o.AddFacets(profile.OfDecision(d.Verdict))
		if d.Verdict == events.Deny && d.ToolCallID != "" {
			o.AddCall(d.ToolCallID, profile.Call{Ended: true})
		}
	}
}

// AddFinding takes a finding, or what takes one back.
func (t *Tally) AddFinding(f events.Finding) {
	p := profile.Key{Source: f.Source, Session: f.Session}
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

// Judged is whom a report is about: a publisher, or one session of it.
type Judged struct {
	Publisher string `json:"publisher"`
	Session   string `json:"session,omitempty"` // "" for all
	// Sessionless says that Session is empty because the events name none.
	Sessionless bool `json:"sessionless,omitempty"`
}

// Publishers lists the publishers of events in a protocol, in order.
func (t *Tally) Publishers(protocol string) []Judged {
	seen := map[string]bool{}
	for p := range t.sessionsOf(protocol).All() {
		seen[p.Source] = true
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
	for p := range t.sessionsOf(protocol).All() {
		if p.Source == source {
			list = append(list, Judged{p.Source, p.Session, p.Session == ""})
		}
	}
	slices.SortFunc(list, func(a, b Judged) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

func (s Judged) coversSession(p profile.Key) bool {
	return p.Source == s.Publisher && (s.Session == p.Session || (s.Session == "" && !s.Sessionless))
}
