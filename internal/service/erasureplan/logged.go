package erasureplan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// The evidence only finds the messages of a plan: a user of ClickHouse can write there that a message is of another session.
// What an erasure may delete is decided by the messages of the log (TestErasureIsDecidedByTheLog).

// ErrDiffers reports that the evidence has another message for that of a plan than the log.
var ErrDiffers = errors.New("the evidence is not what the log has, so nothing is erased: run `countersign verify`, and find out which user changed ClickHouse")

// checkLogged checks by the log that each message of a plan is one of the tenant and of the plan's sessions, or has no
// session; spare drops those without a session whose header on the log names a held one. Erased messages are not checked.
func (e Evidence) checkLogged(ctx context.Context, p *Plan, spare sessionlessHolds) error {
	if e.Read == nil || e.NamesOf == nil {
		return nil
	}
	planned, held := map[string]bool{}, map[uint64]bool{}
	for _, session := range p.Sessions {
		planned[session] = true
	}
	for _, seq := range p.Seqs {
		m := p.logged[seq]
		if m == nil {
			var err error
			if m, err = e.readMessage(ctx, seq); err != nil {
				return err
			}
		}
		if m == nil {
			if e.Erased != nil && e.Erased(seq) {
				continue
			}
			return fmt.Errorf("%w: sequence %d is not on the log, and no erasure record names it", ErrDiffers, seq)
		}
		loose, sessionless := p.sessionlessBySeq[seq]
		session, err := e.checkMessage(*m, planned, sessionless)
		if err != nil {
			return err
		}
		if at := p.times[seq]; !at.Equal(m.Time) {
			return fmt.Errorf("%w: sequence %d is of %v by the evidence and of %v by the log", ErrDiffers, seq, at, m.Time.UTC())
		}
		if !sessionless {
			if m.Time.After(p.newest[session]) {
				p.newest[session] = m.Time
			}
			if m.Time.After(p.Newest) {
				p.Newest, p.NewestSession = m.Time, session
			}
			continue
		}
		loose.sessions = append(loose.sessions, namedSessions(m.Header)...)
		p.sessionlessBySeq[seq] = loose
		if held[seq], err = spare.coverMessage(ctx, e, seq, loose); err != nil {
			return err
		}
	}
	maps.DeleteFunc(p.sessionlessBySeq, func(seq uint64, _ sessionlessMessage) bool { return held[seq] })
	p.Seqs, p.Sessionless = slices.DeleteFunc(p.Seqs, func(seq uint64) bool { return held[seq] }), len(p.sessionlessBySeq)
	return nil
}

// addLogged adds the messages of a session that the log has by their subjects, though a row of the evidence be gone. The
// subjects of approvals name no session: the evidence alone finds those.
func (e Evidence) addLogged(ctx context.Context, p *Plan, session string) error {
	if e.Find == nil || e.NamesOf == nil {
		return nil
	}
	own, err := e.ownName(ctx, session)
	if err != nil {
		return err
	}
	for _, subj := range e.Space.OfSession(e.Tenant, own) {
		for m, err := range e.Find(ctx, subj) {
			if err != nil {
				return err
			}
			if _, err := e.checkMessage(*m, map[string]bool{session: true}, false); errors.Is(err, ErrDiffers) {
				continue // a subject that is not written as it should be names no session
			} else if err != nil {
				return err
			}
			if _, known := p.times[m.Seq]; !known {
				p.times[m.Seq] = m.Time
			}
			p.Seqs = append(p.Seqs, m.Seq)
			p.noteLogged(m)
		}
	}
	return nil
}

// noteLogged keeps a message that was read, if there is one, for checkLogged. Its names must not be in its body.
func (p *Plan) noteLogged(m *events.LogMessage) {
	if m == nil {
		return
	}
	if p.logged == nil {
		p.logged = map[uint64]*events.LogMessage{}
	}
	p.logged[m.Seq] = &events.LogMessage{Seq: m.Seq, Subject: m.Subject, Header: m.Header, Time: m.Time}
}

// checkMessage checks that a message of the log is one of the tenant and of a planned session, or has no session. A control
// record has no tenant, so it is never one of a plan. It returns the session.
func (e Evidence) checkMessage(m events.LogMessage, planned map[string]bool, sessionless bool) (session string, err error) {
	names, err := e.NamesOf(m)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(names, func(k events.SessionID) bool {
		ours := k.Tenant == e.Tenant || k.Tenant == "" && strings.HasPrefix(m.Subject, e.eventPrefix())
		return ours && sessionless == (k.Session == "") && (sessionless || planned[k.Session])
	})
	if i < 0 {
		return "", fmt.Errorf("%w: sequence %d (%.200q) is not of tenant %q and a planned session", ErrDiffers, m.Seq, m.Subject, e.Tenant)
	}
	return names[i].Session, nil
}

// sessionsNaming lists the sessions in which a message of the log names a data subject. The evidence says which messages
// may: those whose records contain text. Without Read its word counts.
func (e Evidence) sessionsNaming(ctx context.Context, person, text string) (sessions []string, err error) {
	err = e.texts().RecordsContaining(ctx, e.Shard, e.Tenant, text, func(session string, seq uint64) error {
		if session == "" || slices.Contains(sessions, session) {
			return nil
		}
		if e.Read != nil {
			m, err := e.readMessage(ctx, seq)
			if err != nil || m == nil { // erased since
				return err
			}
			if err := e.checkNaming(*m, map[string]bool{session: true}, person, text); err != nil {
				return err
			}
		}
		sessions = append(sessions, session)
		return nil
	})
	slices.Sort(sessions)
	return sessions, err
}

// checkNaming checks that a message of the log is one of a session, or has none, and names a data subject.
func (e Evidence) checkNaming(m events.LogMessage, sessions map[string]bool, person, text string) error {
	if e.NamesOf != nil && len(sessions) > 0 {
		if _, err := e.checkMessage(m, sessions, false); err != nil {
			return err
		}
	}
	if !namesPerson(m, person, text) {
		return fmt.Errorf("%w: sequence %d does not name the data subject", ErrDiffers, m.Seq)
	}
	return nil
}

// namesPerson reports whether a message names a data subject anywhere, at least where its record would; text is the JSON
// form of the name.
func namesPerson(m events.LogMessage, person, text string) bool {
	if containsName(string(m.Body), person) {
		return true
	}
	if body, err := strictjson.CanonicalBytes(m.Body); err == nil && strings.Contains(string(body), text) {
		return true
	}
	for _, values := range m.Header {
		if slices.ContainsFunc(values, func(v string) bool { return containsName(v, person) }) {
			return true
		}
	}
	return slices.ContainsFunc(strings.Split(m.Subject, "."), func(token string) bool {
		value, _ := subject.Unescape(token)
		return value == person
	})
}
