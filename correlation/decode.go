package correlation

import (
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
	space      subject.Space
	tenantKey  func(string) []byte
	tenantKeys map[string]*digest.Keyer
	sessions   sessionKeyers
	flat       strictjson.Flat
	forms      forms
	interned   map[string]string
	longWay    bool // nothing is read flat: for tests
	flatReads  int  // how many messages were read flat
	// shared are the correlator's keys; a signature that one of them verifies need
	// not be verified again if it still counts when the message is applied.
	shared  *atomic.Pointer[signing.KeySet]
	records signing.RecordVerifier
}

// NewDecoder makes a Decoder for the Correlator. It may be called, and the
// Decoder may be used, while another goroutine uses the Correlator.
func (c *Correlator) NewDecoder() *Decoder {
	return &Decoder{space: c.m.opts.Space, tenantKey: c.m.opts.TenantKey, tenantKeys: map[string]*digest.Keyer{},
		sessions: sessionKeyers{ask: c.m.opts.SessionKey}, shared: &c.shared}
}

// Input is a message that was decoded: what Step takes.
type Input struct {
	m   events.LogMessage
	p   subject.Parsed
	own bool // the correlator's own record: no input
	bad bool // its subject is none of ours

	wants bool // the key of its session, without which it must not be applied

	reading *reading // of an event
	verdict *verdict // of a decision
}

// fact is what an event or a decision says; nil of anything else.
func (in *Input) fact() *fact {
	switch {
	case in.reading != nil:
		return &in.reading.fact
	case in.verdict != nil:
		return &in.verdict.fact
	}
	return nil
}

// Cursor tells whether it is a record of the correlator's position.
func (in Input) Cursor() bool { return in.own && in.p.Class == subject.Control }

// Message is the message itself.
func (in Input) Message() events.LogMessage { return in.m }

// Decode reads a message. The Input refers to its Header and Body until it has
// been applied.
func (d *Decoder) Decode(m events.LogMessage) Input {
	var in Input
	d.DecodeInto(&in, m, nil)
	return in
}

// DecodeInto is Decode with memory that others may have used before: see Memory.
func (d *Decoder) DecodeInto(in *Input, m events.LogMessage, mem *Memory) {
	*in = Input{m: m}
	d.sessions.wanting = false
	var err error
	in.p, err = d.space.Parse(m.Subject)
	if in.p.Class == subject.Events || in.p.Class == subject.Decisions {
		// Names are looked up again and again, and kept: what is the same text in memory,
		// too, need not be read.
		in.p.Tenant, in.p.Publisher, in.p.Session = d.own(in.p.Tenant), d.own(in.p.Publisher), d.own(in.p.Session)
	}
	switch {
	case in.p.Class == subject.Calls, in.p.Class == subject.Findings, in.p.Class == subject.Control && in.p.Kind == events.ControlCursor:
		in.own = true
	case err != nil:
		in.bad = true
	case in.p.Class == subject.Events && d.sessions.lacks(in.p):
		in.wants = true
	case in.p.Class == subject.Events:
		in.reading = mem.reading()
		d.event(m, in.p, in.reading)
		in.reading.ahead()
		in.wants = d.sessions.wanting
	case in.p.Class == subject.Decisions:
		in.verdict = mem.verdict()
		d.decision(m, in.p, in.verdict)
	}
}

// Memory is what Inputs are made of, to be used again for others, which spares the
// garbage collector. What was read stays in it until it is used again. The zero
// Memory is ready; it belongs to one goroutine at a time.
type Memory struct {
	readings room[reading]
	verdicts room[verdict]
}

// Free lets all of it be used again. Every Input that was made of it has been applied
// or never will be.
func (m *Memory) Free() { m.readings.used, m.verdicts.used = 0, 0 }

func (m *Memory) reading() *reading {
	if m == nil {
		return new(reading)
	}
	return m.readings.next()
}

func (m *Memory) verdict() *verdict {
	if m == nil {
		return new(verdict)
	}
	return m.verdicts.next()
}

type room[T any] struct {
	all  []*T
	used int
}

// next is one that is empty.
func (r *room[T]) next() *T {
	if r.used++; r.used > len(r.all) {
		r.all = append(r.all, new(T))
	} else {
		var nothing T
		*r.all[r.used-1] = nothing
	}
	return r.all[r.used-1]
}

// ahead makes what the machine will ask for of a fact, and what needs no state.
func (r *reading) ahead() {
	f := &r.fact
	key := f.key
	if r.hasSession {
		key.session = r.sessionKey
	}
	f.hashes = hashesOf(key)
	if f.lineage.correlation != "" {
		f.lineage.token()
	}
	if f.eventID != "" && f.kind != kindRequest {
		f.idSum()
	}
	if f.kind == kindRequest || f.kind == kindPre {
		f.firstCall = callSum(key, f.slot, 1)
	}
}

// Wants tells whether Options.SessionKey had the key of the message's session not
// ready. Such an Input must not be applied: decode the message again when the key
// is there. Tenant and session are what the subject names.
func (in Input) Wants() (tenant, session string, wants bool) {
	return in.p.Tenant, in.p.Session, in.wants
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
