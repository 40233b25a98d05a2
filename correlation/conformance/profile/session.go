package profile

import (
	"hash/fnv"
	"iter"
	"maps"

	"github.com/countersign-dev/countersign/correlation/fact"
)

// Bounds of what is remembered of one session. What they make it forget is
// judged in favour of no publisher: a session that reaches them is marked as partial.
const (
	MaxIDs    = 4096 // event ids, to tell what came again
	MaxCalls  = 4096 // calls, to tell what they claim and whether they ended
	maxTokens = 65_536
)

// Key is a session of a publisher.
type Key struct{ Source, Session string }

// KeyOf is the key of a session as events name it. It is bounded.
func KeyOf(source, session string) Key { return Key{fact.BoundID(source), fact.BoundID(session)} }

// Sessions are those of one tenant in one protocol.
type Sessions struct {
	sessions map[Key]*Session
	tokens   map[string]Key
}

// NewSessions returns no sessions.
func NewSessions() *Sessions {
	return &Sessions{sessions: map[Key]*Session{}, tokens: map[string]Key{}}
}

// Of returns a session, which it makes if it is new.
func (s *Sessions) Of(k Key) *Session {
	o := s.sessions[k]
	if o == nil {
		o = &Session{Counts: map[Facet]uint64{}, ids: map[uint64]bool{}, calls: map[string]Call{}, open: map[Facet]int{}, unanswered: map[Facet]int{}}
		s.sessions[k] = o
	}
	return o
}

// Find returns a session, nil if it was not seen.
func (s *Sessions) Find(k Key) *Session { return s.sessions[k] }

// All are the sessions, in no order.
func (s *Sessions) All() iter.Seq2[Key, *Session] { return maps.All(s.sessions) }

// NoteToken notes the session of a token, by which messages without a session name it.
func (s *Sessions) NoteToken(token string, k Key) {
	if token != "" && len(s.tokens) < maxTokens {
		s.tokens[token] = k
	}
}

// OfToken is the session of a token, otherwise if none was noted.
func (s *Sessions) OfToken(token string, otherwise Key) Key {
	if k, known := s.tokens[token]; known {
		return k
	}
	return otherwise
}

// Session is what a session's events gave to judge.
type Session struct {
	Counts     map[Facet]uint64
	ids        map[uint64]bool
	calls      map[string]Call
	open       map[Facet]int // see AddOpen
	unanswered map[Facet]int // see AddUnanswered
	ended      bool
	partial    bool
}

// Call is what events say of one call. A call that claims to have waited, or
// does not say that it did not, must carry its answer; one that was announced must
// end.
type Call struct{ NeedsVerdict, HasVerdict, Announced, Ended bool }

func (c Call) merge(d Call) Call {
	return Call{c.NeedsVerdict || d.NeedsVerdict, c.HasVerdict || d.HasVerdict, c.Announced || d.Announced, c.Ended || d.Ended}
}

// AddFacets counts facets.
func (o *Session) AddFacets(list Facets) {
	for _, f := range list {
		o.Counts[f]++
	}
}

// AddEvent counts one event, and what it is beside others, and reports whether it had not
// come before.
func (o *Session) AddEvent(id string, list Facets) (fresh bool) {
	if o.Counts[Event] > 0 {
		o.Counts[FollowingEvents]++
	}
	o.AddFacets(list)
	if id != "" && o.NoteID(id) {
		o.Counts[RepeatedEvents]++
		return false
	}
	return true
}

// NoteID notes an id and reports whether it was noted before.
func (o *Session) NoteID(id string) (known bool) {
	key := hashID(id)
	switch {
	case o.ids[key]:
		return true
	case len(o.ids) >= MaxIDs:
		o.partial = true
	default:
		o.ids[key] = true
	}
	return false
}

// HasID reports whether an id was noted.
func (o *Session) HasID(id string) bool { return o.ids[hashID(id)] }

func hashID(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// AddCall adds what an event says of a call.
func (o *Session) AddCall(id string, c Call) {
	known, there := o.calls[id]
	if !there && len(o.calls) >= MaxCalls {
		o.partial = true
		return
	}
	o.calls[id] = known.merge(c)
}

// AddOpen counts what began (n is 1) or ended (-1). The facet shows as long as something is open
// and the session has not ended.
func (o *Session) AddOpen(f Facet, n int) { o.open[f] += n }

// AddUnanswered counts requests (n is 1) and answers (-1). The facet shows as long as an answer is
// missing, also after the end of the session.
func (o *Session) AddUnanswered(f Facet, n int) { o.unanswered[f] += n }

// End notes that the session has ended.
func (o *Session) End() { o.ended = true }

// IsPartial reports whether the session was too large for all of it to be remembered.
func (o *Session) IsPartial() bool { return o.partial }

// AddOpenCounts adds to counts what a session shows only when all of it was seen.
func (o *Session) AddOpenCounts(counts map[Facet]uint64) {
	for f, n := range o.open {
		if n > 0 && !o.ended {
			counts[f] += uint64(n)
		}
	}
	for f, n := range o.unanswered {
		if n > 0 {
			counts[f] += uint64(n)
		}
	}
	for _, c := range o.calls {
		if c.NeedsVerdict && !c.HasVerdict {
			counts[CallsWithoutVerdict]++
		}
		if c.Announced && !c.Ended && !o.ended {
			counts[OpenCalls]++
		}
	}
}
