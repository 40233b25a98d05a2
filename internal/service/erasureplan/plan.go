// Package erasureplan finds, in the evidence and in the log, the messages that an erasure or an
// expiry covers: those of sessions, and those without a session with a header or content that names
// one. The auditor's custodian and the command line make plans with Evidence.NewPlan; nothing is
// erased here. It is separate from package erasures so that the correlator, which only reads
// erasure records, does not link ClickHouse.
package erasureplan

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/storage/read"
)

// MaxSessions is the largest number of sessions in one erasure.
const MaxSessions = retention.MaxBatch

// Errors of planning.
var (
	ErrNothing = errors.New("there is no record of it in the evidence of this log")
	ErrTooMany = fmt.Errorf("more than %d sessions at once", MaxSessions)
	ErrNotIdle = errors.New("the session may go on")
)

// Plan lists the messages that an erasure deletes from the log.
type Plan struct {
	Sessions      []string
	Seqs          []uint64       // ascending, without duplicates
	Kinds         map[string]int // records by kind
	Sessionless   int            // number of messages without a session
	Newest        time.Time      // broker time of the newest record of these sessions
	NewestSession string         // the session of that record
	Redacted      int            // records that hold commitments
	Withheld      int            // records without a body; their bytes are in quarantine
	// SessionlessFrom is Evidence.SessionlessFrom for the next plan by policy.
	SessionlessFrom uint64

	openCalls        map[string]bool // by call id
	sessionlessBySeq map[uint64]sessionlessMessage
	logged           map[uint64]*events.LogMessage // read already, without bodies
	times            map[uint64]time.Time          // of the planned messages by the evidence
	newest           map[string]time.Time          // by session: of its newest planned message on the log
}

// Evidence is the data that plans are made from.
type Evidence struct {
	DB     *read.Reader
	Shard  string
	Tenant string
	Space  subject.Space
	// Read returns a message of the log, nil if it is erased. Without Read, only the evidence is
	// searched.
	Read func(ctx context.Context, seq uint64) (*events.LogMessage, error)
	// Find yields the messages of the log on a subject, in order. Without it, only the evidence finds messages.
	Find func(ctx context.Context, subj string) iter.Seq2[*events.LogMessage, error]
	// NamesOf returns the names that the session of a message of the log may have in the evidence. With it, the log decides
	// what a plan has.
	NamesOf func(events.LogMessage) ([]events.SessionID, error)
	// Erased reports whether a message is erased. Holds are the legal holds that keep messages
	// without a session from expiring.
	Erased func(seq uint64) bool
	Holds  []retention.Hold
	// SessionlessFrom is a sequence up to which every message without a session that a policy lets go is erased: a plan
	// by policy looks for them from there on.
	SessionlessFrom uint64
}

// texts finds records by their text.
func (e Evidence) texts() *expiry.Reader { return expiry.New(e.DB.Pool()) }

// NewPlan finds the messages that an erasure covers in one incarnation of the log. For a session:
// its messages, and those without a session that name it in a header. For a data subject: the
// messages of all sessions that name it, and those without a session that name it, also in bytes
// that the evidence does not have; once the order has begun, only what was planned then.
// Otherwise: the given sequences, or what a policy no longer keeps.
func (e Evidence) NewPlan(ctx context.Context, o retention.Order) (Plan, error) {
	s, p := o.Scope, Plan{Kinds: map[string]int{}, openCalls: map[string]bool{}, times: map[uint64]time.Time{}, newest: map[string]time.Time{}, Sessions: []string{o.Session}}
	var spare sessionlessHolds // a policy erases what no hold covers; any other order is refused
	switch {
	case o.ByPolicy():
		var err error
		if spare, err = e.sessionlessHolds(ctx); err != nil {
			return p, err
		}
		p.Sessions = o.Sessions
		if !o.SessionlessBefore.IsZero() {
			if err := e.addOlder(ctx, &p, o.SessionlessBefore.Time, spare); err != nil {
				return p, err
			}
		}
	case s.Seqs != "":
		p.Sessions = nil
		if err := e.addSequences(ctx, &p, s.Seqs); err != nil {
			return p, err
		}
	case s.Session == "":
		text, err := jsonForm(s.Subject)
		if err != nil {
			return p, err
		}
		if p.Sessions, err = e.sessionsNaming(ctx, s.Subject, text); err != nil {
			return p, err
		}
		if err := e.addMatching(ctx, &p, s.Subject, text); err != nil {
			return p, err
		}
		if err := e.addUnreadable(ctx, &p, s.Subject); err != nil {
			return p, err
		}
		if o.Planned != nil {
			p.Sessions = slices.Clone(o.Planned.Sessions)
			p.Seqs = slices.DeleteFunc(p.Seqs, func(seq uint64) bool { return seq > o.Planned.Through })
		}
	}
	if len(p.Sessions) > MaxSessions {
		return p, fmt.Errorf("%w: %d", ErrTooMany, len(p.Sessions))
	}
	for _, session := range p.Sessions {
		if err := errors.Join(e.addSession(ctx, &p, session), e.addLogged(ctx, &p, session)); err != nil {
			return p, err
		}
	}
	if err := e.addByHeader(ctx, &p, spare); err != nil {
		return p, err
	}
	slices.Sort(p.Seqs)
	p.Seqs = slices.Compact(p.Seqs)
	if err := e.checkLogged(ctx, &p, spare); err != nil {
		return p, err
	}
	if len(p.Seqs) == 0 {
		return p, fmt.Errorf("%w: tenant %q, %s", ErrNothing, e.Tenant, s.Unnamed())
	}
	if len(p.Sessions) == 0 {
		p.Sessions = []string{}
	}
	return p, nil
}

// Planned is what an order that begins keeps of the plan.
func (p Plan) Planned() (planned retention.Planned) {
	planned.Sessions = p.Sessions
	if len(p.Seqs) > 0 {
		planned.Through = p.Seqs[len(p.Seqs)-1]
	}
	return planned
}

// addMatching adds the messages without a session whose records contain text, the JSON form of a data subject's name.
func (e Evidence) addMatching(ctx context.Context, p *Plan, person, text string) error {
	return e.texts().SessionlessRecords(ctx, e.Shard, e.Tenant, e.eventPrefix(), text, 1, endOfTime, func(r expiry.SessionlessRecord) error {
		m, err := e.readMessage(ctx, r.Seq)
		if err != nil {
			return err
		}
		if m != nil {
			if err := e.checkNaming(*m, nil, person, text); err != nil {
				return err
			}
		}
		p.addSessionless(r)
		return nil
	})
}

func (e Evidence) addSession(ctx context.Context, p *Plan, session string) error {
	return e.DB.Chain(ctx, e.Tenant, session, func(r storage.EvidenceRow) error {
		if r.Shard != e.Shard {
			return nil
		}
		p.Seqs, p.times[r.Seq] = append(p.Seqs, r.Seq), r.BrokerTime
		p.Kinds[r.Kind]++
		if r.BrokerTime.After(p.Newest) {
			p.Newest, p.NewestSession = r.BrokerTime, session
		}
		if rec, err := evidence.ParseRecord([]byte(r.Record)); err == nil {
			if len(rec.Redactions) > 0 {
				p.Redacted++
			}
			if rec.Reason != "" {
				p.Withheld++
			}
			p.noteCall(r.Kind, rec.Body)
		}
		return nil
	})
}

// noteCall keeps whether a call is open by its newest record, if the record is one of a call.
func (p *Plan) noteCall(kind string, body []byte) {
	if kind != evidence.KindCall {
		return
	}
	c, err := events.DecodeRecord[events.Call](body)
	switch {
	case err != nil:
	case c.State != events.CallOpen:
		delete(p.openCalls, c.CallID)
	default:
		p.openCalls[c.CallID] = true
	}
}

// OpenCalls is how many calls of the sessions are open. The correlator forgets them, and their ends
// will be orphans.
func (p Plan) OpenCalls() int { return len(p.openCalls) }

// DefaultIdle is how long a session must have been idle before it is erased, unless an operator
// sets another time.
const DefaultIdle = 15 * time.Minute

// CheckIdle returns ErrNotIdle unless all sessions have been idle for so long.
func (p Plan) CheckIdle(now time.Time, atLeast time.Duration) error {
	if since := now.Sub(p.Newest); since < atLeast {
		return fmt.Errorf("%w: the last record of %q is %s old, and %s are asked for", ErrNotIdle, p.NewestSession, since.Round(time.Second), atLeast)
	}
	return nil
}

// CheckPeriods returns ErrNotIdle unless the log's newest message of each session is older than the session is kept, and
// ErrNothing if the log has none of it.
func (p Plan) CheckPeriods(now time.Time, keep func(session string) time.Duration) error {
	for _, session := range p.Sessions {
		newest, known := p.newest[session]
		switch period, since := keep(session), now.Sub(newest); {
		case !known:
			return fmt.Errorf("%w: no message of session %q is on the log", ErrNothing, session)
		case period == 0 || since < period:
			return fmt.Errorf("%w: the last message of %q is %s old, and is kept for %s", ErrNotIdle, session, since.Round(time.Second), period)
		}
	}
	return nil
}

// BlockingHold returns the legal hold that an erasure would violate, nil if there is none.
func (e Evidence) BlockingHold(ctx context.Context, s retention.State, p Plan, subject string) (*retention.Hold, error) {
	n := subjectSessions{ctx: ctx, e: e}
	hold := s.BlockingHold(p.Sessions, subject, n.isNamed)
	if hold != nil || n.failed != nil || len(p.sessionlessBySeq) == 0 {
		return hold, n.failed
	}
	for i := range s.Holds {
		h, err := e.newSessionlessHold(ctx, s.Holds[i])
		if err != nil {
			return nil, err
		}
		for seq, m := range p.sessionlessBySeq {
			if covers, err := h.covers(ctx, e, seq, m); err != nil || covers {
				return &s.Holds[i], err
			}
		}
	}
	return nil, nil
}

// SessionlessHeld reports whether a legal hold covers a message without a session.
func (e Evidence) SessionlessHeld(ctx context.Context, s retention.State, r storage.EvidenceRow) (bool, error) {
	hold, err := e.BlockingHold(ctx, s, Plan{sessionlessBySeq: map[uint64]sessionlessMessage{r.Seq: parseSessionless(r.Record)}}, "")
	return hold != nil, err
}

// Unheld returns the first sessions, up to most, that no legal hold covers. Held sessions do
// not count, so they cannot block the others.
func (e Evidence) Unheld(ctx context.Context, s retention.State, sessions []string, most int) (free []string, err error) {
	n := subjectSessions{ctx: ctx, e: e}
	for _, session := range sessions {
		hold := s.BlockingHold([]string{session}, "", n.isNamed)
		if n.failed != nil {
			return nil, n.failed
		}
		if hold == nil {
			free = append(free, session)
		}
		if len(free) == most {
			break
		}
	}
	return free, nil
}

// subjectSessions caches which sessions name a data subject; it queries the evidence once for
// each subject.
type subjectSessions struct {
	ctx    context.Context
	e      Evidence
	known  map[string]map[string]bool // sessions by data subject
	failed error
}

func (n *subjectSessions) isNamed(session, subject string) bool {
	if _, known := n.known[subject]; !known && n.failed == nil {
		var list []string
		text, err := jsonForm(subject)
		if err == nil {
			list, err = n.e.texts().SessionsContaining(n.ctx, n.e.Shard, n.e.Tenant, text)
		}
		if n.failed = err; n.known == nil {
			n.known = map[string]map[string]bool{}
		}
		n.known[subject] = map[string]bool{}
		for _, s := range list {
			n.known[subject][s] = true
		}
	}
	return n.known[subject][session]
}

// jsonForm is a value as records hold it.
func jsonForm(value string) (string, error) {
	b, err := strictjson.Canonical(value)
	return string(b), err
}
