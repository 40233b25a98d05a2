package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// lineage links sessions with their parents: a sub-agent's session with the session, or the
// call in it, that started it. Parent and child have the same tenant.
//
// The child itself names its parent: by the id of an event, by the traceparent of a call, by
// the parent's name (AHP-010), by the id of another session of its publisher, or by a W3C
// trace that another session carried first. The link with the highest rank counts; see the
// Link constants of package events. An id is ambiguous, and links nothing, if two publishers
// used it, or one publisher in two sessions. No link makes a session its own ancestor. A
// shared correlation_id says that sessions are related, but not how; it links nothing.
//
// maxParentLinks bounds both tables. Emitted records stay.
type lineage struct {
	parentLinks *tables.Shared[fact.SourceSession, parentLink] // by child
	linkTargets *tables.Shared[fact.Sum, sessionLink]          // by what a child may name; the sum includes its kind
}

func newLineage() *lineage {
	return &lineage{parentLinks: tables.NewShared[fact.SourceSession, parentLink](maxParentLinks), linkTargets: tables.NewShared[fact.Sum, sessionLink](4 * maxParentLinks)}
}

// maxParentLinks bounds the sessions with a known parent. linkTargets holds four times as many
// entries (about 250 B each).
const maxParentLinks = 16_384

// maxAncestors bounds how many ancestors of a session are checked for a cycle.
const maxAncestors = 32

// sessionRegister is what lineage needs to know of sessions, and tells them.
type sessionRegister interface {
	// hasSession reports whether the engine knows calls of a session.
	hasSession(key fact.SourceSession) bool
	// upgradeParentLink tells that a session's parent link is new, or has a higher rank.
	upgradeParentLink(key fact.SourceSession, rank int8)
}

// parentOf is the parent link of a session; the zero value if it has none.
func (x *lineage) parentOf(key fact.SourceSession) parentLink {
	link, _ := x.parentLinks.Get(key.Tenant, key)
	return link
}

// sessionLink names a session, or a call in it.
type sessionLink struct {
	origin    *fact.Origin // shared; does not change
	callSum   fact.Sum
	ambiguous bool // several sessions used the same target
}

// isZero reports whether r links to no session.
func (r sessionLink) isZero() bool { return r.origin == nil }

// parentLink is a session's link to its parent.
type parentLink struct {
	sessionLink
	rank int8
}

// linkNames are the names of the ranks. A link of a higher rank replaces one of a lower rank.
var linkNames = [...]string{linkByTrace: events.LinkTrace, linkBySession: events.LinkSession, linkByGoal: events.LinkGoal, linkBySpan: events.LinkSpan, linkByEvent: events.LinkEvent}

const (
	linkByTrace = 1 + iota
	linkBySession
	linkByGoal
	linkBySpan
	linkByEvent
)

// resolveParentSession applies what a fact says of its session's parent.
func (x *lineage) resolveParentSession(f *fact.Fact, register sessionRegister) {
	l := &f.LineageRefs
	if l.IsZero() && !l.AnnouncesHandoff || f.Key.Session == noSession {
		return
	}
	if l.AnnouncesHandoff {
		x.recordLinkTarget(f, eventTarget(f), nil)
	}
	var old parentLink
	if k := x.parentLinks.Lookup(f.Key.Tenant, f.Key); k != nil {
		old = *k
	}
	if old.rank < linkByEvent && l.Correlation != "" {
		x.linkParentSession(f, register, linkByEvent, x.findLinkTarget(f, l.CorrelationSum))
	}
	if l.Trace != "" {
		x.resolveTraceParent(f, old.rank, register)
	}
	if old.rank < linkByGoal && l.ParentSession != "" {
		x.linkParentSession(f, register, linkByGoal, siblingLink(f, l.ParentSession, subject.Escape(l.ParentSession)))
	}
	if old.rank < linkBySession && l.Correlation != "" {
		sibling := f.Key
		sibling.Session = l.CorrelationToken()
		if register.hasSession(sibling) {
			x.linkParentSession(f, register, linkBySession, siblingLink(f, l.Correlation, sibling.Session))
		}
	}
}

func (x *lineage) resolveTraceParent(f *fact.Fact, rank int8, register sessionRegister) {
	if rank < linkBySpan {
		x.linkParentSession(f, register, linkBySpan, x.findLinkTarget(f, fact.SumOf("span", f.LineageRefs.Trace[:fact.SpanEnd])))
	}
	trace := fact.SumOf("trace", f.LineageRefs.Trace[:fact.TraceEnd])
	first, carried := x.linkTargets.Get(f.Key.Tenant, trace)
	switch {
	case !carried:
		x.linkTargets.Put(f.Key.Tenant, trace, sessionLink{origin: originFor(f, nil)})
	case rank < linkByTrace:
		x.linkParentSession(f, register, linkByTrace, first)
	}
}

// siblingLink is a link to a session of the same publisher, by its id.
func siblingLink(f *fact.Fact, session, token string) sessionLink {
	key := f.Key
	key.Session = token
	return sessionLink{origin: &fact.Origin{Key: key, Tenant: f.Tenant, Source: f.Source, Session: fact.BoundID(session)}}
}

// originFor is the origin of a fact, in shared memory if the call has the same.
func originFor(f *fact.Fact, c *call) *fact.Origin {
	if c != nil && *c.session.Origin == f.Origin {
		return c.session.Origin
	}
	o := f.Origin
	return &o
}

// findLinkTarget returns the session of a target; the zero value if there is none or several.
func (x *lineage) findLinkTarget(f *fact.Fact, target fact.Sum) sessionLink {
	r := x.linkTargets.Lookup(f.Key.Tenant, target)
	if r == nil || r.ambiguous {
		return sessionLink{}
	}
	return *r
}

// linkParentSession records the parent of a fact's session.
func (x *lineage) linkParentSession(f *fact.Fact, register sessionRegister, rank int8, r sessionLink) {
	if r.isZero() || r.origin.Key == f.Key || r.origin.Key.Session == noSession {
		return
	}
	if old, _ := x.parentLinks.Get(f.Key.Tenant, f.Key); old.rank >= rank {
		return
	}
	for up, n := r.origin.Key, 0; ; n++ {
		above, has := x.parentLinks.Get(up.Tenant, up)
		if !has {
			break
		}
		if above.origin.Key == f.Key || n == maxAncestors {
			return
		}
		up = above.origin.Key
	}
	x.parentLinks.Put(f.Key.Tenant, f.Key, parentLink{r, rank})
	register.upgradeParentLink(f.Key, rank)
}

// eventTarget is a fact's event as a link target; zero if it has no id.
func eventTarget(f *fact.Fact) fact.Sum {
	if f.EventID == "" {
		return fact.Sum{}
	}
	return f.IDSum()
}

// recordLinkTarget records the session that used a target, or that several did.
func (x *lineage) recordLinkTarget(f *fact.Fact, target fact.Sum, c *call) {
	if target.IsZero() {
		return
	}
	switch old := x.linkTargets.Lookup(f.Key.Tenant, target); {
	case old == nil:
		r := sessionLink{origin: originFor(f, c)}
		if c != nil {
			r.callSum = c.idSum()
		}
		*x.linkTargets.Add(f.Key.Tenant, target) = r
	case old.origin.Key != f.Key:
		old.ambiguous = true
	}
}

// recordCallTargets records a call under the ids by which a sub-agent may name it.
func (x *lineage) recordCallTargets(c *call, f *fact.Fact) {
	if c.hasWeakScope() {
		return
	}
	if f.Kind == fact.KindPre {
		x.recordLinkTarget(f, eventTarget(f), c)
	}
	if f.LineageRefs.Trace != "" {
		x.recordSpanTarget(c, f)
	}
}

// recordSpanTarget records the first call that carried a span. A call with the same span in
// another session is a child. If several calls of one session carried the span, it links to
// the session only.
func (x *lineage) recordSpanTarget(c *call, f *fact.Fact) {
	span := fact.SumOf("span", f.LineageRefs.Trace[:fact.SpanEnd])
	switch old := x.linkTargets.Lookup(f.Key.Tenant, span); {
	case old == nil:
		x.linkTargets.Put(f.Key.Tenant, span, sessionLink{origin: originFor(f, c), callSum: c.idSum()})
	case old.origin.Key == f.Key && old.callSum != c.idSum():
		old.callSum = fact.Sum{}
	}
}
