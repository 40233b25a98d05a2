package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
)

// Defaults of Options.
const (
	// DefaultMissingAfter is how long, in log time, a call may stay open.
	DefaultMissingAfter = 15 * time.Minute
	// DefaultClockSkew is how far a producer's clock may be behind the broker's
	// before its started_at proves anything.
	DefaultClockSkew = time.Second
	// DefaultMaxSessions bounds the sessions that are remembered; one is closed and
	// forgotten for a new one: of the tenant that has most, and of its publisher that
	// has most, the least recently active one. The sessions whose calls are open and
	// the sessions whose order is followed (about 1 KB each, and what they remember)
	// are counted apart.
	DefaultMaxSessions = 65_536
	// DefaultMaxCalls bounds the calls of all sessions together, open ones and
	// closed ones that are remembered (about 3 KB and 1 KB each, usual ids and arguments
	// included); beyond it a session is closed and forgotten in the same way, of those
	// that have most calls.
	DefaultMaxCalls = 262_144
	// DefaultMaxIDs bounds the tool call ids of all sessions together whose
	// occurrences are counted (about 150 B each), in the same way.
	DefaultMaxIDs = 1 << 20
	// DefaultMaxOpenPerSession bounds the open calls of one session; beyond it
	// the oldest one is abandoned.
	DefaultMaxOpenPerSession = 1024
	// DefaultMaxClosedPerSession is how many closed calls of a session are
	// remembered, for late events.
	DefaultMaxClosedPerSession = 256
	// DefaultMaxIDsPerSession bounds the tool call ids of a session whose
	// occurrences are counted. Ids that come after it was reached start above the
	// highest count that was forgotten, so that no two calls share a call_id.
	DefaultMaxIDsPerSession = 8192
	// DefaultMaxSources bounds the publishers whose event ids are remembered.
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
	maxTombstones    = 262_144  // forgotten sessions whose highest occurrence is remembered, and whether they had ended
	findingsPerEvent = 2        // of which it is remembered that they were emitted: see DefaultMaxEventsPerSource
	maxStoredItems   = 1 << 19  // things that all followed sessions together remember (invocations, questions, outputs, web results, …), of usually 100 B each; beyond it the least recently active ones are forgotten of the tenant and publisher that have most
	maxApprovals     = 65_536   // approval workflows whose status is remembered, and what they were opened for (about 300 B each)
	maxWaitingCalls  = 16       // calls that are remembered to wait for one workflow; the first stay
	maxRetryChain    = 8        // retries that are followed back
	maxApprovalWait  = 30 * 24 * time.Hour
)

// Options configure a Correlator. The zero value of each field means its
// default.
type Options struct {
	// Shard is the shard whose control records count; empty accepts any.
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
	ModeEnforce             // they are emitted and marked, for whoever acts on them
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
	TrackedSessions int // sessions whose order is followed
	Sources         int
	Open            int // open calls
	Calls           int // open calls and remembered ones
	IDs             int // tool call ids whose occurrences are counted
	ArgsBytes       int
	Evicted         uint64 // sessions forgotten to make room
}
