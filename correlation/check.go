package correlation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/recorded"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// ErrProtocol is the error for a protocol without recordings.
var ErrProtocol = errors.New("recordings can be checked in the protocols aaep and agenthook")

// CheckOptions configure Check.
type CheckOptions struct {
	// Now is the time up to which time passes after the recording; zero stops time at its last
	// event. Deadlines up to Now fire. Every event was received by Now: an AAEP event of a
	// later time is from the future (AAEP-C-067); without Now, no event is. An event without a
	// time, before any event with one, is treated as very old.
	Now time.Time
	// MissingAfter as in Options.
	MissingAfter time.Duration
	// Rules as in Options; the tenant is empty.
	Rules func(tenant, rule string) RuleMode
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
	if row.ReadRecorded == nil {
		return nil, fmt.Errorf("%w, not %.20q", ErrProtocol, protocol)
	}
	r := &recordedSession{protocol: protocol, index: recorded.Index[*fact.Fact]{}}
	for i, raw := range recording {
		if line := recorded.Read(protocol, raw); line.Event != nil {
			r.lines = append(r.lines, r.read(uint64(i)+1, line, row))
		}
	}
	opts := Options{RequireVerdict: r.decisions, MissingAfter: o.MissingAfter, Rules: o.Rules, ClockSkew: -1}
	m := newEngine(engineOptions{Options: opts, fromRecording: true, recordedUntil: o.Now})
	r.play(m)
	if !o.Now.IsZero() {
		m.advanceTimers(o.Now)
	}
	return dropRetracted(m.findings.pending()), nil
}

// recordedSession is a parsed recording.
type recordedSession struct {
	protocol  string
	lines     []fact.RecordedLine
	index     recorded.Index[*fact.Fact]
	decisions bool // at least one line is a decision
}

func (r *recordedSession) read(seq uint64, one recorded.Line, row *protocolRow) fact.RecordedLine {
	raw := one.Event
	f := &fact.Fact{Seq: seq, Protocol: r.protocol, Origin: fact.OriginOf("", "", ""), ContentSum: fact.SumOfBytes(raw)}
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		f.ReadRefusedNumber(raw, &row.Protocol)
		return fact.RecordedLine{Fact: f, Err: err, Unreadable: true}
	}
	if _, is := tree["decision"].(map[string]any); is {
		r.decisions = true
		return readDecision(f, raw)
	}
	line := row.ReadRecorded(f, raw)
	if one.Publisher != "" && !row.onePublisher {
		f.Key.Source, f.Source = subject.Escape(one.Publisher), fact.BoundID(one.Publisher)
	}
	if f.Kind != fact.KindAdmissionReply {
		r.index.Add(f.EventID, f.Session, f.CallID, f)
	}
	return line
}

func readDecision(f *fact.Fact, raw []byte) fact.RecordedLine {
	f.Kind = fact.KindDecision
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
		return fact.RecordedLine{Fact: f, Defect: "a field has the wrong type"}
	}
	f.DecisionRef = more.Decision.Approval.DecisionRef
	return fact.RecordedLine{Fact: f, Decision: &box.Decision, Time: box.Decision.DecidedAt.Time}
}

// play passes the lines to the engine.
func (r *recordedSession) play(e *engine) {
	for _, l := range r.lines {
		if !l.Time.IsZero() {
			e.timers.StartAt(l.Time)
			break
		}
	}
	for _, l := range r.lines {
		e.advanceTimers(l.Time)
		f := l.Fact
		f.At = e.timers.Now()
		switch {
		case l.Defect != "":
			e.findings.reportRule(ruleForged, nil, f, findingFrom().withContent(f.ContentSum).withCase(caseUndecodable).withText(l.Defect))
		case l.Decision != nil:
			r.decide(e, f, *l.Decision)
		case l.Unreadable:
			e.reportUnreadable(f, l.Err)
		default:
			if f.Kind != fact.KindAdmissionReply {
				if what := fact.EventDefect(f, l.Err, l.Violations); what != "" {
					e.findings.reportInvalid(f, what)
				}
			}
			r.locateReply(f)
			e.processFact(f)
		}
		e.calls.compactCalls()
	}
}

func (r *recordedSession) decide(e *engine, f *fact.Fact, d events.Decision) {
	d.Tenant, d.EventID = "", events.NormaliseID(d.EventID)
	d.Protocol = cmp.Or(d.Protocol, r.protocol)
	fact.ReadDecision(f, new(fact.RecordedVerdict), &d, readingOf)
	f.Decision.ApprovalRef = f.DecisionRef
	if rowOf(d.Protocol).onePublisher {
		f.Key.Source = ""
	}
	r.completeDecision(f, d)
	if !d.Verdict.Valid() {
		e.findings.reportRule(ruleForged, nil, f, findingFrom(d.EventID).withContent(f.ContentSum).withCase(caseVerdict))
		return
	}
	e.processFact(f)
}

// completeDecision adds to a recorded decision what it does not say itself.
func (r *recordedSession) completeDecision(f *fact.Fact, d events.Decision) {
	about, known := r.index.Lookup(d.EventID, f.Session, f.CallID)
	if !known {
		return
	}
	named := d.EventID != "" && d.EventID == about.EventID
	sameSource := d.Source == "" || named || rowOf(about.Protocol).onePublisher || f.Key.Source == about.Key.Source
	sameSession := d.Session == "" || f.Key.Session == about.Key.Session
	if sameSource && sameSession {
		f.Origin = about.Origin
	}
	if d.ToolCallID == "" && named {
		f.CallID, f.Tool = about.CallID, cmp.Or(f.Tool, about.Tool)
		f.SetCallKey(about.CallKey)
	}
}

// locateReply sets the session of a reply to that of the event that it answers.
func (r *recordedSession) locateReply(f *fact.Fact) {
	if about, known := r.index.Lookup(f.EventID, "", ""); known && f.Kind == fact.KindAdmissionReply {
		f.Origin = about.Origin
	}
}

// dropRetracted removes retracted findings and their retractions.
func dropRetracted(outputs []Output) []events.Finding {
	var list []events.Finding
	retracted := map[string]bool{}
	for _, o := range outputs {
		if f := o.Finding; f != nil {
			list = append(list, *f)
			retracted[f.Retracts] = true
		}
	}
	delete(retracted, "")
	return slices.DeleteFunc(list, func(f events.Finding) bool { return f.Retracts != "" || retracted[f.FindingID] })
}

// MaxRecording bounds the events of a recording.
const MaxRecording = 1 << 20

// ErrRecording is the error for a file that is neither a JSON array of events nor JSON Lines
// with an event on each line.
var ErrRecording = errors.New("not a recording: want a JSON array of events or one event a line")

// ParseRecording splits a recording into events. It does not look into a line of JSON Lines: a
// line that is not JSON is an event that cannot be decoded, and becomes a finding. An array
// must be valid JSON. Empty lines are ignored. The results share memory with b.
func ParseRecording(b []byte) ([]json.RawMessage, error) {
	trimmed := bytes.TrimLeft(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), " \t\r\n")
	var list []json.RawMessage
	var err error
	switch {
	case len(trimmed) > 0 && trimmed[0] == '[':
		list, err = splitValues(trimmed, true)
	case isOneEventPerLine(trimmed):
		list = splitLines(trimmed)
	default:
		if list, err = splitValues(trimmed, false); err != nil {
			list, err = splitLines(trimmed), nil
		}
	}
	if err == nil && len(list) > MaxRecording {
		err = fmt.Errorf("%w: more than %d events", ErrRecording, MaxRecording)
	}
	return list, err
}

// isOneEventPerLine reports whether every line begins like an event. Otherwise an event may
// take several lines.
func isOneEventPerLine(b []byte) bool {
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '{' {
			return false
		}
	}
	return true
}

func splitLines(b []byte) []json.RawMessage {
	var list []json.RawMessage
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			list = append(list, json.RawMessage(line))
		}
	}
	return list
}

// splitValues splits an array, or a sequence of values. The reader of an event rejects
// duplicate keys.
func splitValues(b []byte, array bool) ([]json.RawMessage, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if array {
		if _, err := dec.ReadToken(); err != nil {
			return nil, ErrRecording
		}
	}
	var list []json.RawMessage
	for !array || dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if errors.Is(err, io.EOF) && !array {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: broken after %d events, near byte %d", ErrRecording, len(list), dec.InputOffset())
		}
		list = append(list, json.RawMessage(bytes.Clone(v)))
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, ErrRecording
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the array", ErrRecording)
	}
	return list, nil
}
