package hooksession

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// A web event that follows from something of which nobody has told breaks a check.
// If that is told of later, though it was there in time by its producer's clock, it
// was only overtaken on the way, and what was found is taken back. What was done
// afterwards is none of that: then the finding stands.

// maxLacks bounds what a session remembers of such findings; the oldest is
// forgotten.
const maxLacks = 64

// thing is what a web event can follow from.
type thing uint8

const (
	parentEvent thing = iota
	search
	resultSet
	action
	evidence
	outputEvent
)

// lack is something that a web event needed and nobody had told of.
type lack struct {
	thing thing
	ids   []string // all of them are needed
	by    ref
	at    time.Time // when the event that needed it was made
	pick  pick      // of a result set
	said  *catalogue.Breach
}

// lacks remembers what a finding rests on. Without ids and times of its events
// nothing can take it back.
func (s *Session) lacks(x *Event, said *catalogue.Breach, what thing, ids ...string) {
	if x.Time.IsZero() || len(said.Events) == 0 {
		return
	}
	st := s.webState
	if len(st.lacks) >= maxLacks {
		st.lacks = append(st.lacks[:0], st.lacks[1:]...)
	}
	st.lacks = append(st.lacks, &lack{what, ids, x.ref(), x.Time, x.web.pick, said})
}

// tells takes back what was found because nobody had told of something that the
// event tells of. Nothing follows from itself.
func (s *Session) tells(x *Event, what thing, id string) {
	st := s.webState
	st.lacks = slices.DeleteFunc(st.lacks, func(l *lack) bool {
		late := x.Time.IsZero() || x.Time.After(l.at) && what != outputEvent // an output may be told of behind what it cites
		if l.thing != what || l.by.id == x.ID || late || !slices.Contains(l.ids, id) {
			return false
		}
		l.ids = slices.DeleteFunc(l.ids, func(known string) bool { return known == id })
		if len(l.ids) > 0 {
			return false
		}
		b := s.breach(l.said.Check, "what it follows from had been overtaken", l.by, x.ref())
		b.Withdraws, b.Retracts = l.said, true
		s.judgeLate(l, id)
		return true
	})
}

// judgeLate makes the checks that could not be made before.
func (s *Session) judgeLate(l *lack, id string) {
	switch l.thing {
	case resultSet:
		s.picked(l.pick, s.webState.sets.get(id), l.by)
	case action:
		s.wentOn(s.webState.actions.get(id), l.by)
	}
}

// lackWeight is how many things the lacks are.
func (st *webState) lackWeight() int {
	n := len(st.lacks)
	for _, l := range st.lacks {
		n += len(l.ids)
	}
	return n
}
