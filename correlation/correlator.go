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
	"github.com/countersign-dev/countersign/events/strictjson"
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
// it, in order. Messages must come in the order of their sequence; one with a
// sequence not above the last one's was applied before and gives nothing.
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
	case p.Class == subject.Control:
		protocols.applyControl(c, *m, *p)
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
// alone for so long. It happens with the first input message with a broker time that is
// not before it; on an idle shard the caller must write a tick then. A long idleness is
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
	protocols.nextDeadline(c.engine, &next)
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

// OldestUndecided is when the oldest open call became known that is not
// decided yet: it has no verdict, or one that waits for a person. It looks at
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

// Defaults of Options.
const (
	// DefaultMissingAfter is how long, in log time, a call may stay open.
	DefaultMissingAfter = 15 * time.Minute
	// DefaultClockSkew is how far a producer's clock may be behind the broker's
	// before its started_at proves anything.
	DefaultClockSkew = time.Second
	// DefaultMaxSessions bounds the sessions that are remembered; one is closed and
	// forgotten for a new one: of the tenant that has most, and of its publisher that
	// has most, the least recently active one. The sessions with open calls and
	// the sessions that are followed in their order (about 1 KB each, and what they remember)
	// are counted apart.
	DefaultMaxSessions = 65_536
	// DefaultMaxCalls bounds the calls of all sessions together, open ones and
	// closed ones that are remembered (about 3 KB and 1 KB each, usual ids and arguments
	// included); beyond it a session is closed and forgotten in the same way, of those
	// that have most calls.
	DefaultMaxCalls = 262_144
	// DefaultMaxIDs bounds the tool call ids of all sessions together with
	// counted occurrences (about 150 B each), in the same way.
	DefaultMaxIDs = 1 << 20
	// DefaultMaxOpenPerSession bounds the open calls of one session; beyond it
	// the oldest one is abandoned.
	DefaultMaxOpenPerSession = 1024
	// DefaultMaxClosedPerSession is how many closed calls of a session are
	// remembered, for late events.
	DefaultMaxClosedPerSession = 256
	// DefaultMaxIDsPerSession bounds the tool call ids of a session with
	// counted occurrences. Ids that come after it was reached start above the
	// highest count that was forgotten, so that no two calls share a call_id.
	DefaultMaxIDsPerSession = 8192
	// DefaultMaxSources bounds the publishers with remembered event ids.
	DefaultMaxSources = 1024
	// DefaultMaxEventsPerSource is how many event ids of every publisher are
	// remembered at least to tell duplicates from conflicts, and twice as many of
	// its findings so that none is emitted twice (together about 300 B).
	DefaultMaxEventsPerSource = 2048
	// DefaultMaxEvents is how many event ids of all publishers are remembered, as
	// long as there is none that has more than it may have at least (about 100 B
	// each). What is delivered again later than that is taken for news.
	DefaultMaxEvents = 262_144
	// DefaultMaxArgsBytes bounds the canonical arguments that are kept, over all
	// open calls, to compare redacted copies and to say where what ran differs; and
	// with them the places that remembered calls differ in. Without its arguments a
	// redacted call is inconclusive, and a difference has no place; digests, which
	// settle everything else, are kept always.
	DefaultMaxArgsBytes = 64 << 20
)

// Fixed bounds.
const (
	maxArgsPerCall   = 16 << 10 // bytes of canonical arguments kept for one call
	maxCallDecisions = 16       // verdicts kept for one call; the latest stay
	maxTimeline      = 32       // steps kept for one call; the first stay
	maxCallEvents    = 16       // event ids kept for one call; the first stay
	maxOpenPerID     = 64       // open calls under one id, or of one tool without ids; beyond it the oldest is abandoned
	maxVariants      = 8        // contents told apart under one event id
	maxTombstones    = 262_144  // forgotten sessions: their highest occurrence, and whether they had ended
	findingsPerEvent = 2        // of which it is remembered that they were emitted: see DefaultMaxEventsPerSource
	maxStoredItems   = 1 << 19  // things that all followed sessions together remember (invocations, questions, outputs, web results, …), of usually 100 B each; beyond it the least recently active ones are forgotten of the tenant and publisher that have most
	maxApprovals     = 65_536   // approval workflows: their status, and what they were opened for (about 300 B each)
	maxWaitingCalls  = 16       // calls that are remembered to wait for one workflow; the first stay
	maxRetryChain    = 8        // retries that are followed back
	maxApprovalWait  = 30 * 24 * time.Hour
)

// Options configure a Correlator. The zero value of each field means its
// default.
type Options struct {
	// Shard is the shard of the control records that count; empty accepts any.
	Shard string
	Space subject.Space

	// TenantKey gives the key of a tenant's digests (digest.Master.Tenant), which are
	// those of what has no session and of decisions from before there were session
	// keys. It may be called by several Decoders at once. If it is nil or gives nothing,
	// such digests cannot be compared and executed arguments are held against the
	// announced ones only.
	TenantKey func(tenant string) []byte

	// SessionKey gives the key of a session's digests, nil if there is none, by the
	// names that subjects give. It is asked by several Decoders at once, for messages
	// that hold arguments, and must not wait: where ready is false, see Input.Wants. If
	// it is nil, no session has a key.
	SessionKey func(tenant, session string) (key *digest.Session, ready bool)

	// KeyVoucher reports whether the checkpoint key vouches for a published
	// receipt key. Nil trusts no key: every decision is then a forged record.
	KeyVoucher func(events.KeyRecord) bool

	// RetireVoucher reports whether the checkpoint key took a receipt key back. What
	// the key signs behind that record is a forged record. Nil retires no key.
	RetireVoucher func(events.KeyRetirement) bool

	// Rules says what becomes of a tenant's findings of a rule, by the names of
	// Rules and of package catalogue. It must give the same answers whenever the log
	// is replayed: what it takes away, later findings do not refer to. If it is nil,
	// the log itself says so, by its control records of kind rules; a rule that they
	// do not name is ModeWarn.
	Rules func(tenant, rule string) Mode

	// RequireVerdict makes an execution that no verdict was recorded for finding
	// executed_without_verdict.
	RequireVerdict bool

	MissingAfter time.Duration
	// ClockSkew: negative means none at all.
	ClockSkew time.Duration

	MaxSessions         int
	MaxCalls            int
	MaxIDs              int
	MaxOpenPerSession   int
	MaxClosedPerSession int
	MaxIDsPerSession    int
	MaxSources          int
	MaxEventsPerSource  int
	MaxEvents           int
	MaxArgsBytes        int
}

// Mode says what becomes of the findings of a rule.
type Mode int

// The modes.
const (
	ModeWarn    Mode = iota // they are emitted
	ModeOff                 // they are not
	ModeEnforce             // they are emitted and marked, for the programs that act on them
)

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
	// Every call that is remembered keeps its id.
	o.MaxIDsPerSession = max(o.MaxIDsPerSession, o.MaxOpenPerSession+o.MaxClosedPerSession+1)
	setDefault(&o.MaxSources, DefaultMaxSources)
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

// Stats says what a Correlator holds and has done.
type Stats struct {
	Seq             uint64    // last message applied
	EventTime       time.Time // how far time has passed; deadlines up to it have fired
	Messages        uint64    // messages that counted as input
	Duplicates      uint64    // events that had been seen before, to the letter
	Findings        uint64
	Records         uint64 // call records emitted
	Sessions        int
	TrackedSessions int // sessions that are followed in their order
	Sources         int
	Open            int // open calls
	Calls           int // open calls and remembered ones
	IDs             int // tool call ids with counted occurrences
	ArgsBytes       int
	Evicted         uint64 // sessions forgotten to make room
}

// reportBadSubject reports a message with a subject that is none of ours.
func (c *Correlator) reportBadSubject(m events.LogMessage) {
	f := fact.Unread(m, subject.Parsed{})
	prefix, classes := strings.TrimSuffix(c.space.All(subject.Events), ".>"), ""
	if rest, ok := strings.CutPrefix(m.Subject, prefix+"."); ok {
		classes, _, _ = strings.Cut(rest, ".")
	}
	if classes != "" {
		value, _ := subject.Unescape(classes)
		f.Tenant, f.Key.Tenant = value, fact.TokenOf(value)
	}
	c.engine.findings.reportRule(ruleSchema, nil, f, findingFrom().withContent(fact.SumOf(m.Subject, string(m.Body))).
		withCase(caseSubject).withText("the subject has not the tokens that it must have"))
}

// applyEvent takes what was read of an event.
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
		f.Key.Session, f.Session = r.SessionKey, r.Session
	}
	c.engine.processFact(f)
}

// reportUnreadable reports an event that could not be read at all.
func (e *engine) reportUnreadable(f *fact.Fact, err error) {
	e.findings.reportInvalid(f, fact.DecodeErrorText(err))
	var strict *strictjson.Error
	if row := rowOf(f.Protocol); errors.As(err, &strict) {
		if check := unreadableCheck(row, strict.Code); check != "" {
			e.findings.emitFinding(checkRules[check], nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(fact.DecodeErrorText(err)))
		}
		if row.severalCheck != "" && (strict.Code == strictjson.TrailingData || strict.Code == strictjson.NotObject) {
			e.findings.emitFinding(checkRules[row.severalCheck], nil, f, findingFrom(f.EventID).withContent(f.ContentSum))
		}
	}
	e.noteRefusedNumber(f)
}

func (fs *findings) reportInvalid(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(what))
}

func (fs *findings) reportContradiction(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withCase(caseSubject).withText(what))
}

// applyDecision takes a message among the decisions. Only one that is signed by a
// vouched key and published where it belongs is a verdict; the others are
// findings and nothing else.
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

// signatureDefect says what is wrong with a decision's signature, "" if nothing is.
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

// applyApproval takes an approval record. Approvals do not change what stands: an
// approved call is decided again, and it is the decision that counts.
func (c *Correlator) applyApproval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.engine.findings.reportInvalid(fact.Unread(m, p), fact.DecodeErrorText(err))
		return
	}
	c.engine.approvals.recordApprovalStatus(workflowKey{fact.TokenOf(p.Tenant), fact.SumOf(a.WorkflowID)}, a.Status, m.Time)
	c.checkApprovalRecord(m, p, a)
}

// What a receipt key must be.
const (
	keyUse       = "receipt"
	keyAlgorithm = "EdDSA"
)

// applyKeyRecord takes a published verification key if the checkpoint key vouches for it.
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
	c.reportForged(fact.Unread(m, subject.Parsed{}), caseKey, "")
}

// retireKey takes a key back if the checkpoint key says so. It stays retired, also
// when its record is published again.
func (c *Correlator) retireKey(m events.LogMessage, p subject.Parsed) {
	if c.vouchForRetirement == nil || (c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
	if err != nil || !c.vouchForRetirement(k) {
		c.reportForged(fact.Unread(m, subject.Parsed{}), caseKey, "")
		return
	}
	c.retiredKeys[k.KeyID] = true
}
