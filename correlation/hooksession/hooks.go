package hooksession

import (
	"strings"

	"github.com/countersign-dev/countersign/events/agenthook"
)

// hookPrint is what a hook was when the session last told of it.
type hookPrint struct {
	text    string // of its fingerprint
	trusted bool
}

// Met is a hook that calls itself trusted with a fingerprint with which it had not
// done so in the session.
type Met struct {
	Hook, Print string
	// Unexpected says that neither its event nor the session before it tells which
	// fingerprint it should have.
	Unexpected bool
}

// Met are the hooks that the event introduced when it was applied.
func (x *Event) Met() []Met { return x.met }

// trust compares what a hook is with what it should be (AHP-008).
func (s *Session) trust(x *Event) {
	for _, h := range x.hooks {
		before := s.prints.get(h.id)
		observed := strings.ToLower(first(h.observedPrint, h.fingerprint)) // hexadecimal digits, in either case
		expected := first(strings.ToLower(h.expectedPrint), before.text)
		now := hookPrint{observed, h.status == "trusted"}
		if now.trusted && observed != "" && expected != "" && observed != expected {
			s.breach("AH-C-129", "", x.ref()).Case = h.id
		}
		if observed == "" || h.id == "" {
			continue
		}
		if now.trusted && now != before {
			x.met = append(x.met, Met{h.id, observed, expected == "" && !s.prints.lost() && !s.restored})
		}
		s.prints.put(h.id, now, maxPrints)
	}
}

// hooksIn are the hooks that metadata tells of, wherever it does so (H-32 of the
// digest).
func hooksIn(metadata map[string]any) []hookTrust {
	var list []hookTrust
	for _, block := range [...]string{"managed_runtime", "runtime_attestation"} {
		if b, ok := metadata[block].(map[string]any); ok {
			list = append(list, trusts(b["hooks"])...)
		}
	}
	return append(list, trusts(metadata["hook_trust"])...)
}

// Trusting tells whether an event names hooks and calls all of them trusted.
func Trusting(e *agenthook.Event) bool {
	if !e.HasMetadata() {
		return false
	}
	list := hooksIn(e.Metadata)
	for _, h := range list {
		if h.status != "trusted" {
			return false
		}
	}
	return len(list) > 0
}

// required: a hook that the contract requires is not to be relied on, and the
// runtime would go on without it (SPEC 9, AHP-009). Which came first is no matter.
func (s *Session) required(x *Event) {
	if x.needs != nil {
		s.contract, s.contracted = x.needs, x.ref()
		for _, hook := range s.unreliable.keys() {
			s.relies(hook, s.unreliable.get(hook), x)
		}
	}
	for _, h := range x.hooks {
		if distrusted[h.status] && h.event != "" {
			s.unreliable.put(bounded(h.event), x.ref(), maxPrints)
			s.relies(bounded(h.event), s.contracted, x)
		}
	}
}

func (s *Session) relies(hook string, other ref, x *Event) {
	if c := s.contract; c != nil && c.required[hook] && !c.closed && s.unreliable.has(hook) {
		s.breach("AH-C-130", "", other, x.ref()).Case = hook
	}
}
