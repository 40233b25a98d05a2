package correlation

import (
	"strings"
	"sync/atomic"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Decoder reads messages of the log. What it makes of one depends on nothing but
// the message, so that several Decoders may read at the same time, far ahead of
// the Correlator that they are for. One Decoder belongs to one goroutine.
type Decoder struct {
	space         subject.Space
	protocols     readings
	tenantKey     func(string) []byte
	tenantKeys    map[string]*digest.Keyer
	sessionKeyers sessionKeyers
	document      strictjson.Document
	formBuffer    formBuffer
	interned      map[string]string
	alwaysTree    bool // every event gets a tree: for tests
	treelessReads int  // how many events were read without a tree
	// sharedKeys are the correlator's keys; a signature that one of them verifies need
	// not be verified again if it still counts when the message is applied.
	sharedKeys *atomic.Pointer[signing.KeySet]
	records    signing.RecordVerifier
}

// decoderOptions are what a Decoder needs.
type decoderOptions struct {
	space      subject.Space
	tenantKey  func(tenant string) []byte                                     // nil: there are none
	sessionKey func(tenant, session string) (key *digest.Session, ready bool) // nil: there are none
	sharedKeys *atomic.Pointer[signing.KeySet]                                // the correlator's, see Decoder
	protocols  readings
}

// newDecoder makes a Decoder.
func newDecoder(o decoderOptions) *Decoder {
	return &Decoder{space: o.space, protocols: o.protocols, tenantKey: o.tenantKey, tenantKeys: map[string]*digest.Keyer{},
		sessionKeyers: sessionKeyers{lookupKey: o.sessionKey}, sharedKeys: o.sharedKeys}
}

// Input is a message that was decoded: what Step takes.
type Input struct {
	message       events.LogMessage
	parsedSubject subject.Parsed
	isOwnRecord   bool // the correlator's own record: no input
	hasBadSubject bool // its subject is none of ours

	needsSessionKey bool // the key of its session, without which it must not be applied

	event    *decodedEvent    // of an event
	decision *decodedDecision // of a decision
}

// fact is what an event or a decision says; nil of anything else.
func (in *Input) fact() *fact {
	switch {
	case in.event != nil:
		return &in.event.fact
	case in.decision != nil:
		return &in.decision.fact
	}
	return nil
}

// IsCursor reports whether it is a record of the correlator's position.
func (in Input) IsCursor() bool { return in.isOwnRecord && in.parsedSubject.Class == subject.Control }

// Message is the message itself.
func (in Input) Message() events.LogMessage { return in.message }

// Decode reads a message. The Input refers to its Header and Body until it has
// been applied.
func (d *Decoder) Decode(m events.LogMessage) Input {
	var in Input
	d.DecodeInto(&in, m, nil)
	return in
}

// DecodeInto is Decode with memory that others may have used before: see Memory.
func (d *Decoder) DecodeInto(in *Input, m events.LogMessage, mem *InputArena) {
	*in = Input{message: m}
	d.sessionKeyers.keyMissing = false
	var err error
	in.parsedSubject, err = d.space.Parse(m.Subject)
	if in.parsedSubject.Class == subject.Events || in.parsedSubject.Class == subject.Decisions {
		// Names are looked up again and again, and kept: what is the same text in memory,
		// too, need not be read.
		in.parsedSubject.Tenant, in.parsedSubject.Publisher, in.parsedSubject.Session = d.intern(in.parsedSubject.Tenant), d.intern(in.parsedSubject.Publisher), d.intern(in.parsedSubject.Session)
	}
	switch {
	case in.parsedSubject.Class == subject.Calls, in.parsedSubject.Class == subject.Findings, in.parsedSubject.Class == subject.Control && in.parsedSubject.Kind == events.ControlCursor:
		in.isOwnRecord = true
	case err != nil:
		in.hasBadSubject = true
	case in.parsedSubject.Class == subject.Events && d.sessionKeyers.isMissing(in.parsedSubject, d.protocols):
		in.needsSessionKey = true
	case in.parsedSubject.Class == subject.Events:
		in.event = mem.newEvent()
		d.decodeEvent(m, in.parsedSubject, in.event)
		in.event.precompute()
		in.needsSessionKey = d.sessionKeyers.keyMissing
	case in.parsedSubject.Class == subject.Decisions:
		in.decision = mem.newDecision()
		d.decodeDecision(m, in.parsedSubject, in.decision)
	}
}

// InputArena is what Inputs are made of, to be used again for others, which spares the
// garbage collector. What was read stays in it until it is used again. The zero
// Memory is ready; it belongs to one goroutine at a time.
type InputArena struct {
	events    arena[decodedEvent]
	decisions arena[decodedDecision]
}

// Reset lets all of it be used again. Every Input that was made of it has been applied
// or never will be.
func (m *InputArena) Reset() { m.events.used, m.decisions.used = 0, 0 }

func (m *InputArena) newEvent() *decodedEvent {
	if m == nil {
		return new(decodedEvent)
	}
	return m.events.next()
}

func (m *InputArena) newDecision() *decodedDecision {
	if m == nil {
		return new(decodedDecision)
	}
	return m.decisions.next()
}

type arena[T any] struct {
	items []*T
	used  int
}

// next is one that is empty.
func (r *arena[T]) next() *T {
	if r.used++; r.used > len(r.items) {
		r.items = append(r.items, new(T))
	} else {
		var nothing T
		*r.items[r.used-1] = nothing
	}
	return r.items[r.used-1]
}

// NeedsSessionKey reports whether Options.SessionKey had the key of the message's session not
// ready. Such an Input must not be applied: decode the message again when the key
// is there. Tenant and session are what the subject names.
func (in Input) NeedsSessionKey() (tenant, session string, wants bool) {
	return in.parsedSubject.Tenant, in.parsedSubject.Session, in.needsSessionKey
}

// digestKey is the key of a tenant's digests, nil if there is none.
func (d *Decoder) digestKey(tenant string) *digest.Keyer {
	if d.tenantKey == nil {
		return nil
	}
	key, ok := d.tenantKeys[tenant]
	if !ok {
		if len(d.tenantKeys) >= maxTenantKeys {
			clear(d.tenantKeys)
		}
		key = digest.NewKeyer(d.tenantKey(tenant))
		d.tenantKeys[tenant] = key
	}
	return key
}

const maxTenantKeys = 4096

// sessionKeyers are the keys of the sessions that a Decoder reads of. One goroutine
// uses them.
type sessionKeyers struct {
	lookupKey  func(tenant, session string) (*digest.Session, bool)
	known      map[sessionName]*digest.SessionKeyer
	missing    map[sessionName]bool // keys that were not ready
	keyMissing bool                 // a key was not ready
}

type sessionName struct{ tenant, session string }

// maxSessionKeyers bounds them; each takes some 700 bytes.
const maxSessionKeyers = 4096

// keyer gives the key of a session, nil if there is none.
func (s *sessionKeyers) keyer(tenant, session string) *digest.SessionKeyer {
	if s.lookupKey == nil || session == "" {
		return nil
	}
	name := sessionName{tenant, session}
	if k, ok := s.known[name]; ok {
		return k
	}
	key, ready := s.lookupKey(tenant, session)
	if !ready {
		s.recordMissing(name)
		return nil
	}
	if s.known == nil || len(s.known) >= maxSessionKeyers {
		s.known = make(map[sessionName]*digest.SessionKeyer, 64)
	}
	k := key.Keyer()
	s.known[sessionName{strings.Clone(tenant), strings.Clone(session)}] = k
	return k
}

func (s *sessionKeyers) recordMissing(name sessionName) {
	s.keyMissing = true
	if s.missing == nil || len(s.missing) >= maxSessionKeyers {
		s.missing = map[sessionName]bool{}
	}
	s.missing[sessionName{strings.Clone(name.tenant), strings.Clone(name.session)}] = true
}

// isMissing reports whether an event is of a session whose key was not ready, and still
// is not: it need not be read before that is there.
func (s *sessionKeyers) isMissing(p subject.Parsed, protocols readings) bool {
	name := sessionName{p.Tenant, p.Session}
	if len(s.missing) == 0 || !protocols(p.Protocol).sessionKeyed || !s.missing[name] {
		return false
	}
	if s.keyer(p.Tenant, p.Session); s.keyMissing {
		return true
	}
	delete(s.missing, name)
	return false
}
