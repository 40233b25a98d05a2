// Package confirm finds out from the log alone which tool invocations a user has confirmed
// (AAEP chapter 6). A question is an agent.awaiting.confirmation event, an answer a
// confirmation.reply; both count only as the log has them. The package checks an answer as a
// producer must (section 6.3.4). Where the correlator only reports, this package is stricter:
// an uncertain answer is no answer. The admitter feeds a Store with Store.Apply and asks it
// with Store.Confirmation.
//
// A question is about the invocation that it names, by extensions.countersign.tool_call_id or
// extra_context.tool_call_id, and by extensions.countersign.tool or extra_context.tool if it
// names a tool. A question that names no call may be about any grave invocation of its session
// (the specification has no field for it), but only while it is the only accepted and unused
// one. Clarifications permit nothing; they are read because a change of state may be about one of them.
//
// An answer counts if
//
//   - it is valid by AAEP's schema and comes from a permitted publisher: see Options;
//   - its token is that of a pending question of the same tenant and was never used before
//     (AAEP-C-053, AAEP-C-110, AAEP-C-115);
//   - it is dated before the question's deadline by the clocks of publisher and user, and
//     stored before it by the broker's clock (AAEP-C-111); unlike in the correlator, the
//     broker's deadline has no tolerance;
//   - the agent, or one that announces the states for it, has not continued and its session has not ended (AAEP-C-109);
//   - the question allows it (AAEP-C-113), and it was given by a user, not automatically
//     (decided_by "auto:…", AAEP-C-118).
//
// An answer with a modified_action is a refusal (AAEP-C-116): it accepts another action. An
// acceptance can be used once, for AcceptanceLifetime. A missing answer never is an acceptance.
//
// The package is pure: no clock, no I/O. It is not safe for concurrent use.
package confirm

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/subject"
)

const (
	// AcceptanceLifetime is how long an acceptance can be used after it was stored.
	AcceptanceLifetime = 15 * time.Minute
	// MaxWait is the longest time that a question can wait for its answer (section 4.4.1).
	MaxWait = 24 * time.Hour
	// Horizon is how far back the log must be read.
	Horizon = MaxWait + AcceptanceLifetime

	// MaxQuestions bounds the remembered questions of one publisher, clarifications among them, about 1 KB each; the
	// oldest are dropped.
	MaxQuestions = 4096

	// maxAnnounced bounds the remembered agents of one publisher that announced a state, about 200 bytes each. A forgotten
	// one counts as one that announced none, so that another agent can withdraw its questions.
	maxAnnounced = 2048
)

// Options say which publishers may answer.
type Options struct {
	Space subject.Space
	// Repliers are the publishers of a tenant with answers that count, for every publisher of it. Without any,
	// a publisher's answers count for its own questions: any client that can publish as the runtime can then
	// answer in the user's place. It may be nil, and its answer may change.
	Repliers func(tenant string) []string
	// Entry is what the catalogue says of a publisher's tool, nil if it says nothing. It may be nil, and its
	// answer may change: an invocation is graded by what holds when it is read.
	Entry func(tenant, source, tool string) *publisher.Entry
}

// raise grades an invocation as admission does.
func (o Options) raise(i call.Invocation) call.Invocation {
	if o.Entry == nil {
		return i
	}
	return i.RaisedBy(o.Entry(i.Tenant, i.Source, i.Tool))
}

func (o Options) repliersOf(tenant string) []string {
	if o.Repliers == nil {
		return nil
	}
	return o.Repliers(tenant)
}

// mayAnswer reports whether a publisher's answers count for the questions of another one of its tenant.
func (o Options) mayAnswer(asks sourceKey, replier string) bool {
	if list := o.repliersOf(asks.tenant); len(list) > 0 {
		return slices.Contains(list, replier)
	}
	return asks.source == replier
}

// handledTypes are the event types that Apply reads, as in subjects.
var handledTypes = []string{
	"agent.awaiting.confirmation", typeReply, "agent.state.changed", "agent.tool.invoked",
	"agent.session.completed", "agent.session.errored", "agent.session.cancelled", "agent.awaiting.clarification", aaep.TypeClarificationReply,
}

const typeReply = aaep.TypeConfirmationReply

// Subjects are the subject filters of the messages that Apply needs.
func (o Options) Subjects() []string {
	all := strings.TrimSuffix(o.Space.All(subject.Events), ">") + "*.*." + subject.ProtoAAEP + ".*."
	list := make([]string, len(handledTypes))
	for i, t := range handledTypes {
		list[i] = all + t
	}
	return list
}

// ReplySubjects are the usual subjects of answers to an invocation's questions: without a
// session, as replies have none, or with the session of the question.
func (o Options) ReplySubjects(i call.Invocation) []string {
	repliers := o.repliersOf(i.Tenant)
	if len(repliers) == 0 {
		repliers = []string{i.Source}
	}
	var list []string
	for _, r := range repliers {
		for _, session := range []string{"", i.Session} {
			list = append(list, o.Space.Event(i.Tenant, r, subject.ProtoAAEP, session, typeReply))
		}
	}
	return list
}

// SessionSubjects are the subjects of the events that can take an acceptance of an invocation back,
// such as the end of its session.
func (o Options) SessionSubjects(i call.Invocation) []string {
	var list []string
	for _, t := range handledTypes {
		if strings.HasPrefix(t, "agent.") {
			list = append(list, o.Space.Event(i.Tenant, i.Source, subject.ProtoAAEP, i.Session, t))
		}
	}
	return list
}

// Store holds the questions and answers read so far. The zero Store is not usable; see New.
type Store struct {
	opts    Options
	now     time.Time // the latest broker time
	sources map[sourceKey]*publisherState
	byID    map[string]*question
}

type sourceKey struct{ tenant, source string }

// publisherState holds one publisher's questions.
type publisherState struct {
	key      sourceKey
	order    []*question // oldest first
	sessions map[string]*sessionState

	announced      map[sessionAgent]bool // the agents that announced a state, at most maxAnnounced
	announcedOrder []sessionAgent        // oldest first
}

// sessionAgent is an agent of a session; see agentOf.
type sessionAgent struct {
	session string
	agent   [sha256.Size]byte
}

type sessionState struct {
	questions []*question // oldest first
}

// New returns an empty store.
func New(o Options) *Store {
	return &Store{opts: o, sources: map[sourceKey]*publisherState{}, byID: map[string]*question{}}
}

// Confirmation implements call.Confirmations.
func (st *Store) Confirmation(i call.Invocation) call.Confirmation {
	src := st.sources[sourceKey{i.Tenant, i.Source}]
	if src == nil || i.Session == "" {
		return call.Confirmation{}
	}
	s := src.sessions[i.Session]
	if s == nil {
		return call.Confirmation{}
	}
	s = st.withPermittedAnswers(src.key, s)
	if q := s.questionFor(i.ToolCallID); q != nil {
		return q.toConfirmation(i)
	}
	if !i.NeedsConfirmation() {
		return call.Confirmation{}
	}
	return s.inferConfirmation(i)
}

// withPermittedAnswers is a session in which an acceptance counts only if its publisher may answer still: who may was
// perhaps another one when the answer came.
func (st *Store) withPermittedAnswers(k sourceKey, s *sessionState) *sessionState {
	strange := func(q *question) bool { return q.stage == accepted && !st.opts.mayAnswer(k, q.answeredBy) }
	if !slices.ContainsFunc(s.questions, strange) {
		return s
	}
	clean := &sessionState{}
	for _, q := range s.questions {
		if strange(q) {
			open := *q
			open.stage = pending
			q = &open
		}
		clean.questions = append(clean.questions, q)
	}
	return clean
}

// questionFor returns the latest question that names a call; earlier ones do not count.
func (s *sessionState) questionFor(callID string) *question {
	for _, q := range slices.Backward(s.questions) {
		if callID != "" && q.call == callID {
			return q
		}
	}
	return nil
}

// inferConfirmation finds the one acceptance that may be meant for a grave invocation. Without
// any, it returns the state of the latest question.
func (s *sessionState) inferConfirmation(i call.Invocation) call.Confirmation {
	var all, fitting []*question
	for _, q := range s.questions {
		if q.clarifies || q.call != "" || (q.tool != "" && q.tool != i.Tool) {
			continue
		}
		all = append(all, q)
		if q.statusAt(i.Now) == call.ConfirmationAccepted && !q.understatesRisk(i) {
			fitting = append(fitting, q)
		}
	}
	switch {
	case len(fitting) == 1:
		return fitting[0].toConfirmation(i)
	case len(fitting) > 1:
		return call.Confirmation{Status: call.ConfirmationAmbiguous}
	case len(all) > 0:
		return all[len(all)-1].toConfirmation(i)
	}
	return call.Confirmation{}
}

// Use marks an acceptance as used by the call with an id; callID is "" if the call is not
// known.
func (st *Store) Use(id, callID string) {
	if q := st.byID[id]; q != nil {
		q.used = true
		if q.call == "" {
			q.call, q.callOfUse = callID, true
		}
	}
}

// Release undoes Use: a question that names no call may again be about any.
func (st *Store) Release(id string) {
	if q := st.byID[id]; q != nil {
		if q.used = false; q.callOfUse {
			q.call, q.callOfUse = "", false
		}
	}
}

// questionID returns the ID of a question, under which a use is recorded; it is valid as a key
// of a KV bucket. It is the same for every question with the same token.
func questionID(k sourceKey, token string) string {
	sum := sha256.Sum256([]byte(token))
	text := subject.Escape(k.tenant) + "." + subject.Escape(k.source) + "." + hex.EncodeToString(sum[:])
	return strings.ReplaceAll(text, "~", "=") // no escaped text contains =
}
