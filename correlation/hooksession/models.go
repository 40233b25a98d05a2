package hooksession

import "github.com/countersign-dev/countersign/correlation/catalogue"

// models are the model calls of a session (SPEC 5).
type models struct {
	announced bool                // at least one of them was
	open      []ref               // the oldest first
	unended   []*catalogue.Breach // what was found of those that were open when the session ended
}

func (s *Session) preLLM(x *Event) {
	m := &s.models
	m.announced = true
	if len(m.open) >= maxOpenLLM {
		m.open = append(m.open[:0], m.open[1:]...)
	}
	m.open = append(m.open, x.ref())
}

// postLLM ends a model call. A session that never announces its model calls
// does not claim to pair them.
func (s *Session) postLLM(x *Event) {
	if !s.endLLM(x) && s.models.announced && !s.restored {
		s.breach("AH-C-057", "nobody had announced it", x.ref())
	}
}

// endLLM ends the oldest model call that has no end yet, and tells whether there
// was one.
func (s *Session) endLLM(x *Event) bool {
	m := &s.models
	switch {
	case len(m.open) > 0:
		m.open = m.open[1:]
	case len(m.unended) > 0:
		b := s.breach("AH-C-057", "its end came after that of the session", x.ref())
		b.Withdraws, b.Retracts = m.unended[0], true
		m.unended = m.unended[1:]
	default:
		return false
	}
	return true
}

// finishLLM takes the end of the session. Ends of model calls that come later were
// overtaken by it: that they did stays a finding (AH-C-056), and no other.
func (s *Session) finishLLM(x *Event) {
	m := &s.models
	for _, open := range m.open {
		if b := s.breach("AH-C-057", "it never ended", open, x.ref()); len(b.Events) > 0 && len(m.unended) < maxOpenLLM {
			m.unended = append(m.unended, b)
		}
	}
	m.open = nil
}
