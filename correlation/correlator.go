// Package correlation compares what was admitted with what ran, over the log of one shard. It
// implements docs/architecture.md, Identity of a call, and the checks of package checks.
// Begin reading with Correlator.Step.
//
// The core is pure and deterministic: the same log gives the same outputs, byte for byte. It
// has no clock, goroutine, I/O or randomness, and does not depend on the order of a map. Its
// time is event time, which the broker's times of the messages advance.
//
// Besides calls, it follows each session by the rules of its protocol (packages aaep and
// agenthook). A check that depends on verdicts and executions is judged with the calls (see
// equivalentChecks). A check that depends only on the order of events is judged with the
// session.
//
// The work has three steps. Decoder.Decode decodes a message; it needs no state, so several
// goroutines may decode. Correlator.Step applies a decoded message, in log order.
// Output.Encode encodes an output; any goroutine may. Apply does all three.
//
// Memory is bounded: see the defaults of Options.
package correlation

import (
	"crypto/ed25519"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// Correlator correlates the log of one shard. Only one goroutine at a time may use it;
// NewDecoder is the exception.
type Correlator struct {
	engine             *engine
	space              subject.Space
	shard              string
	vouchForKey        func(events.KeyRecord) bool
	vouchForRetirement func(events.KeyRetirement) bool
	keys               signing.KeySet
	records            signing.RecordVerifier // with keys
	retiredKeys        map[string]bool        // by key id; a retired key no longer counts
	// sharedKeys is a copy of keys for the decoders.
	sharedKeys atomic.Pointer[signing.KeySet]
	decoder    *fact.Decoder // of Apply
}

// Types of package fact in the API of Correlator.
type (
	// Decoder reads messages of the log.
	Decoder = fact.Decoder
	// Input is a decoded message.
	Input = fact.Input
)

// New makes a Correlator that has applied no message.
func New(o Options) *Correlator {
	keys := signing.KeySet{}
	c := &Correlator{
		engine: newEngine(engineOptions{Options: o}), space: o.Space, shard: o.Shard, vouchForKey: o.KeyVoucher, vouchForRetirement: o.RetireVoucher, retiredKeys: map[string]bool{},
		keys: keys, records: signing.RecordVerifier{Keys: keys},
	}
	c.decoder = c.NewDecoder()
	return c
}

// Apply decodes and applies the next message of the log, and returns its encoded outputs in
// order. Messages must come in the order of their sequences. A message with a sequence that
// was applied before is ignored.
//
// Events, requests, decisions, approvals and control records are input. The correlator's own
// records (calls, findings, cursor) are not: they neither count nor advance time, so the
// outputs depend on the inputs alone.
//
// Apply does not keep Body and Header.
func (c *Correlator) Apply(m events.LogMessage) []Output {
	if m.Seq <= c.engine.stats.Seq {
		return nil
	}
	in := c.decoder.Decode(m)
	outs := slices.Clone(c.Step(&in))
	for i := range outs {
		outs[i].Encode()
	}
	return outs
}

// Step applies a decoded message. It returns outputs that are not encoded: see Output.Encode.
// The list is valid until the next Step.
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
	case p.Class == subject.Control && p.Kind == events.ControlErasure:
		if e, err := events.DecodeRecord[events.Erasure](m.Body); err == nil {
			c.engine.calls.noteErasure(e, m.Time)
		}
	case p.Class == subject.Control:
		protocols.applyControl(c, *m, *p)
	}
	c.engine.calls.compactIfMany()
	return c.engine.findings.pending()
}

// NextDeadline is the next time at which time alone may cause a finding: an open call is
// abandoned, or a session or a subscription request has been idle for too long. The finding
// comes with the first input whose broker time is not before it. On an idle shard the caller
// must write a tick at that time. Compare it with Stats().EventTime, not with the time of the
// last message, because some messages do not advance time. A long idle time passes in several
// such steps.
func (c *Correlator) NextDeadline() (time.Time, bool) {
	var next eventtime.Earliest
	if at, ok := c.engine.timers.nextDeadline(); ok {
		next.KeepEarlier(at)
	}
	if c.engine.trackers.hasRunning() {
		c.engine.trackers.nextProtocolSessionIdle(&next)
	}
	protocols.nextDeadline(c.engine, &next)
	return c.engine.timers.ToBrokerTime(next.At), next.Any
}

// NextIdle is the next time at which a session may be forgotten. The caller handles it like
// NextDeadline.
func (c *Correlator) NextIdle() (time.Time, bool) {
	var next eventtime.Earliest
	c.engine.trackers.nextProtocolSessionIdle(&next)
	c.engine.calls.nextIdle(&next)
	return c.engine.timers.ToBrokerTime(next.At), next.Any
}

// Stats returns counts of what the Correlator holds and has done.
func (c *Correlator) Stats() Stats {
	s := c.engine.stats
	s.Findings, s.Records = c.engine.findings.emitted()
	s.Sessions, s.Open, s.Calls, s.IDs, s.ArgsBytes = c.engine.calls.held()
	s.EventTime, s.Sources, s.TrackedSessions = c.engine.timers.ToBrokerTime(c.engine.timers.Now()), c.engine.history.sourceCount(), c.engine.trackers.count()
	return s
}

// RemembersAny reports whether the correlator has calls of one of a tenant's sessions in memory, or tracks the order of
// its events: then it holds texts of them, and time alone may still cause a finding. Of other sessions it has names, ids and digests at
// most. It visits every session, so it is not for every message.
func (c *Correlator) RemembersAny(tenant string, sessions []string) bool {
	tenant = fact.TokenOf(tenant)
	tokens := make(map[string]bool, len(sessions))
	for _, name := range sessions {
		tokens[fact.TokenOf(name)] = true
	}
	isOne := func(key fact.SourceSession) bool { return key.Tenant == tenant && tokens[key.Session] }
	return c.engine.calls.hasAny(isOne) || c.engine.trackers.hasAny(isOne)
}

// addKey adds a verification key. It counts from the current message on.
func (c *Correlator) addKey(kid string, pub ed25519.PublicKey) {
	c.keys[kid] = pub
	shared := maps.Clone(c.keys)
	c.sharedKeys.Store(&shared)
}

// OldestUndecided is the time since which the oldest undecided call is open: a call without a
// verdict, or with one that waits for a person. It visits every open call, so it is not for
// every message.
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

// NewDecoder makes a Decoder. NewDecoder and the Decoder may be used while another goroutine
// uses the Correlator.
func (c *Correlator) NewDecoder() *fact.Decoder {
	o := c.engine.opts
	return fact.NewDecoder(fact.DecoderOptions{Space: o.Space, TenantKey: o.TenantKey, SessionSecret: o.SessionSecret, SharedKeys: &c.sharedKeys, Protocols: readingOf})
}

// Defaults of Options.
const (
	// DefaultMissingAfter is how long, in event time, a call may stay open.
	DefaultMissingAfter = 15 * time.Minute
	// DefaultClockSkew is how far a producer's clock may be behind the broker's before its
	// started_at proves that a call began before its verdict.
	DefaultClockSkew = time.Second
	// DefaultMaxSessions bounds the remembered sessions. Beyond it a session is closed and
	// forgotten: of the tenant with the most sessions, of its publisher with the most, the
	// least recently active one without open calls (see maxSpared). Sessions with calls and tracked sessions (1 to 1.6 KB each,
	// plus what they store) are counted separately.
	DefaultMaxSessions = 65_536
	// DefaultMaxCalls bounds the calls of all sessions, open ones (about 3 KB each) and
	// remembered closed ones (about 1 KB each, with usual ids and arguments). Beyond it a
	// session is closed and forgotten, as with DefaultMaxSessions, of the tenant and publisher
	// with the most calls.
	DefaultMaxCalls = 262_144
	// DefaultMaxIDs bounds the tool call ids with counted occurrences, over all sessions (about
	// 150 B each), as DefaultMaxCalls bounds calls.
	DefaultMaxIDs = 1 << 20
	// DefaultMaxOpenPerSession bounds the open calls of a session. Beyond it the oldest one is
	// abandoned.
	DefaultMaxOpenPerSession = 1024
	// DefaultMaxClosedPerSession bounds the closed calls that a session remembers for late
	// events.
	DefaultMaxClosedPerSession = 256
	// DefaultMaxIDsPerSession bounds the tool call ids of a session with counted occurrences.
	// Beyond it the oldest ids are forgotten, and new ids start above the highest forgotten
	// count, so that no two calls share a call_id.
	DefaultMaxIDsPerSession = 8192
	// DefaultMaxPublishers bounds the publishers with remembered event ids.
	DefaultMaxPublishers = 1024
	// DefaultMaxEventsPerSource is how many event ids of each publisher are remembered at
	// least, to find duplicates and conflicts. Twice as many findings about a publisher are
	// remembered, so that none is emitted twice (together about 300 B).
	DefaultMaxEventsPerSource = 2048
	// DefaultMaxEvents bounds the event ids of all publishers (up to 150 B each); each
	// publisher keeps DefaultMaxEventsPerSource. An event that is delivered again after its id
	// was forgotten counts as new.
	DefaultMaxEvents = 262_144
	// DefaultMaxArgsBytes bounds the canonical arguments of open calls and the differences of
	// remembered calls, together; a tenant keeps at most as many bytes as it leaves free, so
	// one alone half of them. Arguments are kept to compare redacted copies and to say
	// where the executed arguments differ. Without them, a redacted call is inconclusive and a
	// difference has no place. Digests, which decide everything else, are always kept.
	DefaultMaxArgsBytes = 64 << 20
)

// Fixed bounds.
const (
	maxArgsPerCall   = 16 << 10 // bytes of canonical arguments of one call
	maxCallDecisions = 16       // verdicts of one call; the latest are kept, before others those that bind arguments
	maxTimeline      = 32       // steps of one call; the first are kept, and of lateSteps the first of each besides
	maxCallEvents    = 16       // event ids of one call; the first are kept
	maxOpenPerID     = 64       // open calls under one id, or of one tool without ids; beyond it the oldest is abandoned
	maxVariants      = 8        // contents under one event id
	maxTombstones    = 262_144  // forgotten sessions
	maxErasures      = 32_768   // erased sessions
	findingsPerEvent = 2        // remembered findings for each of MaxEventsPerSource: see DefaultMaxEventsPerSource
	maxStoredItems   = 1 << 19  // items stored by all tracked sessions, such as questions and outputs, usually 100 B each; beyond it a session is forgotten, of the tenant and publisher with the most items
	maxApprovals     = 65_536   // approval workflows, about 300 B each
	maxWaitingCalls  = 16       // calls recorded as waiting for one workflow; the first are kept
	maxRetryChain    = 8        // retries that are followed back
	maxApprovalWait  = 30 * 24 * time.Hour
)

// Options configure a Correlator. A zero field means its default.
type Options struct {
	// Shard is the shard whose control records count; "" accepts any.
	Shard string
	Space subject.Space

	// TenantKey returns the key of a tenant's digests (digest.Master.Tenant): digests of
	// messages without a session. Several Decoders call it at once. If it is nil or returns nothing, those digests cannot be
	// compared, and executed arguments are compared with the announced ones only.
	TenantKey func(tenant string) []byte

	// SessionSecret returns the key of a session's digests, nil if the session has none.
	// tenant and session are named as in subjects. Several Decoders call it at once, for
	// messages with arguments. It must not wait: if the key is not ready, it returns false,
	// and Input.NeedsSessionSecret reports so. If SessionSecret is nil, no session has a key.
	SessionSecret func(tenant, session string) (key *digest.Session, ready bool)

	// KeyVoucher reports whether the checkpoint key vouches for a published receipt key. If it
	// is nil, no key is trusted, and every decision is a forged record.
	KeyVoucher func(events.KeyRecord) bool

	// RetireVoucher reports whether the checkpoint key vouches for the retirement of a receipt
	// key. A record that the key signs after its retirement is a forged record. If
	// RetireVoucher is nil, no key is retired.
	RetireVoucher func(events.KeyRetirement) bool

	// Rules returns the mode of a rule (Rules and package checks have the names) for a
	// tenant. It MUST return the same mode whenever the log is replayed. If Rules is nil, the
	// log's control records of kind rules set the modes, and a rule that they do not name is in
	// ModeWarn.
	Rules func(tenant, rule string) RuleMode

	// RequireVerdict makes an execution without a recorded verdict a finding
	// (executed_without_verdict).
	RequireVerdict bool

	MissingAfter time.Duration
	// ClockSkew is DefaultClockSkew if zero, and no tolerance if negative.
	ClockSkew time.Duration

	MaxSessions         int
	MaxCalls            int
	MaxIDs              int
	MaxOpenPerSession   int
	MaxClosedPerSession int
	MaxIDsPerSession    int
	MaxPublishers       int
	MaxEventsPerSource  int
	MaxEvents           int
	MaxArgsBytes        int
}

func (o Options) withDefaults() Options {
	setDefault(&o.MissingAfter, DefaultMissingAfter)
	setDefault(&o.ClockSkew, DefaultClockSkew)
	o.ClockSkew = max(o.ClockSkew, 0)
	setDefault(&o.MaxSessions, DefaultMaxSessions)
	setDefault(&o.MaxCalls, DefaultMaxCalls)
	setDefault(&o.MaxIDs, DefaultMaxIDs)
	setDefault(&o.MaxOpenPerSession, DefaultMaxOpenPerSession)
	setDefault(&o.MaxClosedPerSession, DefaultMaxClosedPerSession)
	setDefault(&o.MaxIDsPerSession, DefaultMaxIDsPerSession)
	// A remembered call's id must not be forgotten.
	o.MaxIDsPerSession = max(o.MaxIDsPerSession, o.MaxOpenPerSession+o.MaxClosedPerSession+1)
	setDefault(&o.MaxPublishers, DefaultMaxPublishers)
	setDefault(&o.MaxEventsPerSource, DefaultMaxEventsPerSource)
	setDefault(&o.MaxEvents, DefaultMaxEvents)
	setDefault(&o.MaxArgsBytes, DefaultMaxArgsBytes)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Stats are counts of what a Correlator holds and has done.
type Stats struct {
	Seq             uint64    // of the last message applied
	EventTime       time.Time // deadlines up to it have fired
	Messages        uint64    // that were input
	Duplicates      uint64    // events seen before with equal bytes
	Findings        uint64
	Records         uint64 // call records emitted
	Sessions        int
	TrackedSessions int // sessions that the checks of a protocol follow
	Sources         int
	Open            int // open calls
	Calls           int // open and remembered calls
	IDs             int // tool call ids with counted occurrences
	ArgsBytes       int
	Evicted         uint64 // sessions forgotten for others
	ForgottenOpen   uint64 // open calls given up for want of room
}

// reportBadSubject reports a message whose subject is not one of ours.
func (c *Correlator) reportBadSubject(m events.LogMessage) {
	f := fact.EnvelopeFact(m, subject.Parsed{})
	if rest, ok := strings.CutPrefix(m.Subject, strings.TrimSuffix(c.space.All(subject.Events), ">")); ok {
		if token, _, _ := strings.Cut(rest, "."); token != "" { // the tenant's
			tenant, _ := subject.Unescape(token)
			f.Tenant, f.Key.Tenant = tenant, fact.TokenOf(tenant)
		}
	}
	c.engine.findings.reportRule(ruleSchema, nil, f, findingFrom().withContent(fact.SumOf(m.Subject, string(m.Body))).
		withCase(caseSubject).withText("the subject has not the tokens that it must have"))
}

// applyEvent applies a decoded event.
func (c *Correlator) applyEvent(in *fact.Input) {
	r := in.Event
	f := &r.Fact
	if r.IsTrace {
		rowOf(f.Protocol).applyTrace(c, in)
		return
	}
	if r.ReadError != nil {
		c.engine.reportUnreadable(f, r.ReadError)
		return
	}
	if r.Defect != "" {
		c.engine.findings.reportInvalid(f, r.Defect)
	}
	for _, what := range r.Contradictions {
		c.engine.findings.reportContradiction(f, what)
	}
	if !r.Applies {
		return
	}
	if r.HasSession {
		f.Key.Session, f.Session = r.SessionToken, r.Session
	}
	c.engine.processFact(f)
}

// applyDecision applies a message among the decisions. It is a verdict only if a vouched key
// signed it and its subject matches. Otherwise it is a finding and has no other effect.
func (c *Correlator) applyDecision(m *events.LogMessage, p *subject.Parsed, v *fact.DecodedDecision) {
	if v.Err != nil {
		c.reportForged(v.UnverifiedFact(m, p), caseUndecodable, fact.DecodeErrorText(v.Err))
		return
	}
	if what := c.signatureDefect(m, v.Signature); what != "" {
		c.reportForged(v.UnverifiedFact(m, p), "", what)
		return
	}
	if v.Misplaced {
		c.reportForged(v.UnverifiedFact(m, p), caseSubject, "tenant, verdict or session differ")
		return
	}
	if !v.Decision.Verdict.Valid() {
		c.reportForged(v.UnverifiedFact(m, p), caseVerdict, "")
		return
	}
	if note := rowOf(v.Decision.Protocol).noteDecision; note != nil {
		note(c.engine, &v.Decision)
	}
	c.engine.processFact(&v.Fact)
}

func (c *Correlator) reportForged(f *fact.Fact, caseOf, what string) {
	c.engine.findings.reportRule(ruleForged, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withCase(caseOf).withText(what))
}

// signatureDefect says what is wrong with the signature of a record; "" if nothing is.
func (c *Correlator) signatureDefect(m *events.LogMessage, s fact.VerifiedSignature) string {
	token := m.HeaderValue(events.HeaderSignature)
	if token == "" {
		return "it has no signature"
	}
	kid, err := s.Kid, error(nil)
	if s.Key == nil || !s.Key.Equal(c.keys[s.Kid]) {
		kid, err = c.records.Verify(token, m.Body)
	}
	switch {
	case err == nil && c.retiredKeys[kid]:
		return "its key was retired before"
	case err == nil:
		return ""
	case errors.Is(err, signing.ErrUnknownKey):
		return "its key is not published, or no trusted key vouches for it"
	case errors.Is(err, signing.ErrBadSignature):
		return "its signature does not verify"
	}
	return "its signature cannot be read"
}

// Required values of a receipt key's record.
const (
	keyUse       = "receipt"
	keyAlgorithm = "EdDSA"
)

// applyKeyRecord adds a published verification key if the checkpoint key vouches for it.
func (c *Correlator) applyKeyRecord(m events.LogMessage, p subject.Parsed) {
	if c.vouchForKey == nil || (c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRecord](m.Body)
	if err == nil {
		pub, decodeErr := signing.DecodePublic(k.PublicKey)
		if decodeErr == nil && k.Use == keyUse && k.Algorithm == keyAlgorithm && signing.KeyID(pub) == k.KeyID && c.vouchForKey(k) {
			c.addKey(k.KeyID, pub)
			return
		}
	}
	c.reportForged(fact.EnvelopeFact(m, subject.Parsed{}), caseKey, "")
}

// retireKey retires a key if the checkpoint key vouches for that. Publishing the key again
// does not restore it.
func (c *Correlator) retireKey(m events.LogMessage, p subject.Parsed) {
	if c.vouchForRetirement == nil || (c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
	if err != nil || !c.vouchForRetirement(k) {
		c.reportForged(fact.EnvelopeFact(m, subject.Parsed{}), caseKey, "")
		return
	}
	c.retiredKeys[k.KeyID] = true
}
