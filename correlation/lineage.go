package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// lineage links sessions with the calls and sessions of the same tenant that they
// belong to: sub-agents with what started them.
//
// A link is what the child itself says: the id of an event, the traceparent of a
// call, the name of its parent session (AHP-010), the id of a session of its
// publisher, or a W3C trace that another session carried first. The surest link counts;
// see the Link constants of package events. An id that two publishers used, or one
// publisher in two sessions, is ambiguous and links nothing. No link makes a session its
// own ancestor. A correlation_id that several sessions merely share says that they are
// related, not how, and links nothing.
//
// Both tables are bounded by maxParentLinks; the oldest entries are forgotten, and
// records that were emitted stay.
type lineage struct {
	parentLinks *tables.FIFO[fact.SourceSession, parentLink] // of sessions that belong to another
	linkTargets *tables.FIFO[linkKey, sessionLink]
}

func newLineage() *lineage {
	return &lineage{parentLinks: tables.NewFIFO[fact.SourceSession, parentLink](maxParentLinks), linkTargets: tables.NewFIFO[linkKey, sessionLink](4 * maxParentLinks)}
}

// maxParentLinks bounds the sessions with a known parent. Four times as many events,
// calls and traces are known by their session (about 250 B each).
const maxParentLinks = 16_384

// maxAncestors is how far up a session's ancestors are looked through.
const maxAncestors = 32

// sessionRegister is what lineage asks and tells the sessions with known calls.
type sessionRegister interface {
	// hasSession reports whether calls of a session are known. hash is that of the key.
	hasSession(key fact.SourceSession, hash uint32) bool
	// upgradeParentLink says that the parent of a session became known, or better known.
	upgradeParentLink(key fact.SourceSession, rank int8)
}

// parentOf is what a session belongs to; the zero value if that is not known.
func (x *lineage) parentOf(key fact.SourceSession) parentLink {
	link, _ := x.parentLinks.Get(key)
	return link
}

// linkKey is something that a child may name: the hash says of what kind.
type linkKey struct {
	tenant string
	target fact.Sum
}

// sessionLink is a session, and a call in it if one is meant.
type sessionLink struct {
	origin    *fact.Origin // as one of its messages named it; shared, and never changed
	callSum   fact.Sum
	ambiguous bool // several sessions used the same target
}

// isZero reports whether r links to no session.
func (r sessionLink) isZero() bool { return r.origin == nil }

// parentLink is what a session belongs to.
type parentLink struct {
	sessionLink
	rank int8
}

// linkNames are the ways in which a session can say what it belongs to, by rank: a
// higher one replaces a lower one.
var linkNames = [...]string{1: events.LinkTrace, 2: events.LinkSession, 3: events.LinkGoal, 4: events.LinkSpan, 5: events.LinkEvent}

const (
	linkByTrace = 1 + iota
	linkBySession
	linkByGoal
	linkBySpan
	linkByEvent
)

// resolveParentSession takes what a fact says of where its session belongs.
func (x *lineage) resolveParentSession(f *fact.Fact, known sessionRegister) {
	l := &f.LineageRefs
	if l.IsZero() && !l.AnnouncesHandoff || f.Key.Session == noSession {
		return
	}
	if l.AnnouncesHandoff {
		x.recordLinkTarget(f, x.eventLinkKey(f), nil)
	}
	var old parentLink
	if k := x.parentLinks.LookupHashed(f.Key, f.OriginHashes().Session); k != nil {
		old = *k
	}
	if old.rank < linkByEvent && l.Correlation != "" {
		x.linkParentSession(f, known, linkByEvent, x.findLinkTarget(f, l.CorrelationSum))
	}
	if l.Trace != "" {
		x.resolveTraceParent(f, old.rank, known)
	}
	if old.rank < linkByGoal && l.ParentSession != "" {
		x.linkParentSession(f, known, linkByGoal, x.siblingLink(f, l.ParentSession, subject.Escape(l.ParentSession)))
	}
	if old.rank < linkBySession && l.Correlation != "" {
		sibling := f.Key
		sibling.Session = l.CorrelationToken()
		if known.hasSession(sibling, f.OriginHashes().SessionHash(sibling.Session)) {
			x.linkParentSession(f, known, linkBySession, x.siblingLink(f, l.Correlation, sibling.Session))
		}
	}
}

func (x *lineage) resolveTraceParent(f *fact.Fact, rank int8, known sessionRegister) {
	if rank < linkBySpan {
		x.linkParentSession(f, known, linkBySpan, x.findLinkTarget(f, fact.SumOf("span", f.LineageRefs.Trace[:fact.SpanEnd])))
	}
	trace := linkKey{f.Key.Tenant, fact.SumOf("trace", f.LineageRefs.Trace[:fact.TraceEnd])}
	first, carried := x.linkTargets.Get(trace)
	switch {
	case !carried:
		x.linkTargets.Put(trace, sessionLink{origin: originFor(f, nil)})
	case rank < linkByTrace:
		x.linkParentSession(f, known, linkByTrace, first)
	}
}

// siblingLink is a session of the same publisher, by its id.
func (x *lineage) siblingLink(f *fact.Fact, session, token string) sessionLink {
	key := f.Key
	key.Session = token
	return sessionLink{origin: &fact.Origin{Key: key, Tenant: f.Tenant, Source: f.Source, Session: fact.BoundID(session)}}
}

// originFor is the fact's origin, the call's own if that is the same.
func originFor(f *fact.Fact, c *call) *fact.Origin {
	if c != nil && *c.session.Origin == f.Origin {
		return c.session.Origin
	}
	o := f.Origin
	return &o
}

// findLinkTarget finds the session of a target; the zero value if there is none, or several.
func (x *lineage) findLinkTarget(f *fact.Fact, mark fact.Sum) sessionLink {
	r := x.linkTargets.LookupHashed(linkKey{f.Key.Tenant, mark}, linkKeyHash(f.OriginHashes().Tenant, mark))
	if r == nil || r.ambiguous {
		return sessionLink{}
	}
	return *r
}

// linkParentSession notes what a fact's session belongs to.
func (x *lineage) linkParentSession(f *fact.Fact, known sessionRegister, rank int8, r sessionLink) {
	if r.isZero() || r.origin.Key == f.Key || r.origin.Key.Session == noSession {
		return
	}
	if old, _ := x.parentLinks.Get(f.Key); old.rank >= rank {
		return
	}
	for up, n := r.origin.Key, 0; ; n++ {
		above, has := x.parentLinks.Get(up)
		if !has {
			break
		}
		if above.origin.Key == f.Key || n == maxAncestors {
			return
		}
		up = above.origin.Key
	}
	x.parentLinks.Put(f.Key, parentLink{r, rank})
	known.upgradeParentLink(f.Key, rank)
}

func (x *lineage) eventLinkKey(f *fact.Fact) linkKey {
	if f.EventID == "" {
		return linkKey{}
	}
	return linkKey{f.Key.Tenant, f.IdSum()}
}

// recordLinkTarget records the session of a target, or that the target is ambiguous.
func (x *lineage) recordLinkTarget(f *fact.Fact, t linkKey, c *call) {
	if t.target == (fact.Sum{}) {
		return
	}
	hash := linkKeyHash(f.OriginHashes().Tenant, t.target)
	switch old := x.linkTargets.LookupHashed(t, hash); {
	case old == nil:
		r := sessionLink{origin: originFor(f, c)}
		if c != nil {
			r.callSum = c.idSum()
		}
		*x.linkTargets.Add(t, hash) = r
	case old.origin.Key != f.Key:
		old.ambiguous = true
	}
}

// recordCallTargets makes a call known to sub-agents that will name it.
func (x *lineage) recordCallTargets(c *call, f *fact.Fact) {
	if c.hasWeakScope() {
		return
	}
	if f.Kind == fact.KindPre {
		x.recordLinkTarget(f, x.eventLinkKey(f), c)
	}
	if f.LineageRefs.Trace != "" {
		x.recordSpanTarget(c, f)
	}
}

// recordSpanTarget records the call of a span: the call that carried it first. A call
// that carries it in another session is a child. A span of several calls of one session
// is the session's.
func (x *lineage) recordSpanTarget(c *call, f *fact.Fact) {
	t := linkKey{f.Key.Tenant, fact.SumOf("span", f.LineageRefs.Trace[:fact.SpanEnd])}
	switch old := x.linkTargets.Lookup(t); {
	case old == nil:
		x.linkTargets.Put(t, sessionLink{origin: originFor(f, c), callSum: c.idSum()})
	case old.origin.Key == f.Key && old.callSum != c.idSum():
		old.callSum = fact.Sum{}
	}
}

func (k linkKey) Hash() uint32 { return linkKeyHash(fact.TextHash(k.tenant), k.target) }

// linkKeyHash is the hash of a linkKey with a known hash of the tenant.
func linkKeyHash(tenant uint64, mark fact.Sum) uint32 {
	return fact.MixHash(tenant, uint64(mark.Hash()))
}
