// Package agenthook is the state machine of one AgentHook session (SPEC
// sections 3 to 10, AHP-007, AHP-012, AHP-013): order, model calls, attestation,
// approvals as events tell of them, governed calls and web evidence. It is fed a
// session's events in the order of the log and says which checks of the
// catalogue they break. Verdicts and executions are correlated elsewhere.
//
// It is pure: no clock, no randomness, and nothing depends on the order of a
// map. What a session remembers is bounded: see below, and Weight. What the
// bounds make it forget it does not judge.
package agenthook

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// Bounds of one session.
const (
	maxOpenModelCalls = 64
	maxWorkflows      = 64
	maxGoverned       = 256
	maxFingerprints   = 64
	maxWebIDs         = 256 // of each kind of web id
	maxResultSets     = 16  // result sets
	maxOutputs        = 64  // outputs that evidence can be used in
	maxFailModeFired  = 64  // calls with a fail mode that fired before they were announced
)

const attestSkew = 5 * time.Minute

// Session is the state of one session. The zero value is a session of which
// nothing was seen.
type Session struct {
	out []*catalogue.Finding `snapshot:"-"` // of one event

	hasEvents, ended       bool
	restored               bool // known from before it was forgotten
	startEvent, endEvent   eventRef
	lastTime               time.Time
	instance               string
	firstBoundary          eventRef // the first boundary at which it should have attested
	attestation            *attestation
	attestationEvent       eventRef
	firstCall              eventRef // the first call
	modelCalls             modelCalls
	workflows              fifoMap[*approvalWorkflow]
	governedCalls          fifoMap[*governedCall]
	failModeFired          fifoMap[eventRef] // by call: its fail mode fired before it was announced
	hookFingerprints       fifoMap[hookFingerprint]
	contract               *contract
	contractEvent          eventRef
	unreliableHooks        fifoMap[eventRef] // hook events with a hook that is not to be relied on
	seenHooks              hookSet
	listsHooks             bool
	webState               *webState
	outputEvents           fifoMap[struct{}] // events that tell of an output
	reportedUngated        bool              // said that calls do not wait though the session claims a gate
	reportedInstance       bool
	reportedRuntimeSession bool
	givenHints             map[string]bool
}

// eventRef is an event as evidence.
type eventRef struct {
	id  string
	seq uint64
}

func (x *Event) eventRef() eventRef { return eventRef{x.ID, x.Seq} }

// fifoMap is a map that forgets its oldest entries. Most sessions have nothing in
// most of theirs.
type fifoMap[V any] struct{ *fifoEntries[V] }

type fifoEntries[V any] struct {
	entries map[string]V
	order   []string
	dropped bool
}

func (t fifoMap[V]) find(k string) (v V, ok bool) {
	if t.fifoEntries != nil {
		v, ok = t.entries[k]
	}
	return v, ok
}

func (t fifoMap[V]) get(k string) V { v, _ := t.find(k); return v }

func (t fifoMap[V]) has(k string) bool { _, ok := t.find(k); return ok }

// keys are those of the entries, the oldest first.
func (t fifoMap[V]) keys() []string {
	if t.fifoEntries == nil {
		return nil
	}
	return t.order
}

func (t fifoMap[V]) len() int { return len(t.keys()) }

// hasForgotten tells whether entries have been forgotten.
func (t fifoMap[V]) hasForgotten() bool { return t.fifoEntries != nil && t.dropped }

func (t *fifoMap[V]) put(k string, v V, most int) {
	if t.fifoEntries == nil {
		t.fifoEntries = &fifoEntries[V]{entries: map[string]V{}}
	}
	if _, there := t.entries[k]; !there {
		if len(t.order) >= most {
			delete(t.entries, t.order[0])
			t.order = append(t.order[:0], t.order[1:]...)
			t.dropped = true
		}
		t.order = append(t.order, k)
	}
	t.entries[k] = v
}

// removeKey removes an entry and tells whether it was there.
func (t *fifoMap[V]) removeKey(k string) bool {
	if !t.has(k) {
		return false
	}
	delete(t.entries, k)
	t.order = slices.DeleteFunc(t.order, func(o string) bool { return o == k })
	return true
}

func (s *Session) addFinding(check, what string, proof ...eventRef) *catalogue.Finding {
	b := &catalogue.Finding{Check: check, Text: what}
	for _, p := range proof {
		if p.id != "" {
			b.Events = append(b.Events, p.id)
		}
		if p.seq != 0 {
			b.Seqs = append(b.Seqs, p.seq)
		}
	}
	s.out = append(s.out, b)
	return b
}

// ClaimsGate tells whether the session's attestation claims that calls do not get
// around its gate.
func (s *Session) ClaimsGate() bool {
	return s.attestation != nil && (s.attestation.claimsGate || s.attestation.claimsNoBypass)
}

// Apply takes the next event of the session and gives the violations that it
// proves, in order.
func (s *Session) Apply(x *Event) []*catalogue.Finding {
	s.out = nil
	s.reportEventFindings(x)
	s.checkOrder(x)
	s.noteHooks(x)
	s.checkIdentity(x)
	s.checkAttestation(x)
	s.noteOutput(x)
	switch x.Type {
	case agenthook.PreLLMCall:
		s.announceModelCall(x)
	case agenthook.PostLLMCall:
		s.reportModelCall(x)
	case agenthook.ErrorOccurred:
		s.handleError(x)
	case agenthook.PreToolUse:
		s.announceCall(x)
	case agenthook.PostToolUse:
		s.endCall(x)
	case agenthook.RuntimeContractLoaded:
		if s.firstCall != (eventRef{}) {
			s.addFinding("AH-C-132", "it came after the call", s.firstCall, x.eventRef())
		}
	case agenthook.SessionEnd:
		s.endSession(x)
	}
	s.trackApproval(x)
	s.checkHookTrust(x)
	s.checkRequiredHooks(x)
	if x.webBlock != nil {
		s.handleWebEvent(x)
	}
	return s.out
}

// ApplyAmended takes another copy of an event that was applied, which differs in what
// it says of verdict and approval.
func (s *Session) ApplyAmended(x *Event) {
	if g := s.governedCalls.get(x.CallID); g != nil && x.verdict != "" {
		g.markStamped()
	}
	if x.AnnouncesWebAction() && x.verdict != "" && s.webState != nil {
		if a, known := s.webState.actions.find(x.webBlock.actionID); known {
			a.verdict = x.verdict
			s.webState.actions.put(x.webBlock.actionID, a, maxWebIDs)
		}
	}
}

// EventFindings reports what is wrong with an event of no session.
func EventFindings(x *Event) []*catalogue.Finding {
	s := Session{}
	s.reportEventFindings(x)
	return s.out
}

// reportEventFindings reports the checks that an event fails by itself; hints once a session.
func (s *Session) reportEventFindings(x *Event) {
	for _, f := range x.eventFindings {
		if f.hint && s.givenHints[f.check] || x.partlyExposed && f.check == "AH-C-031" {
			continue
		}
		b := s.addFinding(f.check, f.text, x.eventRef())
		b.Call = x.CallID
		if b.Case = f.text; f.hint {
			if s.givenHints == nil {
				s.givenHints = map[string]bool{}
			}
			s.givenHints[f.check] = true
			b.Severity = events.SeverityInfo
		}
	}
}

// checkOrder checks that a session's events lie between its start and its end, and
// that its time does not run backwards (CONFORMANCE, Bronze).
func (s *Session) checkOrder(x *Event) {
	switch {
	case s.ended && x.Type == agenthook.SessionStart:
		*s = Session{out: s.out, hasEvents: true, givenHints: s.givenHints} // the id is used again
		s.startEvent = x.eventRef()
	case s.ended:
		s.addFinding("AH-C-056", "it came after the end", s.endEvent, x.eventRef())
	case x.Type == agenthook.SessionStart && s.hasEvents && !s.restored:
		s.addFinding("AH-C-056", "the start did not come first", s.startEvent, x.eventRef())
	case !s.hasEvents:
		s.startEvent = x.eventRef()
	}
	// A runtime may load its contract before it has a session to speak of.
	s.hasEvents = s.hasEvents || x.Type != agenthook.RuntimeContractLoaded
	if x.Time.IsZero() {
		return
	}
	if x.Time.Before(s.lastTime) {
		s.addFinding("AH-C-054", "", x.eventRef())
	}
	s.lastTime = x.Time
}

func (s *Session) checkIdentity(x *Event) {
	if x.runtimeSession != "" && x.runtimeSession != x.Session && !s.reportedRuntimeSession {
		s.reportedRuntimeSession = true
		s.addFinding("AH-C-055", "the runtime names another session", x.eventRef()).Case = "session"
	}
	for _, id := range x.instances {
		if s.instance == "" {
			s.instance = id
		}
		if s.instance != id && !s.reportedInstance {
			s.reportedInstance = true
			s.addFinding("AH-C-055", "another instance takes part", x.eventRef()).Case = "instance"
		}
	}
}

// endSession takes the end of the session.
func (s *Session) endSession(x *Event) {
	s.reportUnendedModelCalls(x)
	for _, call := range s.governedCalls.keys() {
		s.reportUnstamped(s.governedCalls.get(call), x.eventRef())
	}
	s.checkUnseenHooks(x)
	s.ended, s.endEvent = true, x.eventRef()
}

// StoredItems is how many things the session remembers, each of at most about 1 KB
// and usually of 100 bytes.
func (s *Session) StoredItems() int {
	n := 1 + len(s.modelCalls.openCalls) + len(s.modelCalls.unendedFindings) + s.workflows.len() + s.governedCalls.len() + s.failModeFired.len() + s.unreliableHooks.len() + s.hookFingerprints.len() + s.outputEvents.len()
	if w := s.webState; w != nil {
		n += w.webEvents.len() + w.searches.len() + maxResults*w.resultSets.len() + w.evidence.len() +
			w.actions.len() + w.contentHashes.len() + w.missingItems()
	}
	return n
}

// Tombstone is what is kept of a session that is forgotten otherwise.
type Tombstone uint8

const (
	tombstoneKnown Tombstone = 1 << iota
	tombstoneEnded
)

// Tombstone gives what to keep of the session.
func (s *Session) Tombstone() Tombstone {
	if s.ended {
		return tombstoneKnown | tombstoneEnded
	}
	return tombstoneKnown
}

// Restore makes a session of what was kept of it; of zero, a new one.
func Restore(m Tombstone) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{hasEvents: true, restored: true, ended: m&tombstoneEnded != 0}
}
