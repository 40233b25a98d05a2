package fact

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
	Protocols     Protocols
	tenantKey     func(string) []byte
	tenantKeys    map[string]*digest.Keyer
	SessionKeyers sessionKeyers
	Document      strictjson.Document
	FormBuffer    FormBuffer
	interned      map[string]string
	// sharedKeys are the correlator's keys; a signature that one of them verifies need
	// not be verified again if it still counts when the message is applied.
	sharedKeys *atomic.Pointer[signing.KeySet]
	records    signing.RecordVerifier
}

// DecoderOptions are what a Decoder needs.
type DecoderOptions struct {
	Space      subject.Space
	TenantKey  func(tenant string) []byte                                     // nil: there are none
	SessionKey func(tenant, session string) (key *digest.Session, ready bool) // nil: there are none
	SharedKeys *atomic.Pointer[signing.KeySet]                                // the correlator's, see Decoder
	Protocols  Protocols
}

// NewDecoder makes a Decoder.
func NewDecoder(o DecoderOptions) *Decoder {
	return &Decoder{space: o.Space, Protocols: o.Protocols, tenantKey: o.TenantKey, tenantKeys: map[string]*digest.Keyer{},
		SessionKeyers: sessionKeyers{lookupKey: o.SessionKey}, sharedKeys: o.SharedKeys}
}

// Input is a message that was decoded: what Step takes.
type Input struct {
	Raw           events.LogMessage
	ParsedSubject subject.Parsed
	IsOwnRecord   bool // the correlator's own record: no input
	HasBadSubject bool // its subject is none of ours

	needsSessionKey bool // the key of its session, without which it must not be applied

	Event    *DecodedEvent    // of an event
	Decision *DecodedDecision // of a decision
}

// Fact is what an event or a decision says; nil of anything else.
func (in *Input) Fact() *Fact {
	switch {
	case in.Event != nil:
		return &in.Event.Fact
	case in.Decision != nil:
		return &in.Decision.Fact
	}
	return nil
}

// IsCursor reports whether it is a record of the correlator's position.
func (in Input) IsCursor() bool { return in.IsOwnRecord && in.ParsedSubject.Class == subject.Control }

// Message is the message itself.
func (in Input) Message() events.LogMessage { return in.Raw }

// Decode reads a message. The Input refers to its Header and Body until it has
// been applied.
func (d *Decoder) Decode(m events.LogMessage) Input {
	var in Input
	d.DecodeInto(&in, m, nil)
	return in
}

// DecodeInto is Decode with memory that others may have used before: see Memory.
func (d *Decoder) DecodeInto(in *Input, m events.LogMessage, mem *InputArena) {
	*in = Input{Raw: m}
	d.SessionKeyers.keyMissing = false
	var err error
	in.ParsedSubject, err = d.space.Parse(m.Subject)
	if in.ParsedSubject.Class == subject.Events || in.ParsedSubject.Class == subject.Decisions {
		// Names are looked up again and again, and kept: what is the same text in memory,
		// too, need not be read.
		in.ParsedSubject.Tenant, in.ParsedSubject.Publisher, in.ParsedSubject.Session = d.Intern(in.ParsedSubject.Tenant), d.Intern(in.ParsedSubject.Publisher), d.Intern(in.ParsedSubject.Session)
	}
	switch {
	case in.ParsedSubject.Class == subject.Calls, in.ParsedSubject.Class == subject.Findings, in.ParsedSubject.Class == subject.Control && in.ParsedSubject.Kind == events.ControlCursor:
		in.IsOwnRecord = true
	case err != nil:
		in.HasBadSubject = true
	case in.ParsedSubject.Class == subject.Events && d.SessionKeyers.isMissing(in.ParsedSubject, d.Protocols):
		in.needsSessionKey = true
	case in.ParsedSubject.Class == subject.Events:
		in.Event = mem.newEvent()
		d.decodeEvent(m, in.ParsedSubject, in.Event)
		in.Event.precompute()
		in.needsSessionKey = d.SessionKeyers.keyMissing
	case in.ParsedSubject.Class == subject.Decisions:
		in.Decision = mem.newDecision()
		d.decodeDecision(m, in.ParsedSubject, in.Decision)
	}
}

// InputArena is what Inputs are made of, to be used again for others, which spares the
// garbage collector. What was read stays in it until it is used again. The zero
// Memory is ready; it belongs to one goroutine at a time.
type InputArena struct {
	events    arena[DecodedEvent]
	decisions arena[DecodedDecision]
}

// Reset lets all of it be used again. Every Input that was made of it has been applied
// or never will be.
func (m *InputArena) Reset() { m.events.used, m.decisions.used = 0, 0 }

func (m *InputArena) newEvent() *DecodedEvent {
	if m == nil {
		return new(DecodedEvent)
	}
	return m.events.next()
}

func (m *InputArena) newDecision() *DecodedDecision {
	if m == nil {
		return new(DecodedDecision)
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
	return in.ParsedSubject.Tenant, in.ParsedSubject.Session, in.needsSessionKey
}

// DigestKey is the key of a tenant's digests, nil if there is none.
func (d *Decoder) DigestKey(tenant string) *digest.Keyer {
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
	Known      map[sessionName]*digest.SessionKeyer
	Missing    map[sessionName]bool // keys that were not ready
	keyMissing bool                 // a key was not ready
}

type sessionName struct{ tenant, session string }

// MaxSessionKeyers bounds them; each takes some 700 bytes.
const MaxSessionKeyers = 4096

// Keyer gives the key of a session, nil if there is none.
func (s *sessionKeyers) Keyer(tenant, session string) *digest.SessionKeyer {
	if s.lookupKey == nil || session == "" {
		return nil
	}
	name := sessionName{tenant, session}
	if k, ok := s.Known[name]; ok {
		return k
	}
	key, ready := s.lookupKey(tenant, session)
	if !ready {
		s.recordMissing(name)
		return nil
	}
	if s.Known == nil || len(s.Known) >= MaxSessionKeyers {
		s.Known = make(map[sessionName]*digest.SessionKeyer, 64)
	}
	k := key.Keyer()
	s.Known[sessionName{strings.Clone(tenant), strings.Clone(session)}] = k
	return k
}

func (s *sessionKeyers) recordMissing(name sessionName) {
	s.keyMissing = true
	if s.Missing == nil || len(s.Missing) >= MaxSessionKeyers {
		s.Missing = map[sessionName]bool{}
	}
	s.Missing[sessionName{strings.Clone(name.tenant), strings.Clone(name.session)}] = true
}

// isMissing reports whether an event is of a session with a key that was not ready, and still
// is not: it need not be read before that is there.
func (s *sessionKeyers) isMissing(p subject.Parsed, protocols Protocols) bool {
	name := sessionName{p.Tenant, p.Session}
	if len(s.Missing) == 0 || !protocols(p.Protocol).SessionKeyed || !s.Missing[name] {
		return false
	}
	if s.Keyer(p.Tenant, p.Session); s.keyMissing {
		return true
	}
	delete(s.Missing, name)
	return false
}
