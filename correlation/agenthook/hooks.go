package agenthook

import (
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/agenthook"
)

// hookFingerprint is what a hook was when the session last told of it.
type hookFingerprint struct {
	fingerprint string // of its fingerprint
	trusted     bool
}

// IntroducedHook is a hook that calls itself trusted with a fingerprint with which it had not
// done so in the session.
type IntroducedHook struct {
	Hook, Fingerprint string
	// Unexpected says that neither its event nor the session before it tells which
	// fingerprint it should have.
	Unexpected bool
}

// IntroducedHooks are the hooks that the event introduced when it was applied.
func (x *Event) IntroducedHooks() []IntroducedHook { return x.introducedHooks }

// checkHookTrust compares what a hook is with what it should be (AHP-008).
func (s *Session) checkHookTrust(x *Event) {
	for _, h := range x.hooks {
		before := s.hookFingerprints.get(h.id)
		observed := strings.ToLower(firstNonEmpty(h.observedFingerprint, h.fingerprint)) // hexadecimal digits, in either case
		expected := firstNonEmpty(strings.ToLower(h.expectedFingerprint), before.fingerprint)
		now := hookFingerprint{observed, h.status == "trusted"}
		if now.trusted && observed != "" && expected != "" && observed != expected {
			s.addFinding("AH-C-129", "", x.eventRef()).Case = h.id
		}
		if observed == "" || h.id == "" {
			continue
		}
		if now.trusted && now != before {
			x.introducedHooks = append(x.introducedHooks, IntroducedHook{h.id, observed, expected == "" && !s.hookFingerprints.hasForgotten() && !s.restored})
		}
		s.hookFingerprints.put(h.id, now, maxFingerprints)
	}
}

// hooksIn are the hooks that metadata tells of, wherever it does so (H-32 of the
// digest), and whether it lists those of a runtime.
func hooksIn(metadata map[string]any) (list []hookTrust, whole bool) {
	for _, block := range [...]string{"managed_runtime", "runtime_attestation"} {
		if b, ok := metadata[block].(map[string]any); ok {
			list = append(list, readHookTrust(b["hooks"])...)
		}
	}
	whole = len(list) > 0
	_, many := metadata["hook_trust"].([]any)
	return append(list, readHookTrust(metadata["hook_trust"])...), whole || many
}

// TrustsAllHooks tells whether an event names hooks and calls all of them trusted.
func TrustsAllHooks(e *agenthook.Event) bool {
	if !e.HasMetadata() {
		return false
	}
	list, _ := hooksIn(e.Metadata)
	for _, h := range list {
		if h.status != "trusted" {
			return false
		}
	}
	return len(list) > 0
}

// checkRequiredHooks: a hook that the contract requires is not to be relied on, and the
// runtime would go on without it (SPEC 9, AHP-009). Which came first is no matter.
func (s *Session) checkRequiredHooks(x *Event) {
	if x.contract != nil {
		s.contract, s.contractEvent = x.contract, x.eventRef()
		for _, hook := range s.unreliableHooks.keys() {
			s.reportUnreliableHook(hook, s.unreliableHooks.get(hook), x)
		}
	}
	for _, h := range x.hooks {
		if distrustedStatuses[h.status] && h.hookEvent != "" {
			s.unreliableHooks.put(boundID(h.hookEvent), x.eventRef(), maxFingerprints)
			s.reportUnreliableHook(boundID(h.hookEvent), s.contractEvent, x)
		}
	}
}

func (s *Session) reportUnreliableHook(hook string, other eventRef, x *Event) {
	if c := s.contract; c != nil && c.requiredHooks[hook] && !c.failsClosed && s.unreliableHooks.has(hook) {
		s.addFinding("AH-C-130", "", other, x.eventRef()).Case = hook
	}
}

// hookSet are hooks by the events that they send.
type hookSet uint16

// hookBits are the events for which a contract can require hooks: those of SPEC 2. What
// ends a session satisfies Stop, which is none of them (H-21 of the digest).
var hookBits = func() map[string]hookSet {
	bits := map[string]hookSet{}
	for i, name := range [...]string{
		agenthook.PreToolUse, agenthook.PostToolUse, agenthook.UserPromptSubmit, agenthook.PreLLMCall, agenthook.PostLLMCall,
		agenthook.ModelResponse, agenthook.SessionStart, agenthook.SessionEnd, agenthook.AgentHandoff, agenthook.ErrorOccurred,
	} {
		bits[name] = 1 << i
	}
	return bits
}()

// hookOccasions are what shows that a hook had something to tell of: for what it comes
// before, the end of that.
var hookOccasions = map[string]string{
	agenthook.PreToolUse: agenthook.PostToolUse, agenthook.PreLLMCall: agenthook.PostLLMCall, agenthook.SessionStart: agenthook.SessionEnd,
}

// NoteCallRequested notes that the copy of a request of a call is on the log.
func (s *Session) NoteCallRequested() { s.NoteRequested(agenthook.PreToolUse) }

// NoteRequested notes that the hook of an event asked for admission: the copy of its
// request is not the event, but shows that the hook was there.
func (s *Session) NoteRequested(eventType string) { s.seenHooks |= hookBits[eventType] }

// noteHooks notes the hooks that an event is of or tells of.
func (s *Session) noteHooks(x *Event) {
	s.seenHooks |= hookBits[x.Type]
	for _, h := range x.hooks {
		s.seenHooks |= hookBits[h.hookEvent]
	}
	s.listsHooks = s.listsHooks || x.listsHooks
}

// checkUnseenHooks: a hook that the contract requires was never there (AHP-009). That no
// event came from it shows that only where there was something to tell of; or else
// it is not among the hooks that the session lists.
func (s *Session) checkUnseenHooks(x *Event) {
	if s.contract == nil || s.restored {
		return
	}
	for _, hook := range slices.Sorted(maps.Keys(s.contract.requiredHooks)) {
		bit := hookBits[hook]
		if bit != 0 && s.seenHooks&bit == 0 && (s.listsHooks || s.seenHooks&hookBits[hookOccasions[hook]] != 0) {
			s.addFinding("AH-C-132", "a hook that it requires was never seen", s.contractEvent, x.eventRef()).Case = hook
		}
	}
}
