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

// place is a session of a publisher.
type place struct{ source, session string }

// Tally folds the traffic of one tenant. It is not safe for concurrent use.
type Tally struct {
	observed map[string]map[place]*observed // by protocol
	found    map[place]*found
	off      map[string]bool
	asked    map[string]place // the session of a question, by reply token
}

// found are a session's findings, by rule.
type found struct {
	standing  map[string]map[string]finding // by rule and finding_id
	withdrawn map[string]bool
}

type finding struct {
	hint bool
	seqs []uint64
}

// New makes a Tally that has seen nothing.
func New() *Tally {
	return &Tally{observed: map[string]map[place]*observed{}, found: map[place]*found{}, off: map[string]bool{}, asked: map[string]place{}}
}

// shown bounds an id as findings do.
func shown(s string) string {
	const longest = 1024
	if len(s) <= longest {
		return s
	}
	return subject.Escape(s)
}

func (t *Tally) of(protocol string, p place) *observed {
	sessions := t.observed[protocol]
	if sessions == nil {
		sessions = map[place]*observed{}
		t.observed[protocol] = sessions
	}
	o := sessions[p]
	if o == nil {
		o = &observed{counts: map[Facet]uint64{}, ids: map[uint64]bool{}, calls: map[string]callClaim{}}
		sessions[p] = o
	}
	return o
}

// Event takes a publisher's event as its bytes. source and session are what the
// broker knows; a session that the body names comes before it. An event that
// cannot be read counts, and shows nothing else; the finding says the rest.
func (t *Tally) Event(protocol, source, session string, raw []byte) {
	switch protocol {
	case subject.ProtoAgentHook:
		e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
		if e != nil {
			t.hook(e, place{shown(cmp.Or(source, e.Source)), shown(e.SessionID)})
			return
		}
	case subject.ProtoAAEP:
		e, _ := aaep.Decode(raw, strictjson.DefaultLimits)
		if e != nil {
			t.aaep(e, place{shown(cmp.Or(source, e.Producer.AgentID)), shown(e.SessionID)}, raw)
			return
		}
	default:
		return
	}
	t.of(protocol, place{shown(source), shown(session)}).event("", facets{Event})
}

func (t *Tally) hook(e *agenthook.Event, p place) {
	o := t.of(subject.ProtoAgentHook, p)
	fresh := o.event(e.EventID, hookFacets(e))
	id := e.ToolCallID()
	switch {
	case !fresh:
	case e.EventType == agenthook.PreLLMCall:
		o.models++
	case e.EventType == agenthook.PostLLMCall, e.EventType == agenthook.ErrorOccurred && id == "": // H-13
		o.models--
	}
	if e.EventType == agenthook.PostToolUse && (e.Governed() || o.governed(id)) {
		o.counts[GovernedPost]++
	}
	verdict, stamped := e.AdmissionVerdict()
	mode, is := e.FailMode()
	excused := is && mode.Triggered
	pre := e.EventType == agenthook.PreToolUse
	if pre && e.Governed() && id != "" {
		o.remember("governed\x00" + id)
	}
	if id == "" {
		id = "event " + e.EventID
	}
	waits := pre && (e.EvidencePhase == agenthook.PhasePreCommit || e.EvidencePhase == "")
	denied := stamped && verdict.Verdict == string(events.Deny)
	o.ended = o.ended || e.EventType == agenthook.SessionEnd
	if pre || excused || e.Closes() {
		o.call(id, callClaim{claims: waits, answered: stamped || excused, announced: pre && e.ToolCallID() != "", over: e.Closes() || denied})
	}
}

func (t *Tally) aaep(e *aaep.Event, p place, raw []byte) {
	token := ""
	switch q := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		token = q.ReplyToken
	case *aaep.AwaitingClarification:
		token = q.ReplyToken
	case *aaep.ConfirmationReply:
		p = t.question(q.ReplyToken, p)
	case *aaep.ClarificationReply:
		p = t.question(q.ReplyToken, p)
	}
	if token != "" && len(t.asked) < maxTokens {
		t.asked[token] = p
	}
	if strings.HasPrefix(e.Type, handshake) {
		o, list := t.of(subject.ProtoAAEP, p), handshakeFacets(e)
		o.add(list)
		switch {
		case slices.Contains(list, Answered):
			o.waiting--
		case (slices.Contains(list, Offered) || slices.Contains(list, Renewal)) && !o.remember("asked\x00"+string(raw)):
			o.waiting++
		}
		return
	}
	if e.IsReply() {
		t.of(subject.ProtoAAEP, p).add(aaepFacets(e))
		return
	}
	o := t.of(subject.ProtoAAEP, p)
	o.event(e.EventID, aaepFacets(e))
	o.ended = o.ended || e.IsTerminal()
	switch e.Payload.(type) {
	case *aaep.ToolInvoked:
		o.call(e.ToolCallID(), callClaim{announced: e.ToolCallID() != ""})
	case *aaep.ToolCompleted:
		o.call(e.ToolCallID(), callClaim{over: true})
	}
}

// question is where a reply belongs: it has no session of its own.
func (t *Tally) question(token string, p place) place {
	if q, known := t.asked[token]; known {
		return q
	}
	return p
}

// Request takes the admitter's copy of a request: it says what was asked for, and
// nothing of how its publisher reports.
func (t *Tally) Request(protocol, source, session string, raw []byte) {
	if protocol != subject.ProtoAgentHook {
		return
	}
	e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return
	}
	o := t.of(protocol, place{shown(source), shown(cmp.Or(e.SessionID, session))})
	if e.ToolInput != nil {
		o.counts[Input]++
	}
}

// Decision takes a recorded decision.
func (t *Tally) Decision(d events.Decision) {
	if d.Protocol == subject.ProtoAgentHook || d.Protocol == subject.ProtoAAEP {
		o := t.of(d.Protocol, place{shown(d.Source), shown(d.Session)})
		o.add(decisionFacets(d.Verdict))
		if d.Verdict == events.Deny && d.ToolCallID != "" {
			o.call(d.ToolCallID, callClaim{over: true})
		}
	}
}

// Finding takes a finding, or what takes one back.
func (t *Tally) Finding(f events.Finding) {
	p := place{f.Source, f.Session}
	at := t.found[p]
	if at == nil {
		at = &found{standing: map[string]map[string]finding{}, withdrawn: map[string]bool{}}
		t.found[p] = at
	}
	if f.Withdraws != "" {
		at.withdrawn[f.Withdraws] = true
		return
	}
	if at.standing[f.Rule] == nil {
		at.standing[f.Rule] = map[string]finding{}
	}
	at.standing[f.Rule][f.FindingID] = finding{f.Severity == events.SeverityInfo, f.Seqs}
}

// Off notes that a rule was switched off for the tenant for a part of the log at
// least: that nothing was found of it proves nothing.
func (t *Tally) Off(rule string) { t.off[rule] = true }

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
	for p := range t.observed[protocol] {
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
	for p := range t.observed[protocol] {
		if p.source == source {
			list = append(list, Subject{p.source, p.session, p.session == ""})
		}
	}
	slices.SortFunc(list, func(a, b Subject) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

func (s Subject) covers(p place) bool {
	return p.source == s.Source && (s.Session == p.session || (s.Session == "" && !s.Sessionless))
}
