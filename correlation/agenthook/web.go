package agenthook

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// webState is what a session's web events have told so far (AHP-012).
type webState struct {
	webEvents     fifoMap[struct{}]
	searches      fifoMap[struct{}]
	resultSets    fifoMap[*webBlock]
	evidence      fifoMap[struct{}]
	actions       fifoMap[webAction]
	contentHashes fifoMap[string]
	missing       []*missingPrerequisite
	profileEvent  eventRef // the first event of the profile's own types
}

// profileTypes are the events of the web-evidence profile.
var profileTypes = wordSet(agenthook.WebSearchRequested, agenthook.WebSearchResultsReturned, agenthook.WebResultSelected, agenthook.WebPageRead,
	agenthook.WebActionRequested, agenthook.WebActionCompleted, agenthook.EvidenceUsedInOutput)

// checkWebTypes: a publisher that uses the profile's types names no others for web activity. AgentHook
// may come to name more, so it is a hint.
func (s *Session) checkWebTypes(x *Event) {
	st := s.webState
	switch {
	case profileTypes[x.Type]:
		if st.profileEvent == (eventRef{}) {
			st.profileEvent = x.eventRef()
		}
	case st.profileEvent != (eventRef{}) && !agenthook.IsKnownType(x.Type) && strings.HasPrefix(x.Type, "Web"):
		b := s.addFinding("AH-C-140", "a type of its own", st.profileEvent, x.eventRef())
		b.Severity = events.SeverityInfo
	}
}

// webAction is a web action that was requested.
type webAction struct {
	event   eventRef
	gated   bool
	verdict string
}

// AnnouncesWebAction tells whether the event announces a web action.
func (x *Event) AnnouncesWebAction() bool {
	return x.Type == agenthook.WebActionRequested && x.webBlock != nil
}

// SetRecordedVerdict takes the recorded verdict on the event; it counts, whatever the event
// says of it. It is to be set before the event is applied.
func (x *Event) SetRecordedVerdict(verdict string) { x.verdict = verdict }

func (s *Session) handleWebEvent(x *Event) {
	if s.webState == nil {
		s.webState = &webState{}
	}
	w, st := x.webBlock, s.webState
	s.checkWebTypes(x)
	if w.parentEventID != "" && !st.webEvents.has(w.parentEventID) && !s.outputEvents.has(w.parentEventID) && !st.webEvents.hasForgotten() && !s.restored {
		b := s.addFinding("AH-C-141", "its parent is not known", x.eventRef())
		b.Case = "parent"
		s.addMissing(x, b, needsParentEvent, w.parentEventID)
	}
	switch x.Type {
	case agenthook.WebSearchRequested:
		st.searches.put(w.searchID, struct{}{}, maxWebIDs)
		s.satisfyMissing(x, needsSearch, w.searchID)
	case agenthook.WebSearchResultsReturned:
		s.handleSearchResults(x, w)
	case agenthook.WebResultSelected:
		s.handleSelection(x, w)
	case agenthook.WebPageRead:
		if w.url == "" && w.resultID == "" {
			s.addFinding("AH-C-141", "a page was read that is not named", x.eventRef()).Case = "page"
		}
	case agenthook.WebActionRequested:
		st.actions.put(w.actionID, webAction{x.eventRef(), x.phase == agenthook.PhasePreCommit, x.verdict}, maxWebIDs)
		s.satisfyMissing(x, needsAction, w.actionID)
	case agenthook.WebActionCompleted:
		s.completeWebAction(x, w)
	case agenthook.EvidenceUsedInOutput:
		s.checkUsedEvidence(x, w)
	}
	s.checkContentHashes(x, w)
	if w.evidenceID != "" && x.Type != agenthook.EvidenceUsedInOutput {
		st.evidence.put(w.evidenceID, struct{}{}, maxWebIDs)
		s.satisfyMissing(x, needsEvidence, w.evidenceID)
	}
	if x.ID != "" {
		st.webEvents.put(x.ID, struct{}{}, maxWebIDs)
		s.satisfyMissing(x, needsParentEvent, x.ID)
	}
}

func (s *Session) handleSearchResults(x *Event, w *webBlock) {
	st := s.webState
	if !st.searches.has(w.searchID) && !st.searches.hasForgotten() && !s.restored {
		b := s.addFinding("AH-C-141", "the runtime had not requested the search", x.eventRef())
		b.Case = "search"
		s.addMissing(x, b, needsSearch, w.searchID)
	}
	if w.resultSetID != "" {
		st.resultSets.put(w.resultSetID, w, maxResultSets)
		s.satisfyMissing(x, needsResultSet, w.resultSetID)
	}
}

func (s *Session) handleSelection(x *Event, w *webBlock) {
	set, known := s.webState.resultSets.find(w.resultSetID)
	switch {
	case s.restored || (!known && s.webState.resultSets.hasForgotten()):
	case !known:
		b := s.addFinding("AH-C-141", "the result set is not known", x.eventRef())
		b.Case = "set"
		s.addMissing(x, b, needsResultSet, w.resultSetID)
	default:
		s.checkSelection(w.selectedResult, set, x.eventRef())
	}
}

// checkSelection holds what was selected against the set that it is from.
func (s *Session) checkSelection(p selectedResult, set *webBlock, by eventRef) {
	if !set.hasResults {
		return
	}
	rank, there := set.results[p.resultID]
	if !there {
		s.addFinding("AH-C-141", "the result is not in its set", by).Case = "result"
	} else if p.hasRank && rank != 0 && rank != p.rank {
		s.addFinding("AH-C-141", "the result has another rank", by).Case = "rank"
	}
}

func (s *Session) completeWebAction(x *Event, w *webBlock) {
	a, known := s.webState.actions.find(w.actionID)
	switch {
	case s.restored || (!known && s.webState.actions.hasForgotten()):
	case !known:
		s.addMissing(x, s.addFinding("AH-C-142", "", x.eventRef()), needsAction, w.actionID)
	default:
		s.checkWebVerdict(a, x.eventRef())
	}
}

// checkWebVerdict judges an action that was completed.
func (s *Session) checkWebVerdict(a webAction, by eventRef) {
	if a.gated && a.verdict != "allow" {
		s.addFinding("AH-C-145", "", a.event, by)
	}
}

// noteOutput notes an event that tells of an output: evidence can be used in it.
func (s *Session) noteOutput(x *Event) {
	if x.ID == "" || x.Type != agenthook.ModelResponse && x.Type != agenthook.PostLLMCall {
		return
	}
	s.outputEvents.put(x.ID, struct{}{}, maxOutputs)
	if s.webState != nil {
		s.satisfyMissing(x, needsOutputEvent, x.ID)
		s.satisfyMissing(x, needsParentEvent, x.ID)
	}
}

// checkOutputLink: evidence is used in an output, which the event names by the id of the
// event that tells of it: as its parent or in its correlation id (AH-C-143).
func (s *Session) checkOutputLink(x *Event, w *webBlock) {
	if s.restored || s.outputEvents.has(w.parentEventID) || s.outputEvents.has(x.correlation) {
		return
	}
	named := w.parentEventID
	if named == "" || s.webState.webEvents.has(named) {
		named = x.correlation
	}
	switch {
	case named == "":
		s.addFinding("AH-C-143", "it is linked to no output", x.eventRef()).Case = "output"
	case !s.outputEvents.hasForgotten():
		b := s.addFinding("AH-C-143", "the output that it is linked to is not known", x.eventRef())
		b.Case = "output"
		s.addMissing(x, b, needsOutputEvent, named)
	}
}

func (s *Session) checkUsedEvidence(x *Event, w *webBlock) {
	s.checkOutputLink(x, w)
	st := s.webState
	if st.evidence.hasForgotten() || s.restored {
		return
	}
	unknown := slices.DeleteFunc(append(slices.Clone(w.usedEvidence), w.evidenceID), func(id string) bool { return id == "" || st.evidence.has(id) })
	if len(unknown) > 0 {
		s.addMissing(x, s.addFinding("AH-C-143", "", x.eventRef()), needsEvidence, unknown...)
	}
}

func (s *Session) checkContentHashes(x *Event, w *webBlock) {
	for _, c := range w.contentHashes {
		reference, hash := c[0], c[1]
		if hash == "" {
			continue
		}
		if !sha256Pattern.MatchString(hash) {
			s.addFinding("AH-C-144", "a hash is none", x.eventRef()).Case = "form"
			continue
		}
		if reference == "" {
			continue
		}
		if known, there := s.webState.contentHashes.find(reference); there && !strings.EqualFold(known, hash) {
			s.addFinding("AH-C-144", "one content has two hashes", x.eventRef()).Case = "differs"
		}
		s.webState.contentHashes.put(reference, hash, maxWebIDs)
	}
}
