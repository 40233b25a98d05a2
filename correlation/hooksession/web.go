package hooksession

import (
	"slices"
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
	lacks    []*lack
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
	if w.parent != "" && !st.events.has(w.parent) && !s.outputs.has(w.parent) && !st.events.lost() && !s.restored {
		b := s.breach("AH-C-141", "its parent is not known", x.ref())
		b.Case = "parent"
		s.lacks(x, b, parentEvent, w.parent)
	}
	switch x.Type {
	case agenthook.WebSearchRequested:
		st.searches.put(w.search, struct{}{}, maxWeb)
		s.tells(x, search, w.search)
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
		s.tells(x, action, w.action)
	case agenthook.WebActionCompleted:
		s.webCompleted(x, w)
	case agenthook.EvidenceUsedInOutput:
		s.used(x, w)
	}
	s.contents(x, w)
	if w.evidence != "" && x.Type != agenthook.EvidenceUsedInOutput {
		st.evidence.put(w.evidence, struct{}{}, maxWeb)
		s.tells(x, evidence, w.evidence)
	}
	if x.ID != "" {
		st.events.put(x.ID, struct{}{}, maxWeb)
		s.tells(x, parentEvent, x.ID)
	}
}

func (s *Session) results(x *Event, w *web) {
	st := s.webState
	if !st.searches.has(w.search) && !st.searches.lost() && !s.restored {
		b := s.breach("AH-C-141", "nobody had requested the search", x.ref())
		b.Case = "search"
		s.lacks(x, b, search, w.search)
	}
	if w.set != "" {
		st.sets.put(w.set, w, maxSets)
		s.tells(x, resultSet, w.set)
	}
}

func (s *Session) selected(x *Event, w *web) {
	set, known := s.webState.sets.find(w.set)
	switch {
	case s.restored || (!known && s.webState.sets.lost()):
	case !known:
		b := s.breach("AH-C-141", "the result set is not known", x.ref())
		b.Case = "set"
		s.lacks(x, b, resultSet, w.set)
	default:
		s.picked(w.pick, set, x.ref())
	}
}

// picked holds what was selected against the set that it is from.
func (s *Session) picked(p pick, set *web, by ref) {
	if !set.hasResults {
		return
	}
	rank, there := set.results[p.selected]
	if !there {
		s.breach("AH-C-141", "the result is not in its set", by).Case = "result"
	} else if p.ranked && rank != 0 && rank != p.rank {
		s.breach("AH-C-141", "the result has another rank", by).Case = "rank"
	}
}

func (s *Session) webCompleted(x *Event, w *web) {
	a, known := s.webState.actions.find(w.action)
	switch {
	case s.restored || (!known && s.webState.actions.lost()):
	case !known:
		s.lacks(x, s.breach("AH-C-142", "", x.ref()), action, w.action)
	default:
		s.wentOn(a, x.ref())
	}
}

// wentOn judges an action that was completed.
func (s *Session) wentOn(a webAction, by ref) {
	if a.gated && a.verdict != "allow" {
		s.breach("AH-C-145", "", a.ref, by)
	}
}

// output notes an event that tells of an output: evidence can be used in it.
func (s *Session) output(x *Event) {
	if x.ID == "" || x.Type != agenthook.ModelResponse && x.Type != agenthook.PostLLMCall {
		return
	}
	s.outputs.put(x.ID, struct{}{}, maxOutputs)
	if s.webState != nil {
		s.tells(x, outputEvent, x.ID)
		s.tells(x, parentEvent, x.ID)
	}
}

// linked: evidence is used in an output, which the event names by the id of the
// event that tells of it: as its parent or in its correlation id (AH-C-143).
func (s *Session) linked(x *Event, w *web) {
	if s.restored || s.outputs.has(w.parent) || s.outputs.has(x.correlation) {
		return
	}
	named := w.parent
	if named == "" || s.webState.events.has(named) {
		named = x.correlation
	}
	switch {
	case named == "":
		s.breach("AH-C-143", "it is linked to no output", x.ref()).Case = "output"
	case !s.outputs.lost():
		b := s.breach("AH-C-143", "the output that it is linked to is not known", x.ref())
		b.Case = "output"
		s.lacks(x, b, outputEvent, named)
	}
}

func (s *Session) used(x *Event, w *web) {
	s.linked(x, w)
	st := s.webState
	if st.evidence.lost() || s.restored {
		return
	}
	unknown := slices.DeleteFunc(append(slices.Clone(w.uses), w.evidence), func(id string) bool { return id == "" || st.evidence.has(id) })
	if len(unknown) > 0 {
		s.lacks(x, s.breach("AH-C-143", "", x.ref()), evidence, unknown...)
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
		if known, there := s.webState.hashes.find(reference); there && !strings.EqualFold(known, hash) {
			s.breach("AH-C-144", "one content has two hashes", x.ref()).Case = "differs"
		}
		s.webState.hashes.put(reference, hash, maxWeb)
	}
}
