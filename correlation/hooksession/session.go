// Package hooksession is the state machine of one AgentHook session (SPEC
// sections 3 to 10, AHP-007, AHP-012, AHP-013): order, model calls, attestation,
// approvals as events tell of them, governed calls and web evidence. It is fed a
// session's events in the order of the log and says which checks of the
// catalogue they break. Verdicts and executions are correlated elsewhere.
//
// It is pure: no clock, no randomness, and nothing depends on the order of a
// map. What a session remembers is bounded: see below, and Weight. What the
// bounds make it forget it does not judge.
package hooksession

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// Bounds of one session.
const (
	maxOpenLLM   = 64
	maxWorkflows = 64
	maxGoverned  = 256
	maxPrints    = 64
	maxWeb       = 256 // of each kind of web id
	maxSets      = 16  // result sets
	maxOutputs   = 64  // outputs that evidence can be used in
	maxEarly     = 64  // calls whose fail mode fired before they were announced
)

const attestSkew = 5 * time.Minute

// Session is the state of one session. The zero value is a session of which
// nothing was seen.
type Session struct {
	out []*catalogue.Breach `snapshot:"-"` // of one event

	begun, ended     bool
	restored         bool // known from before it was forgotten
	start, end       ref
	lastTime         time.Time
	instance         string
	worked           ref // the first boundary at which it should have attested
	attested         *attestation
	attestation      ref
	acted            ref // the first call
	models           models
	workflows        table[*workflow]
	governed         table[*governed]
	excused          table[ref] // by call: its fail mode fired before it was announced
	prints           table[hookPrint]
	contract         *contract
	contracted       ref
	unreliable       table[ref] // hook events whose hook is not to be relied on
	seen             hookSet
	listsHooks       bool
	webState         *webState
	outputs          table[struct{}] // events that tell of an output
	ungated          bool            // said that calls do not wait though the session claims a gate
	saidInstance     bool
	saidRuntimeNamed bool
	hinted           map[string]bool
}

// ref is an event as evidence.
type ref struct {
	id  string
	seq uint64
}

func (x *Event) ref() ref { return ref{x.ID, x.Seq} }

// table is a map that forgets its oldest entries. Most sessions have nothing in
// most of theirs.
type table[V any] struct{ *filled[V] }

type filled[V any] struct {
	entries map[string]V
	order   []string
	dropped bool
}

func (t table[V]) find(k string) (v V, ok bool) {
	if t.filled != nil {
		v, ok = t.entries[k]
	}
	return v, ok
}

func (t table[V]) get(k string) V { v, _ := t.find(k); return v }

func (t table[V]) has(k string) bool { _, ok := t.find(k); return ok }

// keys are those of the entries, the oldest first.
func (t table[V]) keys() []string {
	if t.filled == nil {
		return nil
	}
	return t.order
}

func (t table[V]) len() int { return len(t.keys()) }

// lost tells whether entries have been forgotten.
func (t table[V]) lost() bool { return t.filled != nil && t.dropped }

func (t *table[V]) put(k string, v V, most int) {
	if t.filled == nil {
		t.filled = &filled[V]{entries: map[string]V{}}
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

// take removes an entry and tells whether it was there.
func (t *table[V]) take(k string) bool {
	if !t.has(k) {
		return false
	}
	delete(t.entries, k)
	t.order = slices.DeleteFunc(t.order, func(o string) bool { return o == k })
	return true
}

func (s *Session) breach(check, what string, proof ...ref) *catalogue.Breach {
	b := &catalogue.Breach{Check: check, What: what}
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

// Gated tells whether the session's attestation claims that calls do not get
// around its gate.
func (s *Session) Gated() bool { return s.attested != nil && (s.attested.gated || s.attested.noBypass) }

// Apply takes the next event of the session and gives the violations that it
// proves, in order.
func (s *Session) Apply(x *Event) []*catalogue.Breach {
	s.out = nil
	s.alone(x)
	s.order(x)
	s.see(x)
	s.identity(x)
	s.attest(x)
	s.output(x)
	switch x.Type {
	case agenthook.PreLLMCall:
		s.preLLM(x)
	case agenthook.PostLLMCall:
		s.postLLM(x)
	case agenthook.ErrorOccurred:
		s.failure(x)
	case agenthook.PreToolUse:
		s.pre(x)
	case agenthook.PostToolUse:
		s.post(x)
	case agenthook.RuntimeContractLoaded:
		if s.acted != (ref{}) {
			s.breach("AH-C-132", "it came after the call", s.acted, x.ref())
		}
	case agenthook.SessionEnd:
		s.finish(x)
	}
	s.approve(x)
	s.trust(x)
	s.required(x)
	if x.web != nil {
		s.browse(x)
	}
	return s.out
}

// Amend takes another copy of an event that was applied, which differs in what
// it says of verdict and approval.
func (s *Session) Amend(x *Event) {
	if g := s.governed.get(x.Call); g != nil && x.verdict != "" {
		g.stamp()
	}
	if x.AsksForWeb() && x.verdict != "" && s.webState != nil {
		if a, known := s.webState.actions.find(x.web.action); known {
			a.verdict = x.verdict
			s.webState.actions.put(x.web.action, a, maxWeb)
		}
	}
}

// Alone reports what is wrong with an event of no session.
func Alone(x *Event) []*catalogue.Breach {
	s := Session{}
	s.alone(x)
	return s.out
}

// alone reports the checks that an event fails by itself; hints once a session.
func (s *Session) alone(x *Event) {
	for _, f := range x.local {
		if f.hint && s.hinted[f.check] || x.partly && f.check == "AH-C-031" {
			continue
		}
		b := s.breach(f.check, f.what, x.ref())
		b.Call = x.Call
		if b.Case = f.what; f.hint {
			if s.hinted == nil {
				s.hinted = map[string]bool{}
			}
			s.hinted[f.check] = true
			b.Severity = events.SeverityInfo
		}
	}
}

// order checks that a session's events lie between its start and its end, and
// that its time does not run backwards (CONFORMANCE, Bronze).
func (s *Session) order(x *Event) {
	switch {
	case s.ended && x.Type == agenthook.SessionStart:
		*s = Session{out: s.out, begun: true, hinted: s.hinted} // the id is used again
		s.start = x.ref()
	case s.ended:
		s.breach("AH-C-056", "it came after the end", s.end, x.ref())
	case x.Type == agenthook.SessionStart && s.begun && !s.restored:
		s.breach("AH-C-056", "the start did not come first", s.start, x.ref())
	case !s.begun:
		s.start = x.ref()
	}
	// A runtime may load its contract before it has a session to speak of.
	s.begun = s.begun || x.Type != agenthook.RuntimeContractLoaded
	if x.Time.IsZero() {
		return
	}
	if x.Time.Before(s.lastTime) {
		s.breach("AH-C-054", "", x.ref())
	}
	s.lastTime = x.Time
}

func (s *Session) identity(x *Event) {
	if x.named != "" && x.named != x.Session && !s.saidRuntimeNamed {
		s.saidRuntimeNamed = true
		s.breach("AH-C-055", "the runtime names another session", x.ref()).Case = "session"
	}
	for _, id := range x.instances {
		if s.instance == "" {
			s.instance = id
		}
		if s.instance != id && !s.saidInstance {
			s.saidInstance = true
			s.breach("AH-C-055", "another instance takes part", x.ref()).Case = "instance"
		}
	}
}

// finish takes the end of the session.
func (s *Session) finish(x *Event) {
	s.finishLLM(x)
	for _, call := range s.governed.keys() {
		s.unstamped(s.governed.get(call), x.ref())
	}
	s.unseen(x)
	s.ended, s.end = true, x.ref()
}

// Weight is how many things the session remembers, each of at most about 1 KB
// and usually of 100 bytes.
func (s *Session) Weight() int {
	n := 1 + len(s.models.open) + len(s.models.unended) + s.workflows.len() + s.governed.len() + s.excused.len() + s.unreliable.len() + s.prints.len() + s.outputs.len()
	if w := s.webState; w != nil {
		n += w.events.len() + w.searches.len() + maxResults*w.sets.len() + w.evidence.len() +
			w.actions.len() + w.hashes.len() + w.lackWeight()
	}
	return n
}

// Memory is what is kept of a session that is forgotten otherwise.
type Memory uint8

const (
	memoryKnown Memory = 1 << iota
	memoryEnded
)

// Memory gives what to keep of the session.
func (s *Session) Memory() Memory {
	if s.ended {
		return memoryKnown | memoryEnded
	}
	return memoryKnown
}

// Restore makes a session of what was kept of it; of zero, a new one.
func Restore(m Memory) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{begun: true, restored: true, ended: m&memoryEnded != 0}
}
