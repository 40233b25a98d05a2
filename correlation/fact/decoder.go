package fact

import (
	"strings"
	"sync/atomic"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// Decoder decodes messages of the log. The result depends on the message only, so several
// Decoders may run in parallel and ahead of the Correlator. One goroutine at a time uses a
// Decoder.
type Decoder struct {
	space         subject.Space
	Protocols     FindProtocol
	tenantKey     func(string) []byte
	tenantKeys    map[string]*digest.Keyer
	SessionKeyers sessionKeyers
	FormBuffer    FormBuffer
	interned      map[string]string
	// sharedKeys are the correlator's keys; a signature that one of them verifies need
	// not be verified again if it still counts when the message is applied.
	sharedKeys *atomic.Pointer[signing.KeySet]
	records    signing.RecordVerifier
}

// DecoderOptions configure a Decoder.
type DecoderOptions struct {
	Space         subject.Space
	TenantKey     func(tenant string) []byte                                     // nil: no tenant has a key
	SessionSecret func(tenant, session string) (key *digest.Session, ready bool) // nil: no session has a key
	SharedKeys    *atomic.Pointer[signing.KeySet]                                // the Correlator's keys
	Protocols     FindProtocol
}

// NewDecoder makes a Decoder.
func NewDecoder(o DecoderOptions) *Decoder {
	return &Decoder{space: o.Space, Protocols: o.Protocols, tenantKey: o.TenantKey, tenantKeys: map[string]*digest.Keyer{},
		SessionKeyers: sessionKeyers{lookupKey: o.SessionSecret}, sharedKeys: o.SharedKeys}
}

// Input is a decoded message.
type Input struct {
	Raw           events.LogMessage
	ParsedSubject subject.Parsed
	IsOwnRecord   bool // a record of the correlator itself, which is no input
	HasBadSubject bool // its subject is not one of ours

	needsSessionSecret bool // its session's key was not ready

	Event    *DecodedEvent    // set for an event
	Decision *DecodedDecision // set for a decision
}

// Fact is the fact of an event or a decision; nil for other messages.
func (in *Input) Fact() *Fact {
	switch {
	case in.Event != nil:
		return &in.Event.Fact
	case in.Decision != nil:
		return &in.Decision.Fact
	}
	return nil
}

// IsCursor reports whether the message is a cursor of the correlator.
func (in Input) IsCursor() bool { return in.IsOwnRecord && in.ParsedSubject.Class == subject.Control }

// Message is the message that was decoded.
func (in Input) Message() events.LogMessage { return in.Raw }

// Decode decodes a message. The Input refers to its Header and Body.
func (d *Decoder) Decode(m events.LogMessage) Input {
	in := Input{Raw: m}
	d.SessionKeyers.keyMissing = false
	var err error
	in.ParsedSubject, err = d.space.Parse(m.Subject)
	if in.ParsedSubject.Class == subject.Events || in.ParsedSubject.Class == subject.Decisions {
		// Equal names share memory, so that comparing them need not read the text.
		in.ParsedSubject.Tenant, in.ParsedSubject.Publisher, in.ParsedSubject.Session = d.Intern(in.ParsedSubject.Tenant), d.Intern(in.ParsedSubject.Publisher), d.Intern(in.ParsedSubject.Session)
	}
	switch {
	case in.ParsedSubject.Class == subject.Calls, in.ParsedSubject.Class == subject.Findings, in.ParsedSubject.Class == subject.Control && in.ParsedSubject.Kind == events.ControlCursor:
		in.IsOwnRecord = true
	case err != nil:
		in.HasBadSubject = true
	case in.ParsedSubject.Class == subject.Events && d.SessionKeyers.isMissing(in.ParsedSubject, d.Protocols):
		in.needsSessionSecret = true
	case in.ParsedSubject.Class == subject.Events:
		in.Event = new(DecodedEvent)
		d.decodeEvent(m, in.ParsedSubject, in.Event)
		in.Event.precompute()
		in.needsSessionSecret = d.SessionKeyers.keyMissing
	case in.ParsedSubject.Class == subject.Decisions:
		in.Decision = new(DecodedDecision)
		d.decodeDecision(m, in.ParsedSubject, in.Decision)
	}
	return in
}

// NeedsSessionSecret reports whether the session's key was not ready (see
// DecoderOptions.SessionSecret). The caller MUST NOT apply such an Input: it decodes the
// message again when the key is ready. tenant and session are the subject's.
func (in Input) NeedsSessionSecret() (tenant, session string, wants bool) {
	return in.ParsedSubject.Tenant, in.ParsedSubject.Session, in.needsSessionSecret
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

// sessionKeyers caches the keys of sessions. One goroutine at a time uses it.
type sessionKeyers struct {
	lookupKey  func(tenant, session string) (*digest.Session, bool)
	Known      map[sessionName]*digest.SessionKeyer
	Missing    map[sessionName]bool // keys that were not ready
	keyMissing bool                 // a key was not ready
}

type sessionName struct{ tenant, session string }

// MaxSessionKeyers bounds the cached keys; each takes some 700 bytes.
const MaxSessionKeyers = 4096

// Keyer returns the key of a session, nil if there is none.
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

// isMissing reports whether an event's session has a key that is still not ready. Such an
// event is not decoded yet.
func (s *sessionKeyers) isMissing(p subject.Parsed, find FindProtocol) bool {
	name := sessionName{p.Tenant, p.Session}
	if len(s.Missing) == 0 || !find(p.Protocol).SessionKeyed || !s.Missing[name] {
		return false
	}
	if s.Keyer(p.Tenant, p.Session); s.keyMissing {
		return true
	}
	delete(s.Missing, name)
	return false
}
