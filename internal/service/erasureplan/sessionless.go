package erasureplan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/expiry"
)

// A message without a session is planned by itself: a refused request that could not be parsed,
// or an event on a subject without a session. Its header can still name a session; its bytes,
// which the evidence does not have, a data subject.

// MaxSessionless bounds the messages without a session that one erasure by policy deletes.
const MaxSessionless = 20_000

// ErrHasSession reports that a sequence is of a message with a session.
var ErrHasSession = errors.New("only messages without a session are erased by sequence")

// decisionReach is how many sequences behind its request a decision is at most.
const decisionReach = 64

// sessionlessMessage is a planned message without a session.
type sessionlessMessage struct {
	sessions []string // named by its header
	hidden   bool     // its header names a session that the evidence does not show
	bodiless bool     // the evidence does not have its body
}

func parseSessionless(text string) sessionlessMessage {
	rec, err := evidence.ParseRecord([]byte(text))
	if err != nil {
		return sessionlessMessage{hidden: true, bodiless: true}
	}
	l := sessionlessMessage{bodiless: rec.Reason != "", sessions: namedSessions(rec.Headers)}
	l.hidden = slices.ContainsFunc(l.sessions, func(v string) bool { return strings.Contains(v, "[redacted:") })
	return l
}

// namedSessions are the sessions that a header names.
func namedSessions(header map[string][]string) (list []string) {
	for name, values := range header {
		if strings.EqualFold(name, events.HeaderSession) {
			list = append(list, values...)
		}
	}
	return list
}

// eventPrefix is the prefix of the subjects of the tenant's events.
func (e Evidence) eventPrefix() string {
	return strings.TrimSuffix(e.Space.AllOf(subject.Events, e.Tenant), ">")
}

func (p *Plan) addSessionless(r expiry.SessionlessRecord) {
	if p.sessionlessBySeq == nil {
		p.sessionlessBySeq = map[uint64]sessionlessMessage{}
	}
	if _, twice := p.sessionlessBySeq[r.Seq]; twice {
		return
	}
	p.sessionlessBySeq[r.Seq] = parseSessionless(r.Record)
	p.Seqs, p.times[r.Seq], p.Sessionless = append(p.Seqs, r.Seq), r.Time, len(p.sessionlessBySeq)
	if p.sessionlessBySeq[r.Seq].bodiless {
		p.Withheld++
	}
}

// readMessage reads a message of the log, nil if it is erased.
func (e Evidence) readMessage(ctx context.Context, seq uint64) (*events.LogMessage, error) {
	if e.Read == nil || e.Erased != nil && e.Erased(seq) {
		return nil, nil
	}
	return e.Read(ctx, seq)
}

// addByHeader adds the messages without a session that name one of the plan's sessions in a header, with their
// decisions, but for those that a legal hold in spare covers. It reads the header in the log, since the evidence may have
// it redacted: each message once.
func (e Evidence) addByHeader(ctx context.Context, p *Plan, spare sessionlessHolds) error {
	if len(p.Sessions) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, session := range p.Sessions {
		own, err := e.ownName(ctx, session)
		if err != nil {
			return err
		}
		wanted[session], wanted[own] = true, true
	}
	return e.texts().SessionlessRecords(ctx, e.Shard, e.Tenant, e.eventPrefix(), `"`+events.HeaderSession+`":[`, 1, endOfTime, func(r expiry.SessionlessRecord) error {
		names, header := parseSessionless(r.Record).sessions, map[string][]string(nil)
		m, err := e.readMessage(ctx, r.Seq)
		if err != nil {
			return err
		}
		if m != nil {
			names, header = namedSessions(m.Header), m.Header
		}
		if !slices.ContainsFunc(names, func(n string) bool { return wanted[n] || wanted[sessionToken(n)] }) {
			return nil
		}
		if held, err := spare.cover(ctx, e, r); err != nil || held {
			return err
		}
		p.addSessionless(r)
		p.noteLogged(m)
		return e.addDecision(ctx, p, r.Seq, header[events.HeaderDecisionID], spare)
	})
}

// endOfTime is later than all records.
var endOfTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// addDecision adds the decision of a request without a session, unless a legal hold in spare covers it.
func (e Evidence) addDecision(ctx context.Context, p *Plan, seq uint64, id []string, spare sessionlessHolds) error {
	if len(id) != 1 {
		return nil
	}
	text, err := jsonForm(id[0])
	if err != nil {
		return err
	}
	return e.DB.Scan(ctx, e.Shard, seq+1, seq+decisionReach, func(r storage.EvidenceRow) error {
		if r.Tenant != e.Tenant || r.Session != "" || r.Kind != evidence.KindDecision || !strings.Contains(r.Record, `"decision_id":`+text) {
			return nil
		}
		if m, err := e.readMessage(ctx, r.Seq); err != nil || m != nil && !strings.Contains(string(m.Body), `"decision_id":`+text) {
			return err
		}
		d := expiry.SessionlessRecord{Seq: r.Seq, Kind: r.Kind, Time: r.BrokerTime, Record: r.Record}
		held, err := spare.cover(ctx, e, d)
		if err == nil && !held {
			p.addSessionless(d)
		}
		return err
	})
}

// ownName is the name that a session's messages use, if the evidence has another name for it.
func (e Evidence) ownName(ctx context.Context, session string) (own string, err error) {
	if own = session; !evidence.MaskedNames([]string{session}) {
		return own, nil
	}
	found := errors.New("found")
	err = e.DB.Chain(ctx, e.Tenant, session, func(r storage.EvidenceRow) error {
		if r.Shard != e.Shard {
			return nil
		}
		m, err := e.readMessage(ctx, r.Seq)
		if err != nil || m == nil {
			return err
		}
		if e.NamesOf != nil {
			if _, err := e.checkMessage(*m, map[string]bool{session: true}, false); err != nil {
				return err
			}
		}
		if at, err := e.Space.Parse(m.Subject); err == nil && at.Session != "" {
			own = at.Session
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		err = nil
	}
	return own, err
}

// addUnreadable adds messages without a session, and sessions, that name a data subject in bytes
// that are not in the evidence.
func (e Evidence) addUnreadable(ctx context.Context, p *Plan, person string) error {
	return e.texts().RecordsWithoutBody(ctx, e.Shard, e.Tenant, e.eventPrefix(), func(r expiry.SessionlessRecord) error {
		if r.Session != "" && slices.Contains(p.Sessions, r.Session) {
			return nil
		}
		m, err := e.readMessage(ctx, r.Seq)
		if err != nil || m == nil || !containsName(string(m.Body), person) {
			return err
		}
		if r.Session == "" {
			p.addSessionless(r)
		} else {
			p.Sessions = append(p.Sessions, r.Session)
		}
		return nil
	})
}

// containsName reports whether a text contains a name as a word.
func containsName(text, name string) bool {
	inWord := func(c byte) bool {
		return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
	}
	for at := 0; name != ""; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			break
		}
		i += at
		end := i + len(name)
		if (i == 0 || !inWord(text[i-1])) && (end == len(text) || !inWord(text[end])) {
			return true
		}
		at = i + 1
	}
	return false
}

// addSequences adds messages by their sequences.
func (e Evidence) addSequences(ctx context.Context, p *Plan, text string) error {
	spans, err := retention.ParseSeqs(text)
	if err != nil {
		return err
	}
	for _, s := range spans {
		next := s[0]
		err := e.DB.Scan(ctx, e.Shard, s[0], s[1], func(r storage.EvidenceRow) error {
			ours := r.Tenant == e.Tenant || r.Tenant == "" && r.Kind == evidence.KindUnparseable && strings.HasPrefix(r.Subject, e.eventPrefix())
			switch {
			case r.Seq != next:
				return fmt.Errorf("%w: sequence %d is not in the evidence", ErrHasSession, next)
			case !ours:
				return fmt.Errorf("%w: sequence %d is not one of tenant %q", ErrHasSession, r.Seq, e.Tenant)
			case r.Session != "":
				return fmt.Errorf("%w: sequence %d is of session %q; erase that", ErrHasSession, r.Seq, r.Session)
			}
			next++
			if r.BrokerTime.After(p.Newest) {
				p.Newest, p.NewestSession = r.BrokerTime, fmt.Sprintf("sequence %d", r.Seq)
			}
			p.Kinds[r.Kind]++
			p.addSessionless(expiry.SessionlessRecord{Seq: r.Seq, Kind: r.Kind, Time: r.BrokerTime, Record: r.Record})
			return nil
		})
		if err == nil && next <= s[1] {
			err = fmt.Errorf("%w: sequence %d is not in the evidence", ErrHasSession, next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addOlder adds the first messages without a session from before a time that are neither erased nor held, up to
// MaxSessionless. Held ones do not count, so they cannot block the others.
func (e Evidence) addOlder(ctx context.Context, p *Plan, before time.Time, holds sessionlessHolds) error {
	enough := errors.New("enough")
	remain := false
	p.SessionlessFrom = e.SessionlessFrom
	err := e.texts().SessionlessRecords(ctx, e.Shard, e.Tenant, e.eventPrefix(), "{", e.SessionlessFrom, before, func(r expiry.SessionlessRecord) error {
		if e.Erased != nil && e.Erased(r.Seq) {
			if !remain {
				p.SessionlessFrom = r.Seq + 1
			}
			return nil
		}
		remain = true
		if held, err := holds.cover(ctx, e, r); err != nil || held {
			return err
		}
		p.Kinds[r.Kind]++
		if p.addSessionless(r); p.Sessionless == MaxSessionless {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return err
}

// sessionlessHold is a legal hold on messages without a session.
type sessionlessHold struct {
	retention.Hold
	named map[uint64]bool // whose evidence names the data subject of the hold
}

// sessionlessHolds are the holds of a tenant.
type sessionlessHolds []sessionlessHold

func (e Evidence) sessionlessHolds(ctx context.Context) (list sessionlessHolds, err error) {
	for _, h := range e.Holds {
		hold, err := e.newSessionlessHold(ctx, h)
		if err != nil {
			return nil, err
		}
		list = append(list, hold)
	}
	return list, nil
}

// cover reports whether one of the holds covers a message without a session.
func (list sessionlessHolds) cover(ctx context.Context, e Evidence, r expiry.SessionlessRecord) (held bool, err error) {
	if len(list) == 0 {
		return false, nil
	}
	return list.coverMessage(ctx, e, r.Seq, parseSessionless(r.Record))
}

func (list sessionlessHolds) coverMessage(ctx context.Context, e Evidence, seq uint64, m sessionlessMessage) (bool, error) {
	for _, h := range list {
		if held, err := h.covers(ctx, e, seq, m); err != nil || held {
			return held, err
		}
	}
	return false, nil
}

func (e Evidence) newSessionlessHold(ctx context.Context, hold retention.Hold) (sessionlessHold, error) {
	h := sessionlessHold{Hold: hold, named: map[uint64]bool{}}
	if h.Subject == "" {
		return h, nil
	}
	text, err := jsonForm(h.Subject)
	if err != nil {
		return h, err
	}
	seqs, err := e.texts().SessionlessContaining(ctx, e.Shard, e.Tenant, text)
	for _, seq := range seqs {
		h.named[seq] = true
	}
	return h, err
}

// covers reports whether the hold covers a message without a session: it is on the tenant, on a session that the header
// names, or on a data subject that the record or the bytes name. A name that the evidence does not show counts as any
// session's.
func (h sessionlessHold) covers(ctx context.Context, e Evidence, seq uint64, m sessionlessMessage) (bool, error) {
	switch {
	case h.Scope == (retention.Scope{}):
		return true, nil
	case h.Session != "":
		return m.hidden || slices.ContainsFunc(m.sessions, func(s string) bool { return s == h.Session || sessionToken(s) == h.Session }), nil
	case h.named[seq] || !m.bodiless:
		return h.named[seq], nil
	}
	logged, err := e.readMessage(ctx, seq)
	return logged != nil && containsName(string(logged.Body), h.Subject), err
}

// sessionToken is a session's name as records hold it.
func sessionToken(session string) string {
	value, _ := subject.Unescape(subject.Escape(session))
	return value
}
