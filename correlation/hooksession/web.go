package hooksession

import (
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// webState is what a session's web events have told so far (AHP-012).
type webState struct {
	events   table[struct{}]
	searches table[struct{}]
	sets     table[*web]
	evidence table[struct{}]
	actions  table[webAction]
	hashes   table[string]
	profiled ref // the first event of the profile's own types
}

// profileTypes are the events of the web-evidence profile.
var profileTypes = words(agenthook.WebSearchRequested, agenthook.WebSearchResultsReturned, agenthook.WebResultSelected, agenthook.WebPageRead,
	agenthook.WebActionRequested, agenthook.WebActionCompleted, agenthook.EvidenceUsedInOutput)

// named: who uses the profile's types names no others for web activity. AgentHook
// may come to name more, so it is a hint.
func (s *Session) named(x *Event) {
	st := s.webState
	switch {
	case profileTypes[x.Type]:
		if st.profiled == (ref{}) {
			st.profiled = x.ref()
		}
	case st.profiled != (ref{}) && !agenthook.Known(x.Type) && strings.HasPrefix(x.Type, "Web"):
		b := s.breach("AH-C-140", "a type of its own", st.profiled, x.ref())
		b.Severity = events.SeverityInfo
	}
}

// webAction is a web action that was requested.
type webAction struct {
	ref     ref
	gated   bool
	verdict string
}

// AsksForWeb tells whether the event announces a web action.
func (x *Event) AsksForWeb() bool { return x.Type == agenthook.WebActionRequested && x.web != nil }

// Admitted takes the recorded verdict on the event; it counts, whatever the event
// says of it. It is to be set before the event is applied.
func (x *Event) Admitted(verdict string) { x.verdict = verdict }

func (s *Session) browse(x *Event) {
	if s.webState == nil {
		s.webState = &webState{}
	}
	w, st := x.web, s.webState
	s.named(x)
	if w.parent != "" && !st.events.has(w.parent) && !st.events.lost() && !s.restored {
		s.breach("AH-C-141", "its parent is not known", x.ref()).Case = "parent"
	}
	switch x.Type {
	case agenthook.WebSearchRequested:
		st.searches.put(w.search, struct{}{}, maxWeb)
	case agenthook.WebSearchResultsReturned:
		s.results(x, w)
	case agenthook.WebResultSelected:
		s.selected(x, w)
	case agenthook.WebPageRead:
		if w.url == "" && w.selected == "" {
			s.breach("AH-C-141", "a page was read that is not named", x.ref()).Case = "page"
		}
	case agenthook.WebActionRequested:
		st.actions.put(w.action, webAction{x.ref(), x.phase == agenthook.PhasePreCommit, x.verdict}, maxWeb)
	case agenthook.WebActionCompleted:
		s.webCompleted(x, w)
	case agenthook.EvidenceUsedInOutput:
		s.used(x, w)
	}
	s.contents(x, w)
	if w.evidence != "" && x.Type != agenthook.EvidenceUsedInOutput {
		st.evidence.put(w.evidence, struct{}{}, maxWeb)
	}
	if x.ID != "" {
		st.events.put(x.ID, struct{}{}, maxWeb)
	}
}

func (s *Session) results(x *Event, w *web) {
	st := s.webState
	if !st.searches.has(w.search) && !st.searches.lost() && !s.restored {
		s.breach("AH-C-141", "nobody had requested the search", x.ref()).Case = "search"
	}
	if w.set != "" {
		st.sets.put(w.set, w, maxSets)
	}
}

func (s *Session) selected(x *Event, w *web) {
	set, known := s.webState.sets.find(w.set)
	switch {
	case s.restored || (!known && s.webState.sets.lost()):
	case !known:
		s.breach("AH-C-141", "the result set is not known", x.ref()).Case = "set"
	case set.hasResults:
		rank, there := set.results[w.selected]
		if !there {
			s.breach("AH-C-141", "the result is not in its set", x.ref()).Case = "result"
		} else if w.ranked && rank != 0 && rank != w.rank {
			s.breach("AH-C-141", "the result has another rank", x.ref()).Case = "rank"
		}
	}
}

func (s *Session) webCompleted(x *Event, w *web) {
	a, known := s.webState.actions.find(w.action)
	switch {
	case s.restored || (!known && s.webState.actions.lost()):
	case !known:
		s.breach("AH-C-142", "", x.ref())
	case a.gated && a.verdict != "allow":
		s.breach("AH-C-145", "", a.ref, x.ref())
	}
}

func (s *Session) used(x *Event, w *web) {
	st := s.webState
	for _, id := range append(w.uses, w.evidence) {
		if id != "" && !st.evidence.has(id) && !st.evidence.lost() && !s.restored {
			s.breach("AH-C-143", "", x.ref())
			return
		}
	}
}

func (s *Session) contents(x *Event, w *web) {
	for _, c := range w.contents {
		reference, hash := c[0], c[1]
		if hash == "" {
			continue
		}
		if !sha256Text.MatchString(hash) {
			s.breach("AH-C-144", "a hash is none", x.ref()).Case = "form"
			continue
		}
		if reference == "" {
			continue
		}
		if known, there := s.webState.hashes.find(reference); there && known != hash {
			s.breach("AH-C-144", "one content has two hashes", x.ref()).Case = "differs"
		}
		s.webState.hashes.put(reference, hash, maxWeb)
	}
}
