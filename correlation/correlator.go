// Package correlation links what was admitted with what ran: the state machine
// behind architecture section 4 and the catalogue of rules that a shard's log
// is held against.
//
// It is a pure, deterministic core: the same log gives the same outputs, byte
// for byte. The only time it knows is the broker's time of the messages it is
// given; there is no clock, goroutine, I/O or randomness in it, and nothing
// depends on the order of a map.
//
// Beside the calls it follows every session as its protocol orders it (packages
// aaep and agenthook below this one) and reports which checks of package catalogue are
// broken. Calls and sessions are judged apart: what depends on verdicts and
// executions comes from the calls, also under the protocol's check (see
// equivalences); what only depends on the order of events comes from the session.
//
// The work is in three parts, so that two of them can be done in parallel:
// Decoder.Decode reads a message and needs no state; Correlator.Step takes what
// was read, one message after the other; Output.Encode writes what came of it.
// Apply does all three.
//
// Memory is bounded; the bounds and what happens at them are with Options.
package correlation

import (
	"crypto/ed25519"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/correlation/internal/eventtime"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// Correlator correlates one shard. It is not safe for concurrent use, but for
// NewDecoder.
type Correlator struct {
	engine             *engine
	space              subject.Space
	shard              string
	vouchForKey        func(events.KeyRecord) bool
	vouchForRetirement func(events.KeyRetirement) bool
	keys               signing.KeySet
	records            signing.RecordVerifier // of keys
	retiredKeys        map[string]bool        // by key id: it counts no more
	// sharedKeys is a copy of keys for the decoders.
	sharedKeys atomic.Pointer[signing.KeySet]
	decoder    *fact.Decoder   // of Apply
	arena      fact.InputArena // of Apply
}

// The types of package fact that callers of a Correlator hold.
type (
	// Decoder reads messages of the log.
	Decoder = fact.Decoder
	// Input is a message that was decoded: what Step takes.
	Input = fact.Input
	// InputArena is what Inputs are made of.
	InputArena = fact.InputArena
)

// New makes a correlator that has seen nothing yet.
func New(o Options) *Correlator {
	keys := signing.KeySet{}
	c := &Correlator{
		engine: newEngine(o), space: o.Space, shard: o.Shard, vouchForKey: o.KeyVoucher, vouchForRetirement: o.RetireVoucher, retiredKeys: map[string]bool{},
		keys: keys, records: signing.RecordVerifier{Keys: keys},
	}
	c.decoder = c.NewDecoder()
	return c
}

// Apply takes the next message of the log and gives what is to be emitted for
// it, in order. Messages must come in the order of their sequence; one whose
// sequence is not above the last one's was applied before and gives nothing.
//
// Events, requests, decisions, approvals and control records are input. The
// correlator's own records (calls, findings, cursor) are not: they neither
// count nor let time pass, so that the outputs are a function of the inputs
// alone.
//
// Body and Header are not kept.
func (c *Correlator) Apply(m events.LogMessage) []Output {
	if m.Seq <= c.engine.stats.Seq {
		return nil
	}
	var in fact.Input
	c.arena.Reset()
	c.decoder.DecodeInto(&in, m, &c.arena)
	outs := slices.Clone(c.Step(&in))
	for i := range outs {
		outs[i].Encode()
	}
	return outs
}

// Step is Apply for a message that was decoded. Its outputs are not encoded yet:
// see Output.Encode. The list is good until the next Step, the outputs until Reuse.
func (c *Correlator) Step(in *fact.Input) []Output {
	m, p := &in.Raw, &in.ParsedSubject
	if m.Seq <= c.engine.stats.Seq {
		return nil
	}
	c.engine.stats.Seq = m.Seq
	c.engine.findings.clearOutputs()
	if in.IsOwnRecord {
		return nil
	}
	c.engine.stats.Messages++
	c.engine.advanceTimers(m.Time)
	switch {
	case in.HasBadSubject:
		c.reportBadSubject(*m)
	case in.Event != nil:
		c.applyEvent(in)
	case in.Decision != nil:
		c.applyDecision(m, p, in.Decision)
	case p.Class == subject.Approvals:
		c.applyApproval(*m, *p)
	case p.Class == subject.Control && p.Kind == events.ControlKey:
		c.applyKeyRecord(*m, *p)
	case p.Class == subject.Control && p.Kind == events.ControlKeyRetired:
		c.retireKey(*m, *p)
	case p.Class == subject.Control && p.Kind == events.ControlRules:
		c.applyRulesChange(*m, *p)
	case p.Class == subject.Control && p.Kind == events.ControlMandate:
		c.applyMandateChange(*m, *p)
	case p.Class == subject.Control && p.Kind == events.ControlPublisher:
		c.applyPublisherChange(*m, *p)
	}
	c.engine.calls.compactIfMany()
	return c.engine.findings.pending()
}

// Prefetch looks where Step will look for the ids of events that were decoded, and for
// the marks of calls: a processor waits for many places of large tables at the same
// time, but for one after the other if each is looked at when it is needed. It changes
// nothing.
func (c *Correlator) Prefetch(inputs []fact.Input) {
	var from *sourceState // of the last one: often that of the next
	for i := range inputs {
		f := inputs[i].Fact()
		if f == nil || f.CachedIDSum.IsZero() || !f.CachedHashes.Computed {
			continue
		}
		var read uint64
		if from, read = c.engine.history.prefetch(f, from); from == nil {
			continue
		}
		if f.Kind == fact.KindPre {
			read += c.engine.lineage.prefetch(&f.CachedHashes, f.CachedIDSum)
		}
		c.engine.prefetched += read
	}
}

// NextDeadline is when time alone may bring about a finding: the next open call
// counts as abandoned, or a session or a request for a subscription has been left
// alone for so long. It happens with the first input message whose broker time is
// not before it; on an idle shard somebody must write a tick then. A long idleness is
// made of several such times. Compare it with Stats().LogTime, not with the time of
// the last message: some messages let no time pass.
func (c *Correlator) NextDeadline() (time.Time, bool) {
	var next eventtime.Earliest
	if at, ok := c.engine.timers.nextDeadline(); ok {
		next.KeepEarlier(at)
	}
	if c.engine.trackers.hasRunning() {
		c.engine.trackers.nextProtocolSessionIdle(&next)
	}
	c.engine.negotiations.NextNegotiationTimeout(&next)
	return c.engine.timers.ToBrokerTime(next.At), next.Any
}

// NextIdle is when the next session may be forgotten, likewise.
func (c *Correlator) NextIdle() (time.Time, bool) {
	var next eventtime.Earliest
	c.engine.trackers.nextProtocolSessionIdle(&next)
	c.engine.calls.nextIdle(&next)
	return c.engine.timers.ToBrokerTime(next.At), next.Any
}

// Stats says what the correlator holds and has done.
func (c *Correlator) Stats() Stats {
	s := c.engine.stats
	s.Findings, s.Records = c.engine.findings.emitted()
	s.Sessions, s.Open, s.Calls, s.IDs, s.ArgsBytes = c.engine.calls.held()
	s.EventTime, s.Sources, s.TrackedSessions = c.engine.timers.ToBrokerTime(c.engine.timers.Now()), c.engine.history.sourceCount(), c.engine.trackers.count()
	return s
}

// addKey takes a key that counts from here on.
func (c *Correlator) addKey(kid string, pub ed25519.PublicKey) {
	c.keys[kid] = pub
	shared := maps.Clone(c.keys)
	c.sharedKeys.Store(&shared)
}

// OldestUndecided is when the oldest open call became known that nobody has
// decided yet: it has no verdict, or one that waits for somebody. It looks at
// every open call, so it is not for every message.
func (c *Correlator) OldestUndecided() (since time.Time, ok bool) {
	for open := range c.engine.timers.openCalls() {
		if len(open.timeline) == 0 {
			continue
		}
		at := open.timeline[0].brokerTime()
		if (!ok || at.Before(since)) && open.isUndecided() {
			since, ok = at, true
		}
	}
	return since, ok
}

func (x *details) isUndecided() bool {
	switch x.directVerdict().verdict {
	case events.Allow, events.Deny:
		return false
	}
	return true
}

// NewDecoder makes a Decoder for the Correlator. It may be called, and the
// Decoder may be used, while another goroutine uses the Correlator.
func (c *Correlator) NewDecoder() *fact.Decoder {
	o := c.engine.opts
	return fact.NewDecoder(fact.DecoderOptions{Space: o.Space, TenantKey: o.TenantKey, SessionKey: o.SessionKey, SharedKeys: &c.sharedKeys, Protocols: readingOf})
}
