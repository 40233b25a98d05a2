package agenthook

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// webEvidence checks the web evidence that a session's outputs use (AHP-012). Each map has its
// own bound. webState is nil until the first web event, because most sessions have none.
type webEvidence struct {
	incomplete   bool              // earlier events of the session are forgotten
	outputEvents fifoMap[struct{}] // events that report an output
	*webState
}

// webState is what a session's web events have reported.
type webState struct {
	webEvents     fifoMap[struct{}]
	searches      fifoMap[struct{}]
	resultSets    fifoMap[*webBlock]
	evidence      fifoMap[struct{}]
	actions       fifoMap[webAction]
	contentHashes fifoMap[string]
	missing       missingPrerequisites
	profileEvent  eventRef // the first event of a type of the profile
}

// profileTypes are the types of the web-evidence profile.
var profileTypes = wordSet(agenthook.WebSearchRequested, agenthook.WebSearchResultsReturned, agenthook.WebResultSelected, agenthook.WebPageRead,
	agenthook.WebActionRequested, agenthook.WebActionCompleted, agenthook.EvidenceUsedInOutput)

// checkTypes reports a publisher's own type for web activity beside the profile's types. It is
// a hint, because AgentHook may add types.
func (st *webState) checkTypes(out *findingList, x *Event) {
	switch {
	case profileTypes[x.Type]:
		if st.profileEvent == (eventRef{}) {
			st.profileEvent = x.eventRef()
		}
	case st.profileEvent != (eventRef{}) && !agenthook.IsKnownType(x.Type) && strings.HasPrefix(x.Type, "Web"):
		found := out.add("AH-C-140", "a type of its own", st.profileEvent, x.eventRef())
		found.Severity = events.SeverityInfo
	}
}

// webAction is a requested web action.
type webAction struct {
	event   eventRef
	gated   bool
	verdict string
}

// AnnouncesWebAction reports whether the event announces a web action.
func (x *Event) AnnouncesWebAction() bool {
	return x.Type == agenthook.WebActionRequested && x.webBlock != nil
}

// SetRecordedVerdict sets the recorded verdict on the event, which takes precedence over the
// event's claim. It MUST be called before the event is applied.
func (x *Event) SetRecordedVerdict(verdict string) { x.verdict = verdict }

// handle applies an event with a web block.
func (e *webEvidence) handle(out *findingList, x *Event) {
	if e.webState == nil {
		e.webState = &webState{}
	}
	w := x.webBlock
	e.checkTypes(out, x)
	if w.parentEventID != "" && !e.webEvents.has(w.parentEventID) && !e.outputEvents.has(w.parentEventID) && !e.webEvents.hasForgotten() && !e.incomplete {
		found := out.add("AH-C-141", "its parent is not known", x.eventRef())
		found.Case = "parent"
		e.missing.add(x, found, needsParentEvent, w.parentEventID)
	}
	switch x.Type {
	case agenthook.WebSearchRequested:
		e.searches.put(w.searchID, struct{}{}, maxWebIDs)
		e.satisfy(out, x, needsSearch, w.searchID)
	case agenthook.WebSearchResultsReturned:
		e.handleSearchResults(out, x, w)
	case agenthook.WebResultSelected:
		e.handleSelection(out, x, w)
	case agenthook.WebPageRead:
		if w.url == "" && w.resultID == "" {
			out.add("AH-C-141", "a page was read that is not named", x.eventRef()).Case = "page"
		}
	case agenthook.WebActionRequested:
		e.actions.put(w.actionID, webAction{x.eventRef(), x.phase == agenthook.PhasePreCommit, x.verdict}, maxWebIDs)
		e.satisfy(out, x, needsAction, w.actionID)
	case agenthook.WebActionCompleted:
		e.completeWebAction(out, x, w)
	case agenthook.EvidenceUsedInOutput:
		e.checkUsedEvidence(out, x, w)
	}
	e.checkContentHashes(out, x, w)
	if w.evidenceID != "" && x.Type != agenthook.EvidenceUsedInOutput {
		e.evidence.put(w.evidenceID, struct{}{}, maxWebIDs)
		e.satisfy(out, x, needsEvidence, w.evidenceID)
	}
	if x.ID != "" {
		e.webEvents.put(x.ID, struct{}{}, maxWebIDs)
		e.satisfy(out, x, needsParentEvent, x.ID)
	}
}

func (e *webEvidence) handleSearchResults(out *findingList, x *Event, w *webBlock) {
	if !e.searches.has(w.searchID) && !e.searches.hasForgotten() && !e.incomplete {
		found := out.add("AH-C-141", "the runtime had not requested the search", x.eventRef())
		found.Case = "search"
		e.missing.add(x, found, needsSearch, w.searchID)
	}
	if w.resultSetID != "" {
		e.resultSets.put(w.resultSetID, w, maxResultSets)
		e.satisfy(out, x, needsResultSet, w.resultSetID)
	}
}

func (e *webEvidence) handleSelection(out *findingList, x *Event, w *webBlock) {
	set, known := e.resultSets.find(w.resultSetID)
	switch {
	case e.incomplete || (!known && e.resultSets.hasForgotten()):
	case !known:
		found := out.add("AH-C-141", "the result set is not known", x.eventRef())
		found.Case = "set"
		e.missing.add(x, found, needsResultSet, w.resultSetID)
	default:
		checkSelection(out, w.selectedResult, set, x.eventRef())
	}
}

// checkSelection compares a selected result with its result set.
func checkSelection(out *findingList, p selectedResult, set *webBlock, by eventRef) {
	if !set.hasResults {
		return
	}
	rank, there := set.results[p.resultID]
	if !there {
		out.add("AH-C-141", "the result is not in its set", by).Case = "result"
	} else if p.hasRank && rank != 0 && rank != p.rank {
		out.add("AH-C-141", "the result has another rank", by).Case = "rank"
	}
}

func (e *webEvidence) completeWebAction(out *findingList, x *Event, w *webBlock) {
	a, known := e.actions.find(w.actionID)
	switch {
	case e.incomplete || (!known && e.actions.hasForgotten()):
	case !known:
		e.missing.add(x, out.add("AH-C-142", "", x.eventRef()), needsAction, w.actionID)
	default:
		checkWebVerdict(out, a, x.eventRef())
	}
}

// checkWebVerdict checks the verdict of a completed action.
func checkWebVerdict(out *findingList, a webAction, by eventRef) {
	if a.gated && a.verdict != "allow" {
		out.add("AH-C-145", "", a.event, by)
	}
}

// noteOutput records an event that reports an output, which can use evidence.
func (e *webEvidence) noteOutput(out *findingList, x *Event) {
	if x.ID == "" || x.Type != agenthook.ModelResponse && x.Type != agenthook.PostLLMCall {
		return
	}
	e.outputEvents.put(x.ID, struct{}{}, maxOutputs)
	if e.webState != nil {
		e.satisfy(out, x, needsOutputEvent, x.ID)
		e.satisfy(out, x, needsParentEvent, x.ID)
	}
}

// checkOutputLink reports evidence that is used in an unknown output (AH-C-143). The event
// names the output by the id of the event that reports it: as its parent, or as its
// correlation id.
func (e *webEvidence) checkOutputLink(out *findingList, x *Event, w *webBlock) {
	if e.incomplete || e.outputEvents.has(w.parentEventID) || e.outputEvents.has(x.correlation) {
		return
	}
	named := w.parentEventID
	if named == "" || e.webEvents.has(named) {
		named = x.correlation
	}
	switch {
	case named == "":
		out.add("AH-C-143", "it is linked to no output", x.eventRef()).Case = "output"
	case !e.outputEvents.hasForgotten():
		found := out.add("AH-C-143", "the output that it is linked to is not known", x.eventRef())
		found.Case = "output"
		e.missing.add(x, found, needsOutputEvent, named)
	}
}

func (e *webEvidence) checkUsedEvidence(out *findingList, x *Event, w *webBlock) {
	e.checkOutputLink(out, x, w)
	if e.evidence.hasForgotten() || e.incomplete {
		return
	}
	unknown := slices.DeleteFunc(append(slices.Clone(w.usedEvidence), w.evidenceID), func(id string) bool { return id == "" || e.evidence.has(id) })
	if len(unknown) > 0 {
		e.missing.add(x, out.add("AH-C-143", "", x.eventRef()), needsEvidence, unknown...)
	}
}

func (e *webEvidence) checkContentHashes(out *findingList, x *Event, w *webBlock) {
	for _, c := range w.contentHashes {
		reference, hash := c[0], c[1]
		if hash == "" {
			continue
		}
		if !sha256Pattern.MatchString(hash) {
			out.add("AH-C-144", "a hash is none", x.eventRef()).Case = "form"
			continue
		}
		if reference == "" {
			continue
		}
		if known, there := e.contentHashes.find(reference); there && !strings.EqualFold(known, hash) {
			out.add("AH-C-144", "one content has two hashes", x.eventRef()).Case = "differs"
		}
		e.contentHashes.put(reference, hash, maxWebIDs)
	}
}

// satisfy retracts the findings that x satisfies, and makes the checks that had to wait.
func (e *webEvidence) satisfy(out *findingList, x *Event, kind prerequisiteKind, id string) {
	e.missing.satisfy(out, x, kind, id, e.judgeSatisfied)
}

func (e *webEvidence) judgeSatisfied(out *findingList, m *missingPrerequisite, id string) {
	switch m.kind {
	case needsResultSet:
		checkSelection(out, m.selectedResult, e.resultSets.get(id), m.event)
	case needsAction:
		checkWebVerdict(out, e.actions.get(id), m.event)
	}
}

// noteAmended applies another copy of an event that announced a web action, with the verdict.
func (e *webEvidence) noteAmended(x *Event) {
	if !x.AnnouncesWebAction() || x.verdict == "" || e.webState == nil {
		return
	}
	if a, known := e.actions.find(x.webBlock.actionID); known {
		a.verdict = x.verdict
		e.actions.put(x.webBlock.actionID, a, maxWebIDs)
	}
}

// noteDecided sets the recorded verdict on an action that was announced before it was decided.
func (e *webEvidence) noteDecided(eventID, verdict string) {
	if e.webState == nil {
		return
	}
	for _, id := range e.actions.keys() {
		if a := e.actions.get(id); a.event.id == eventID {
			a.verdict = verdict
			e.actions.put(id, a, maxWebIDs)
		}
	}
}

func (e *webEvidence) storedItems() int {
	if e.webState == nil {
		return e.outputEvents.len()
	}
	return e.outputEvents.len() + e.webEvents.len() + e.searches.len() + maxResults*e.resultSets.len() + e.evidence.len() +
		e.actions.len() + e.contentHashes.len() + e.missing.storedItems()
}
