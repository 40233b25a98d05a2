package confirm

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
)

// stateAwaiting is the state of an agent that waits for its user.
const stateAwaiting = "awaiting_input"

// Apply applies the next message of the log. The caller must give messages in the order of the
// log; messages outside Options.Subjects may be left out and change nothing. An invalid event,
// or one under a contradicting subject, does not count.
func (st *Store) Apply(m events.LogMessage) {
	if m.Time.After(st.now) {
		st.now = m.Time
	}
	p, err := st.opts.Space.Parse(m.Subject)
	if err != nil || p.Class != subject.Events || p.Protocol != subject.ProtoAAEP || !slices.Contains(handledTypes, p.Type) {
		return
	}
	e := decodeEvent(m)
	if e == nil || e.SubjectType() != p.Type || (!e.IsReply() && !inSession(e, p)) {
		return
	}
	key := sourceKey{p.Tenant, p.Publisher}
	switch payload := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		st.addQuestion(key, newConfirmation(e, payload, m.Time))
	case *aaep.AwaitingClarification:
		st.addQuestion(key, newQuestion(e, payload.ReplyToken, payload.TimeoutSeconds, m.Time))
	case *aaep.ConfirmationReply:
		st.applyReply(key, payload, m.Time)
	case *aaep.ClarificationReply:
		st.noteClarified(key, payload.ReplyToken)
	case *aaep.StateChanged:
		src := st.ensurePublisher(key)
		src.noteAnnounced(sessionAgent{e.SessionID, agentOf(e)})
		if payload.FromState == stateAwaiting && payload.ToState != stateAwaiting {
			src.leaveAwaiting(e, m.Time)
		}
	case *aaep.ToolInvoked:
		st.findSession(key, e).applyInvocation(st.opts.raise(call.Invocation{
			Tenant: key.tenant, Source: key.source, ToolCallID: payload.ToolCallID, Tool: payload.Tool, Risk: payload.RiskLevel,
			Irreversible: payload.Irreversible != nil && *payload.Irreversible, Now: m.Time,
		}))
	default:
		if e.IsTerminal() {
			st.findSession(key, e).withdrawAllQuestions()
			st.sources[key].forgetAnnounced(e.SessionID)
		}
	}
}

// decodeEvent returns the valid event in a message, nil if there is none.
func decodeEvent(m events.LogMessage) *aaep.Event {
	ce, err := cloudevents.Decode(m.Header, m.Body)
	if err != nil || ce.Data == nil {
		return nil
	}
	e, err := aaep.Decode(ce.Data, strictjson.DefaultLimits)
	if err != nil {
		return nil
	}
	for _, v := range aaepschema.Strict(e.Doc) {
		if v.Level != schemas.LevelWarning {
			return nil
		}
	}
	return e
}

// inSession reports whether an event belongs to the session of its subject. For a long name the
// subject has the hash.
func inSession(e *aaep.Event, p subject.Parsed) bool {
	return e.SessionID == p.Session || subject.Escape(e.SessionID) == p.Session
}

// findSession returns the session of an event, nil if it has no questions.
func (st *Store) findSession(k sourceKey, e *aaep.Event) *sessionState {
	if src := st.sources[k]; src != nil {
		return src.sessions[e.SessionID]
	}
	return nil
}

// addQuestion adds a question. A question that reuses a token is void, and so is the earlier
// question if it is still pending: an answer could be for either. A second delivery of the same
// question changes nothing.
func (st *Store) addQuestion(k sourceKey, q *question) {
	if q == nil {
		return
	}
	id := questionID(k, q.token)
	q.id = id
	if old := st.byID[id]; old != nil {
		if old.content == q.content {
			return
		}
		q.stage = void
		if old.stage == pending {
			old.stage = void
		}
	}
	src := st.ensurePublisher(k)
	st.evictQuestions(src)
	if q.stage != void {
		st.byID[id] = q
	}
	src.order = append(src.order, q)
	s := src.sessions[q.session]
	if s == nil {
		s = &sessionState{}
		src.sessions[q.session] = s
	}
	s.questions = append(s.questions, q)
}

// ensurePublisher returns the state of a publisher, and adds it if it is missing.
func (st *Store) ensurePublisher(k sourceKey) *publisherState {
	src := st.sources[k]
	if src == nil {
		src = &publisherState{key: k, sessions: map[string]*sessionState{}, announced: map[sessionAgent]bool{}}
		st.sources[k] = src
	}
	return src
}

// noteAnnounced notes that an agent announced a state. The first ones are forgotten.
func (src *publisherState) noteAnnounced(a sessionAgent) {
	if src.announced[a] {
		return
	}
	if len(src.announcedOrder) >= maxAnnounced {
		delete(src.announced, src.announcedOrder[0])
		src.announcedOrder = src.announcedOrder[1:]
	}
	src.announced[a], src.announcedOrder = true, append(src.announcedOrder, a)
}

// forgetAnnounced forgets which agents of a session that ends announced a state: one that begins under its id is another.
func (src *publisherState) forgetAnnounced(session string) {
	if src == nil {
		return
	}
	src.announcedOrder = slices.DeleteFunc(src.announcedOrder, func(a sessionAgent) bool {
		if a.session == session {
			delete(src.announced, a)
		}
		return a.session == session
	})
}

// evictQuestions drops expired questions, and the oldest if there are too many.
func (st *Store) evictQuestions(src *publisherState) {
	for len(src.order) > 0 && (len(src.order) >= MaxQuestions || st.now.After(src.order[0].expiresAt())) {
		q := src.order[0]
		src.order = src.order[1:]
		if st.byID[q.id] == q {
			delete(st.byID, q.id)
		}
		s := src.sessions[q.session]
		if s.questions = slices.DeleteFunc(s.questions, func(o *question) bool { return o == q }); len(s.questions) == 0 {
			delete(src.sessions, q.session)
		}
	}
}

// applyReply applies a reply: the first valid one counts (section 6.3.5).
func (st *Store) applyReply(k sourceKey, r *aaep.ConfirmationReply, at time.Time) {
	q := st.pendingQuestion(k, r.ReplyToken)
	switch {
	case q == nil || q.clarifies || q.stage != pending:
	case r.Time.IsZero() || !r.Time.Before(q.publisherDeadline) || !at.Before(q.brokerDeadline):
	case aaep.IsAutomatic(r.DecidedBy):
	case r.Decision == "accept" && q.accepts && r.ModifiedAction == nil:
		q.stage, q.answeredAt, q.answeredBy = accepted, at, k.source
	case r.Decision == "accept" && q.accepts, r.Decision == "reject" && q.rejects:
		q.stage, q.answeredAt = declined, at
	}
}

// noteClarified notes that a clarification was answered. Any publisher of its tenant may do so: it permits nothing.
func (st *Store) noteClarified(k sourceKey, token string) {
	q := st.byID[questionID(k, token)]
	if q == nil {
		q = st.onlyQuestion(k.tenant, token)
	}
	if q != nil && q.clarifies && q.stage == pending {
		q.stage = answered
	}
}

// pendingQuestion finds the question that a publisher's answer is for.
func (st *Store) pendingQuestion(k sourceKey, token string) *question {
	repliers := st.opts.repliersOf(k.tenant)
	if len(repliers) == 0 {
		return st.byID[questionID(k, token)]
	}
	if !slices.Contains(repliers, k.source) {
		return nil
	}
	return st.onlyQuestion(k.tenant, token)
}

// onlyQuestion finds the question that has a token in a tenant, nil if several have it. One that was over so long ago that
// nothing can use its answer is none.
func (st *Store) onlyQuestion(tenant, token string) (found *question) {
	for other := range st.sources {
		if other.tenant != tenant {
			continue
		}
		q := st.byID[questionID(other, token)]
		switch {
		case q == nil || st.now.After(q.brokerDeadline.Add(AcceptanceLifetime)):
		case found != nil:
			return nil // two publishers use the token, so the answer is ambiguous
		default:
			found = q
		}
	}
	return found
}

// leaveAwaiting applies a change of state by which an agent leaves awaiting_input. It is the notice of the oldest question
// of that agent that was resolved without one (section 6.7.2), of all of them if no other one waits. If there is none, it withdraws
// the agent's pending questions (section 6.8); a change that was sent again may come after a question that it came before. An
// agent speaks for those that announce no state. The correlator finds by the same.
func (src *publisherState) leaveAwaiting(e *aaep.Event, now time.Time) {
	s := src.sessions[e.SessionID]
	if s == nil || slices.ContainsFunc(s.questions, func(q *question) bool { return q.noticedBy == e.EventID }) {
		return // nothing was asked, or the change is delivered again
	}
	agent := agentOf(e)
	own := func(q *question) bool {
		return q.agent == agent || !src.announced[sessionAgent{q.session, q.agent}]
	}
	before := func(q *question) bool { return own(q) && (e.Time.IsZero() || !e.Time.Before(q.askedAt)) }
	waits := slices.ContainsFunc(s.questions, func(q *question) bool { return before(q) && q.waits(e.Time, now) })
	noticed := false
	for _, q := range s.questions {
		if own(q) && q.lacksNotice(e.Time, now) && !(noticed && waits) {
			q.noticedBy, noticed = e.EventID, true
		}
	}
	if !noticed {
		s.withdrawQuestions(func(q *question) bool { return q.stage == pending && before(q) })
	}
}

// withdrawAllQuestions withdraws all questions of a session that ends.
func (s *sessionState) withdrawAllQuestions() {
	if s != nil {
		s.withdrawQuestions(func(q *question) bool { return q.stage == pending || q.stage == accepted })
	}
}

func (s *sessionState) withdrawQuestions(which func(*question) bool) {
	for _, q := range s.questions {
		if which(q) {
			q.stage = withdrawn
		}
	}
}

// applyInvocation handles an invocation on the log that was never admitted: it uses the
// confirmation that admission would have used, so that no other invocation can.
func (s *sessionState) applyInvocation(i call.Invocation) {
	if s == nil || i.ToolCallID == "" || s.questionFor(i.ToolCallID) != nil {
		return
	}
	if c := s.inferConfirmation(i); i.NeedsConfirmation() && c.ID != "" {
		for _, q := range s.questions {
			if q.id == c.ID && q.stage == accepted {
				q.call = i.ToolCallID
			}
		}
	}
}
