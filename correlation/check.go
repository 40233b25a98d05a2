package correlation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/internal/recorded"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// ErrProtocol says that there are no recordings of a protocol.
var ErrProtocol = errors.New("recordings can be checked in the protocols aaep and agenthook")

// CheckOptions configure Check.
type CheckOptions struct {
	// Now is how far time passed after the recording; zero: not at all. Deadlines
	// up to it fire. What has no time, and nothing before it, was long before. No
	// event was received after it: an AAEP event of a later time is from the future
	// (AAEP-C-067), which nothing tells without Now.
	Now time.Time
	// MissingAfter as in Options.
	MissingAfter time.Duration
	// Rules as in Options; the tenant is empty.
	Rules func(tenant, rule string) Mode
}

// Check correlates a recorded session: events in the order of the log, as
// ParseRecording gives them. It differs from a shard's log in what a recording
// lacks:
//
//   - an event's broker time is its own timestamp, but never before that of the
//     event before it;
//   - source is AgentHook's source, or the authenticated publisher where the recording
//     is what `countersign session --json` prints; there is no tenant;
//   - all AAEP events are one publisher's: several producers may share a session, so
//     producer.agent_id is shown as the source and tells no sessions apart;
//   - a line {"decision": {…}} is a recorded decision. It needs no signature and
//     may lack fields: without source or session it is matched by event_id,
//     session and tool_call_id. Its source is a publisher, and an event's own is the
//     publisher's word, so a decision on an event that it names is on that event;
//   - an execution needs a verdict only if the recording holds a decision;
//   - without a decision, the verdict that events and replies claim counts, and what
//     they say of approvals; where a decision is recorded, they are held against it.
//
// Findings come in the order in which they were proved. Seqs are the positions
// in the recording, from 1. A missing completion that arrived late is none.
func Check(protocol string, recording []json.RawMessage, o CheckOptions) ([]events.Finding, error) {
	row := rowOf(protocol)
	if row.readRecorded == nil {
		return nil, fmt.Errorf("%w, not %.20q", ErrProtocol, protocol)
	}
	r := &recordedSession{protocol: protocol, index: newRecordingIndex()}
	for i, raw := range recording {
		if line := recorded.Read(protocol, raw); line.Event != nil {
			r.lines = append(r.lines, r.read(uint64(i)+1, line, row))
		}
	}
	m := newEngine(Options{RequireVerdict: r.decisions, MissingAfter: o.MissingAfter, Rules: o.Rules, ClockSkew: -1})
	m.opts.fromRecording, m.opts.recordedUntil = true, o.Now
	r.play(m)
	if !o.Now.IsZero() {
		m.advanceTimers(o.Now)
	}
	return dropRetracted(m.findings.pending()), nil
}

// recordedSession is a recording that was read.
type recordedSession struct {
	protocol  string
	lines     []recordedLine
	index     recordingIndex
	decisions bool // it holds decisions
}

func (r *recordedSession) read(seq uint64, one recorded.Line, row *protocolRow) recordedLine {
	raw := one.Event
	f := &fact{seq: seq, protocol: r.protocol, origin: originOf("", "", ""), contentSum: sumOfBytes(raw)}
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		f.readRefusedNumber(raw, &row.reading)
		return recordedLine{fact: f, err: err, unreadable: true}
	}
	if _, is := tree["decision"].(map[string]any); is {
		r.decisions = true
		return readDecision(f, raw)
	}
	line := row.readRecorded(f, raw)
	if one.Publisher != "" && !row.onePublisher {
		f.key.source, f.source = subject.Escape(one.Publisher), boundID(one.Publisher)
	}
	r.index.add(f)
	return line
}

func readDecision(f *fact, raw []byte) recordedLine {
	f.kind = kindDecision
	var box struct {
		Decision events.Decision `json:"decision"`
	}
	var more struct {
		Decision struct {
			Approval struct {
				DecisionRef string `json:"decision_ref"`
			} `json:"approval"`
		} `json:"decision"`
	}
	if strictjson.Unmarshal(raw, &box) != nil || strictjson.Unmarshal(raw, &more) != nil {
		return recordedLine{fact: f, defect: "a field has the wrong type"}
	}
	f.decisionRef = more.Decision.Approval.DecisionRef
	return recordedLine{fact: f, decision: &box.Decision, time: box.Decision.DecidedAt.Time}
}

// play passes the lines to the engine.
func (r *recordedSession) play(e *engine) {
	for _, l := range r.lines {
		if !l.time.IsZero() {
			e.timers.startAt(l.time)
			break
		}
	}
	for _, l := range r.lines {
		e.advanceTimers(l.time)
		f := l.fact
		f.at = e.timers.now()
		switch {
		case l.defect != "":
			e.findings.reportRule(ruleForged, nil, f, findingFrom().withContent(f.contentSum).withCase(caseUndecodable).withText(l.defect))
		case l.decision != nil:
			r.decide(e, f, *l.decision)
		case l.unreadable:
			e.reportUnreadable(f, l.err)
		default:
			if f.kind != kindAdmissionReply {
				if what := eventDefect(f, l.err, l.violations); what != "" {
					e.findings.reportInvalid(f, what)
				}
			}
			r.index.locateReply(f)
			e.processFact(f)
		}
		e.calls.compactCalls()
	}
}

func (r *recordedSession) decide(e *engine, f *fact, d events.Decision) {
	d.Tenant, d.EventID = "", normaliseEventID(d.EventID)
	d.Protocol = cmp.Or(d.Protocol, r.protocol)
	decisionFact(f, new(recordedVerdict), &d, readingOf)
	f.decision.approvalRef = f.decisionRef
	if rowOf(d.Protocol).onePublisher {
		f.key.source = ""
	}
	r.index.completeDecision(f, d)
	if !d.Verdict.Valid() {
		e.findings.reportRule(ruleForged, nil, f, findingFrom(d.EventID).withContent(f.contentSum).withCase(caseVerdict))
		return
	}
	e.processFact(f)
}

// recordingIndex finds the event that a line without source or session is about.
type recordingIndex struct {
	byEvent, byCall, bySession map[string]*fact
}

func newRecordingIndex() recordingIndex {
	return recordingIndex{byEvent: map[string]*fact{}, byCall: map[string]*fact{}, bySession: map[string]*fact{}}
}

func (x recordingIndex) add(f *fact) {
	if f.kind == kindAdmissionReply {
		return
	}
	for _, e := range []struct {
		in  map[string]*fact
		key string
	}{{x.byEvent, f.eventID}, {x.byCall, f.callID}, {x.bySession, f.session}} {
		if _, there := e.in[e.key]; !there && e.key != "" {
			e.in[e.key] = f
		}
	}
}

// completeDecision fills in what a recorded decision does not say.
func (x recordingIndex) completeDecision(f *fact, d events.Decision) {
	about := x.byEvent[d.EventID]
	if about == nil && d.Session != "" {
		about = x.bySession[f.session]
	}
	if about == nil {
		about = x.byCall[f.callID]
	}
	if about == nil {
		return
	}
	named := d.EventID != "" && d.EventID == about.eventID
	sameSource := d.Source == "" || named || rowOf(about.protocol).onePublisher || f.key.source == about.key.source
	sameSession := d.Session == "" || f.key.session == about.key.session
	if sameSource && sameSession {
		f.origin = about.origin
	}
	if d.ToolCallID == "" && named {
		f.callID, f.tool = about.callID, cmp.Or(f.tool, about.tool)
		f.setCallKey(about.callKey)
	}
}

// locateReply gives a reply the session of the event that it answers.
func (x recordingIndex) locateReply(f *fact) {
	if about := x.byEvent[f.eventID]; f.kind == kindAdmissionReply && about != nil {
		f.origin = about.origin
	}
}

// dropRetracted leaves out what was retracted.
func dropRetracted(outputs []Output) []events.Finding {
	var list []events.Finding
	withdrawn := map[string]bool{}
	for _, o := range outputs {
		if f := o.Finding; f != nil {
			list = append(list, *f)
			withdrawn[f.Retracts] = true
		}
	}
	delete(withdrawn, "")
	return slices.DeleteFunc(list, func(f events.Finding) bool { return f.Retracts != "" || withdrawn[f.FindingID] })
}
