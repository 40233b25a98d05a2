package agenthook

import "github.com/countersign-dev/countersign/correlation/catalogue"

// modelCalls are the model calls of a session (SPEC 5).
type modelCalls struct {
	announced       bool                 // at least one of them was
	openCalls       []eventRef           // the oldest first
	unendedFindings []*catalogue.Finding // what was found of those that were open when the session ended
}

func (s *Session) announceModelCall(x *Event) {
	m := &s.modelCalls
	m.announced = true
	if len(m.openCalls) >= maxOpenModelCalls {
		m.openCalls = append(m.openCalls[:0], m.openCalls[1:]...)
	}
	m.openCalls = append(m.openCalls, x.eventRef())
}

// reportModelCall ends a model call. A session that never announces its model calls
// does not claim to pair them.
func (s *Session) reportModelCall(x *Event) {
	if !s.endModelCall(x) && s.modelCalls.announced && !s.restored {
		s.addFinding("AH-C-057", "the runtime had not announced it", x.eventRef())
	}
}

// endModelCall ends the oldest model call that has no end yet, and tells whether there
// was one.
func (s *Session) endModelCall(x *Event) bool {
	m := &s.modelCalls
	switch {
	case len(m.openCalls) > 0:
		m.openCalls = m.openCalls[1:]
	case len(m.unendedFindings) > 0:
		b := s.addFinding("AH-C-057", "its end came after that of the session", x.eventRef())
		b.Replaces, b.RetractsOnly = m.unendedFindings[0], true
		m.unendedFindings = m.unendedFindings[1:]
	default:
		return false
	}
	return true
}

// reportUnendedModelCalls takes the end of the session. Ends of model calls that come later were
// overtaken by it: that they did stays a finding (AH-C-056), and no other.
func (s *Session) reportUnendedModelCalls(x *Event) {
	m := &s.modelCalls
	for _, open := range m.openCalls {
		if b := s.addFinding("AH-C-057", "it never ended", open, x.eventRef()); len(b.Events) > 0 && len(m.unendedFindings) < maxOpenModelCalls {
			m.unendedFindings = append(m.unendedFindings, b)
		}
	}
	m.openCalls = nil
}
