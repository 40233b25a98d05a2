package agenthook

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// hookFingerprint is the last state of a hook that the session reported.
type hookFingerprint struct {
	fingerprint string // as observed
	trusted     bool
}

// hookClaims are what a session's events say of its hooks, and what its contract requires
// (SPEC 9, AHP-008, AHP-009). Fingerprints and unreliable hooks are bounded by maxFingerprints
// each.
type hookClaims struct {
	incomplete    bool // earlier events of the session are forgotten
	listed        bool // an event listed all hooks of the runtime
	seen          hookSet
	fingerprints  fifoMap[hookFingerprint]
	contract      *contract
	contractEvent eventRef
	unreliable    fifoMap[eventRef] // unreliable hooks, by hook event
}

// IntroducedHook is a hook that calls itself trusted, with a fingerprint that is new in the
// session.
type IntroducedHook struct {
	Hook, Fingerprint string
	// Unexpected says that no event of the session named the expected fingerprint.
	Unexpected bool
}

// IntroducedHooks are the hooks that the event introduced when it was applied.
func (x *Event) IntroducedHooks() []IntroducedHook { return x.introducedHooks }

// checkTrust compares the observed fingerprint of a hook with the expected one (AHP-008).
func (hc *hookClaims) checkTrust(out *findingList, x *Event) {
	for _, h := range x.hooks {
		before := hc.fingerprints.get(h.id)
		observed := strings.ToLower(cmp.Or(h.observedFingerprint, h.fingerprint)) // hexadecimal digits, in either case
		expected := cmp.Or(strings.ToLower(h.expectedFingerprint), before.fingerprint)
		now := hookFingerprint{observed, h.status == "trusted"}
		if now.trusted && observed != "" && expected != "" && observed != expected {
			out.add("AH-C-129", "", x.eventRef()).Case = h.id
		}
		if observed == "" || h.id == "" {
			continue
		}
		if now.trusted && now != before {
			x.introducedHooks = append(x.introducedHooks, IntroducedHook{h.id, observed, expected == "" && !hc.fingerprints.hasForgotten() && !hc.incomplete})
		}
		hc.fingerprints.put(h.id, now, maxFingerprints)
	}
}

// hooksIn are the hooks that metadata tells of, wherever it does so (H-32 of the
// digest), and whether it lists those of a runtime.
func hooksIn(metadata strictjson.Value) (list []hookTrust, whole bool) {
	for _, block := range [...]string{"managed_runtime", "runtime_attestation"} {
		list = append(list, readHookTrust(metadata.Get(block).Get("hooks"))...)
	}
	trust := metadata.Get("hook_trust")
	return append(list, readHookTrust(trust)...), len(list) > 0 || trust.Kind() == strictjson.KindArray
}

// TrustsAllHooks reports whether an event names hooks and calls all of them trusted.
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

// checkRequired reports an unreliable hook that the contract requires, if the runtime would
// continue without it (SPEC 9, AHP-009). Contract and hook come in either order.
func (hc *hookClaims) checkRequired(out *findingList, x *Event) {
	if x.contract != nil {
		hc.contract, hc.contractEvent = x.contract, x.eventRef()
		for _, hook := range hc.unreliable.keys() {
			hc.reportUnreliable(out, hook, hc.unreliable.get(hook), x)
		}
	}
	for _, h := range x.hooks {
		if distrustedStatuses[h.status] && h.hookEvent != "" {
			hc.unreliable.put(fact.BoundID(h.hookEvent), x.eventRef(), maxFingerprints)
			hc.reportUnreliable(out, fact.BoundID(h.hookEvent), hc.contractEvent, x)
		}
	}
}

func (hc *hookClaims) reportUnreliable(out *findingList, hook string, other eventRef, x *Event) {
	if c := hc.contract; c != nil && c.requiredHooks[hook] && !c.failsClosed && hc.unreliable.has(hook) {
		out.add("AH-C-130", "", other, x.eventRef()).Case = hook
	}
}

// hookSet is a set of hooks, by their events.
type hookSet uint16

// hookBits are the events for which a contract can require hooks: those of SPEC 2. The end of
// a session satisfies Stop, which is not among them (H-21 of the digest).
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

// hookOccasions are the events that show that a hook should have sent an event. For a hook
// that precedes something, it is the end of that.
var hookOccasions = map[string]string{
	agenthook.PreToolUse: agenthook.PostToolUse, agenthook.PreLLMCall: agenthook.PostLLMCall, agenthook.SessionStart: agenthook.SessionEnd,
}

// noteRequested records that an event's hook asked for admission.
func (hc *hookClaims) noteRequested(eventType string) { hc.seen |= hookBits[eventType] }

// noteSeen records the hooks that an event is from, or names.
func (hc *hookClaims) noteSeen(x *Event) {
	hc.seen |= hookBits[x.Type]
	for _, h := range x.hooks {
		hc.seen |= hookBits[h.hookEvent]
	}
	hc.listed = hc.listed || x.listsHooks
}

// checkUnseen reports, at the session's end x, a hook that the contract requires and that was
// absent (AHP-009). A hook without an event was absent if its occasion came, or if the
// session's list lacks it.
func (hc *hookClaims) checkUnseen(out *findingList, x *Event) {
	if hc.contract == nil || hc.incomplete {
		return
	}
	for _, hook := range slices.Sorted(maps.Keys(hc.contract.requiredHooks)) {
		bit := hookBits[hook]
		if bit != 0 && hc.seen&bit == 0 && (hc.listed || hc.seen&hookBits[hookOccasions[hook]] != 0) {
			out.add("AH-C-132", "a hook that it requires was never seen", hc.contractEvent, x.eventRef()).Case = hook
		}
	}
}

// failsClosed reports whether the contract says that nothing runs without a verdict, and in
// which event.
func (hc *hookClaims) failsClosed() (eventRef, bool) {
	return hc.contractEvent, hc.contract != nil && hc.contract.failsClosed
}

// statesFailMode reports whether the contract says what happens without a verdict.
func (hc *hookClaims) statesFailMode() bool { return hc.contract != nil && hc.contract.statesFailMode }

func (hc *hookClaims) storedItems() int { return hc.fingerprints.len() + hc.unreliable.len() }
