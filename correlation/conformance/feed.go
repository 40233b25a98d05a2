package conformance

import (
	"cmp"
	"encoding/json"

	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	reading "github.com/countersign-dev/countersign/correlation/internal/recorded"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// AddMessage takes a message of the log: a producer's event, the copy of a request,
// a decision, a finding, or a change of the tenant's switches. The rest, and what
// is another tenant's, it leaves alone. Bodies may be redacted.
func (t *Tally) AddMessage(space subject.Space, tenant string, m events.LogMessage) {
	p, err := space.Parse(m.Subject)
	switch {
	case err != nil:
	case p.Class == subject.Control && p.Kind == events.ControlRules:
		if c, err := events.DecodeRecord[events.RulesChange](m.Body); err == nil && c.Tenant == tenant {
			t.applyRulesChange(c)
		}
	case p.Tenant != tenant:
	case p.Class == subject.Events && p.Type == subject.TypeRequest:
		t.AddRequest(p.Protocol, p.Publisher, cmp.Or(m.HeaderValue(events.HeaderSession), p.Session), m.Body)
	case p.Class == subject.Events:
		body := m.Body
		if ce, err := cloudevents.Decode(m.Header, m.Body); err == nil && ce.Data != nil {
			body = ce.Data
		}
		t.AddEvent(p.Protocol, p.Publisher, p.Session, body)
	case p.Class == subject.Decisions:
		if d, err := events.DecodeRecord[events.Decision](m.Body); err == nil {
			t.AddDecision(d)
		}
	case p.Class == subject.Findings:
		if f, err := events.DecodeRecord[events.Finding](m.Body); err == nil {
			t.AddFinding(f)
		}
	}
}

func (t *Tally) applyRulesChange(c events.RulesChange) {
	for rule, mode := range c.Rules {
		if mode == events.RuleOff {
			t.MarkRuleOff(rule)
		}
	}
}

// TallyRecording folds a recorded session, as correlation.ParseRecording splits it,
// and what correlation.Check found in it.
func TallyRecording(protocol string, lines []json.RawMessage, found []events.Finding) *Tally {
	t := New()
	index := reading.Index[profile.Key]{}
	var later []json.RawMessage
	row := protocols[protocol]
	for _, raw := range lines {
		one := reading.Read(protocol, raw)
		line := one.Event
		if line == nil {
			continue
		}
		if isAnswer(line) || row.IsLate != nil && row.IsLate(line) {
			later = append(later, line)
			continue
		}
		t.AddEvent(protocol, one.Publisher, "", line)
		if row.Identify == nil {
			continue
		}
		if id, ok := row.Identify(line); ok {
			index.Add(id.Event, id.Session, id.Call, profile.Key{Source: cmp.Or(one.Publisher, id.Source), Session: id.Session})
		}
	}
	producer := t.lateProducer(protocol, later)
	for _, line := range later {
		if isAnswer(line) {
			t.addAnswer(protocol, index, line)
		} else {
			t.AddEvent(protocol, producer, "", line)
		}
	}
	t.addRecordedFindings(protocol, found)
	return t
}

// addRecordedFindings takes those of a recording. Replies say nothing of whom they are to:
// what is found of them is about the recording's publisher, if it has one only.
func (t *Tally) addRecordedFindings(protocol string, found []events.Finding) {
	publishers := t.Publishers(protocol)
	for _, f := range found {
		if f.Source == "" && len(publishers) == 1 {
			f.Source = publishers[0].Publisher
		} else if f.Source == "" {
			t.sessionsOf(protocol).Of(profile.Key{Session: f.Session})
		}
		t.AddFinding(f)
	}
}

// isAnswer tells decisions and replies from events.
func isAnswer(line []byte) bool {
	var shape struct {
		Decision  any `json:"decision"`
		EventType any `json:"event_type"`
		Type      any `json:"type"`
	}
	err := strictjson.Unmarshal(line, &shape)
	return err == nil && shape.Decision != nil && shape.EventType == nil && shape.Type == nil
}

// lateProducer is the producer that a recording's late messages are about, as not all of them name
// it: the only publisher of events or, without any, the one that a late message names.
func (t *Tally) lateProducer(protocol string, late []json.RawMessage) string {
	if list := t.Publishers(protocol); len(list) > 0 {
		if len(list) == 1 {
			return list[0].Publisher
		}
		return ""
	}
	row := protocols[protocol]
	if row.LateProducer == nil {
		return ""
	}
	for _, line := range late {
		if producer, named := row.LateProducer(line); named {
			return producer
		}
	}
	return ""
}

func (t *Tally) addAnswer(protocol string, index reading.Index[profile.Key], line []byte) {
	var box struct {
		Decision events.Decision `json:"decision"`
	}
	if err := strictjson.Unmarshal(line, &box); err == nil {
		d := box.Decision
		d.Protocol = cmp.Or(d.Protocol, protocol)
		at, _ := index.Lookup(events.NormaliseID(d.EventID), d.Session, d.ToolCallID)
		d.Source, d.Session = cmp.Or(d.Source, at.Source), cmp.Or(d.Session, at.Session)
		t.AddDecision(d)
		return
	}
	row := protocols[protocol]
	if row.ReadReply == nil {
		return
	}
	if event, f, ok := row.ReadReply(line); ok {
		at, _ := index.Lookup(event, "", "")
		t.sessionsOf(protocol).Of(profile.KeyOf(at.Source, at.Session)).AddFacets(f)
	}
}
