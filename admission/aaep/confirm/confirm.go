// Package confirm knows which tool invocations a user has confirmed (AAEP
// chapter 6), from the log alone: a question is an agent.awaiting.confirmation
// event, an answer a confirmation.reply, and both count only as the log has them.
// It checks an answer as a producer must (section 6.3.4), and it is stricter than
// the correlator, which reports, where that can do no harm: what it is not sure of
// it does not know.
//
// A question is about the invocation that it names, by
// extensions.countersign.tool_call_id or extra_context.tool_call_id, and by
// extensions.countersign.tool or extra_context.tool if it names a tool. One that
// names no call may be about any grave invocation of its session (the
// specification has no field for it), but only while it is the only one that was
// accepted and not used.
//
// An answer counts if
//
//   - it is valid by AAEP's schema and comes from who may answer: see Options;
//   - its token is that of a question of the same tenant that waits for an answer,
//     and was never used before (AAEP-C-053, AAEP-C-110, AAEP-C-115);
//   - it is dated before the question's deadline by the clocks of publisher and
//     user, and stored before it by the broker's (AAEP-C-111); unlike the
//     correlator, nothing is added to the broker's;
//   - the agent has not gone on and its session has not ended (AAEP-C-109);
//   - the question allows it (AAEP-C-113), and nothing answered in the user's place
//     (decided_by "auto:…", AAEP-C-118).
//
// An answer with a modified_action is a no (AAEP-C-116): what was accepted is
// something else. An acceptance can be used once and for AcceptedFor. Silence
// never is one.
//
// It is pure: no clock, no I/O; it is not safe for concurrent use.
package confirm

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/subject"
)

const (
	// AcceptedFor is how long an acceptance can be used, from when it was stored.
	AcceptanceLifetime = 15 * time.Minute
	// MaxWait is the longest that a question can wait for its answer (section
	// 4.4.1).
	MaxWait = 24 * time.Hour
	// Horizon is how far back the log must be read to know what there is to know.
	Horizon = MaxWait + AcceptanceLifetime

	// MaxQuestions bounds the questions of one publisher that are remembered, about
	// 400 bytes each; the oldest are forgotten.
	MaxQuestions = 4096
)

// Options say whose answers count.
type Options struct {
	Space subject.Space
	// Repliers are the publishers whose answers count, for every publisher of their
	// tenant. If there are none, a publisher's answers count for its own questions:
	// whoever can publish as the runtime can then answer in the user's place.
	Repliers []string
}

// handledTypes are what Apply reads, by the type of their subject.
var handledTypes = []string{
	"agent.awaiting.confirmation", typeReply, "agent.state.changed", "agent.tool.invoked",
	"agent.session.completed", "agent.session.errored", "agent.session.cancelled",
}

const typeReply = aaep.TypeConfirmationReply

// Subjects are what Apply needs to see, as subject filters.
func (o Options) Subjects() []string {
	all := strings.TrimSuffix(o.Space.All(subject.Events), ">") + "*.*." + subject.ProtoAAEP + ".*."
	list := make([]string, len(handledTypes))
	for i, t := range handledTypes {
		list[i] = all + t
	}
	return list
}

// ReplySubjects are where answers that concern an invocation usually are:
// without a session, as they have none, or with that of the question.
func (o Options) ReplySubjects(i call.Invocation) []string {
	repliers := o.Repliers
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

// Store is what is known. The zero Ledger is not usable; see New.
type Store struct {
	opts    Options
	now     time.Time // the latest broker time
	sources map[sourceKey]*publisherState
	byID    map[string]*question
}

type sourceKey struct{ tenant, source string }

// publisherState is one publisher.
type publisherState struct {
	key      sourceKey
	order    []*question // oldest first
	sessions map[string]*sessionState
}

type sessionState struct {
	awaiting  bool        // the agent said that it waits for input
	questions []*question // oldest first
}

// New makes a ledger that has seen nothing.
func New(o Options) *Store {
	return &Store{opts: o, sources: map[sourceKey]*publisherState{}, byID: map[string]*question{}}
}

// Confirmation implements call.Confirmations.
func (l *Store) Confirmation(i call.Invocation) call.Confirmation {
	src := l.sources[sourceKey{i.Tenant, i.Source}]
	if src == nil || i.Session == "" {
		return call.Confirmation{}
	}
	s := src.sessions[i.Session]
	if s == nil {
		return call.Confirmation{}
	}
	if q := s.questionFor(i.ToolCallID); q != nil {
		return q.toConfirmation(i)
	}
	if !i.NeedsConfirmation() {
		return call.Confirmation{}
	}
	return s.inferConfirmation(i)
}

// questionFor is the latest question that names a call; it is the one that counts.
func (s *sessionState) questionFor(callID string) *question {
	for _, q := range slices.Backward(s.questions) {
		if callID != "" && q.call == callID {
			return q
		}
	}
	return nil
}

// inferConfirmation finds the one acceptance that a grave invocation may be meant by.
// Without any, the latest question says where things stand.
func (s *sessionState) inferConfirmation(i call.Invocation) call.Confirmation {
	var all, fitting []*question
	for _, q := range s.questions {
		if q.call != "" || (q.tool != "" && q.tool != i.Tool) {
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

// Use notes that an acceptance was used, for the call with an id, or that it
// turned out to have been used by somebody else.
func (l *Store) Use(id, callID string) {
	if q := l.byID[id]; q != nil {
		q.used = true
		if q.call == "" {
			q.call = callID
		}
	}
}

// Release undoes Use.
func (l *Store) Release(id string) {
	if q := l.byID[id]; q != nil {
		q.used = false
	}
}

// questionID gives the ID of a question: what a use is recorded under, fit for a
// key of a KV bucket. It is the same for every question under the same token.
func questionID(k sourceKey, token string) string {
	sum := sha256.Sum256([]byte(token))
	text := subject.Escape(k.tenant) + "." + subject.Escape(k.source) + "." + hex.EncodeToString(sum[:])
	return strings.ReplaceAll(text, "~", "=") // which no escaped text has
}
