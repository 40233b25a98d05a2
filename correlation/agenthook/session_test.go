package agenthook

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func event(t testing.TB, n int, typ, metadata string) *Event {
	t.Helper()
	raw := fmt.Sprintf(`{"event_type":"%s","event_id":"00000000-0000-4000-8000-%012d","session_id":"s1","metadata":{%s}}`, typ, n, metadata)
	e, err := agenthook.Decode([]byte(raw), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return NewEvent(e)
}

// TestBounds: whatever a session does, it is remembered within its bounds, and
// what was forgotten is not held against it.
func TestBounds(t *testing.T) {
	s := &Session{}
	for i := range 1000 {
		s.Apply(event(t, i, "PreLLMCall", ""))
		s.Apply(event(t, i, "PreToolUse", fmt.Sprintf(`"tool_call_id":"c%d","tool_identity":{},"validation":{"status":"failed"},"approval":{"required":true,"status":"pending","workflow_id":"w%d"}`, i, i)))
		s.Apply(event(t, i, "SessionStart", fmt.Sprintf(`"hook_trust":{"hook_id":"h%d","fingerprint":"f"}`, i)))
		s.Apply(event(t, i, "WebSearchRequested", fmt.Sprintf(`"web":{"search_id":"q%d","evidence_id":"e%d","content_ref":"c%d","content_hash":"sha256:%064d"}`, i, i, i, i)))
		s.Apply(event(t, i, "WebSearchResultsReturned", fmt.Sprintf(`"web":{"search_id":"q%d","result_set_id":"r%d"}`, i, i)))
		s.Apply(event(t, i, "ModelResponse", ""))
		s.NoteDecidedEvent(fmt.Sprint("d", i), events.Allow)
		s.Apply(event(t, i, "WebActionRequested", fmt.Sprintf(`"web":{"action_id":"a%d"}`, i)))
	}
	for i := range 1000 { // behind all the others, so that nothing of theirs is excused
		s.Apply(event(t, i, "ErrorOccurred", fmt.Sprintf(`"tool_call_id":"x%d","error_type":"admission_fail_mode","fail_mode_triggered":true,"outcome":"deny"`, i)))
		s.Apply(event(t, i, "SessionStart", fmt.Sprintf(`"hook_trust":{"hook_id":"h999","hook_event":"E%d","trust_status":"modified"}`, i)))
	}
	most := maxFailModeFired + maxFingerprints + 1 + maxOpenModelCalls + maxWorkflows + 2*maxGoverned + maxFingerprints + 5*maxWebIDs + maxDecided + maxResults*maxResultSets + maxOutputs
	if w := s.StoredItems(); w != most {
		t.Errorf("it remembers %d things, want %d", w, most)
	}
	for _, forgotten := range []*Event{
		event(t, 2000, "WebResultSelected", `"web":{"result_set_id":"r1","selected_result_id":"x"}`),
		event(t, 2001, "WebActionCompleted", `"web":{"action_id":"a1"}`),
		event(t, 2002, "EvidenceUsedInOutput", `"web":{"evidence_ids":["e1"],"parent_event_id":"m1"}`),
	} {
		if found := s.Apply(forgotten); len(found) > 0 {
			t.Errorf("%s: %+v", forgotten.Type, found[0])
		}
	}
}

// TestRestore: a session that was forgotten is known to have been there.
func TestRestore(t *testing.T) {
	s := &Session{}
	s.Apply(event(t, 1, "SessionStart", ""))
	if found := Restore(s.Tombstone()).Apply(event(t, 2, "WebActionCompleted", `"web":{"action_id":"a1"}`)); len(found) > 0 {
		t.Errorf("what was forgotten is held against it: %+v", found[0])
	}
	s.Apply(event(t, 3, "SessionEnd", ""))
	if found := Restore(s.Tombstone()).Apply(event(t, 4, "ModelResponse", "")); len(found) != 1 || found[0].Check != "AH-C-056" {
		t.Errorf("its end is forgotten: %+v", found)
	}
}

// TestUnendedBounds: of model calls that were open at the ends of a session so many
// are remembered as may be open.
func TestUnendedBounds(t *testing.T) {
	s := &Session{}
	for i := range 300 {
		s.Apply(event(t, i, "PreLLMCall", ""))
		if i%100 == 99 {
			s.Apply(event(t, 1000+i, "SessionEnd", ""))
		}
	}
	if w := s.StoredItems(); w != 1+maxOpenModelCalls {
		t.Errorf("it remembers %d things, want %d", w, 1+maxOpenModelCalls)
	}
}

// TestLacksBounds: of findings that a late event could take back so many are
// remembered, and the latest are taken back.
func TestLacksBounds(t *testing.T) {
	s, at := &Session{}, time.Unix(1, 0)
	timed := func(n int, typ, metadata string) *Event {
		e := event(t, n, typ, metadata)
		e.Time = at
		return e
	}
	for i := range 1000 {
		s.Apply(timed(i, "EvidenceUsedInOutput", fmt.Sprintf(`"web":{"evidence_ids":["e%d","f%d"]}`, i, i)))
	}
	if w, most := s.StoredItems(), 1+maxWebIDs+3*maxPrerequisites; w != most {
		t.Errorf("it remembers %d things, want %d", w, most)
	}
	for i := range 1000 {
		s.Apply(timed(1000+i, "WebPageRead", fmt.Sprintf(`"web":{"url":"u","evidence_id":"e%d"}`, i)))
	}
	back := 0
	for i := range 1000 {
		for _, found := range s.Apply(timed(2000+i, "WebPageRead", fmt.Sprintf(`"web":{"url":"u","evidence_id":"f%d"}`, i))) {
			if back++; found.Replaces == nil || !found.RetractsOnly {
				t.Errorf("%+v", found)
			}
		}
	}
	if back != maxPrerequisites || s.web.missing.storedItems() != 0 {
		t.Errorf("%d are taken back, want %d; %d things are left", back, maxPrerequisites, s.web.missing.storedItems())
	}
}

// TestSessionSize: a session that remembers nothing yet is small. Most sessions are like it, and a
// correlator keeps many.
func TestSessionSize(t *testing.T) {
	if size := unsafe.Sizeof(Session{}); size > 384 {
		t.Errorf("a session takes %d bytes", size)
	}
}
