package correlation

import (
	"github.com/countersign-dev/countersign/events"
)

// details writes or reads everything that is known of a call beside its place.
// Whatever is added to details belongs here, too. The joins come first: see
// foldedJoins.
func (p *folding) details(d *details) {
	p.names(&d.joins)
	p.identity(d)
	p.announced(d)
	p.judged(d)
	p.ended(d)
	list(p, &d.timeline, (*folding).step)
	p.linked(d)
	p.shown(d, &d.emitted)
	p.counts(&d.records)
}

func (p *folding) counts(r *records) {
	var there [len(r)]bool
	for i, n := range r {
		there[i] = n != 0
	}
	p.flags(&there[0], &there[1], &there[2], &there[3], &there[4], &there[5])
	for i := range r {
		if there[i] {
			small(p, &r[i])
		}
	}
}

func (p *folding) identity(d *details) {
	p.sum(&d.target)
	p.text(&d.canonical)
	small(p, &d.rank)
	word(p, &d.protocol)
	p.text(&d.tool)
	p.text(&d.id)
	p.text(&d.agent)
}

func (p *folding) announced(d *details) {
	p.flags(&d.hasRequest, &d.hasPre, &d.hasPost, &d.failOpen, &d.inferred, &d.mutated)
	word(p, &d.preProtocol)
	p.time(&d.preAt)
	p.text(&d.preEvent)
	p.text(&d.requestEvent)
	p.text(&d.postEvent)
	word(p, &d.postProtocol)
	p.names(&d.events)
	p.sum(&d.frame)
	p.text(&d.frameEvent)
	small(p, &d.frameKind)
	p.arguments(&d.args)
	small(p, &d.argsRank)
}

func (p *folding) arguments(a *arguments) {
	raw, redacted, again := a.raw != nil, a.redacted != nil, a.plain == p.plain
	p.flags(&a.known, &raw, &redacted, &again)
	p.text(&a.digest)
	if !a.known {
		return
	}
	if again {
		a.plain = p.plain
	} else {
		p.bytes(a.plain[:])
		p.plain = a.plain
	}
	if p.has(a.tenants != sum256{}) {
		p.bytes(a.tenants[:])
	}
	p.text(&a.keyed)
	if raw {
		text := string(a.raw)
		if p.text(&text); p.reading {
			a.raw = []byte(text)
		}
	}
	if redacted {
		p.names(&a.redacted)
	}
}

func (p *folding) judged(d *details) {
	list(p, &d.decisions, (*folding).verdict)
	if p.has(d.claim != claim{}) {
		word(p, &d.claim.verdict)
		p.place(&d.claim.seq)
		p.time(&d.claim.decidedAt)
	}
	p.approval(&d.pending)
	p.approval(&d.granted)
}

func (p *folding) verdict(v *verdictRec) {
	p.text(&v.id)
	p.place(&v.seq)
	p.time(&v.at)
	word(p, &v.verdict)
	p.time(&v.expires)
	p.flags(&v.receipt)
	p.arguments(&v.args)
	p.approval(&v.pending)
	p.text(&v.eventID)
}

func (p *folding) approval(a *approval) {
	if !p.has(a.known()) {
		return
	}
	word(p, &a.status)
	p.text(&a.workflow)
	p.text(&a.action)
	p.text(&a.resume)
	p.time(&a.decidedAt)
	p.time(&a.expiresAt)
}

func (p *folding) ended(d *details) {
	word(p, &d.outcome)
	p.arguments(&d.executed)
	p.place(&d.execSeq)
	word(p, &d.match)
	word(p, &d.reason)
	list(p, &d.differences, func(p *folding, x *events.Difference) {
		p.text(&x.Pointer)
		word(p, &x.Kind)
	})
	small(p, &d.more)
	p.names(&d.rules)
	p.text(&d.missing)
	p.text(&d.missingCheck)
	p.time(&d.endedAt)
	if p.has(d.cameFirst != madeFinding{}) {
		p.text(&d.cameFirst.rule)
		p.text(&d.cameFirst.id)
	}
}

func (p *folding) step(t *events.TimelineEntry) {
	word(p, &t.Step)
	p.place(&t.Seq)
	p.time(&t.At.Time)
	p.text(&t.EventID)
	word(p, &t.Protocol)
}

func (p *folding) linked(d *details) {
	p.time(&d.invokedAt)
	p.text(&d.invokedBy)
	list(p, &d.excuses, func(p *folding, x *madeFinding) {
		p.text(&x.rule)
		p.text(&x.id)
	})
	small(p, &d.pres)
	small(p, &d.posts)
	small(p, &d.seen)
	small(p, &d.ran)
	p.sum(&d.chain.from)
	p.sum(&d.chain.to)
	small(p, &d.chain.attempt)
	p.text(&d.tooLate.agent)
	p.text(&d.tooLate.finding)
	p.text(&d.trace)
	if p.has(d.claimed != events.CallClaim{}) {
		p.time(&d.claimed.StartedAt.Time)
		p.time(&d.claimed.CompletedAt.Time)
		small(p, &d.claimed.DurationMS)
		small(p, &d.claimed.Attempt)
	}
	p.time(&d.deadline)
}

// shown is mostly what the call is by now.
func (p *folding) shown(d *details, e *emitted) {
	word(p, &e.state)
	p.text(&e.decision)
	word(p, &e.verdict)
	small(p, &e.kin)
	now := emitted{
		state: e.state, decision: e.decision, verdict: e.verdict,
		outcome: d.outcome, match: d.match, findings: len(d.rules), execSeq: d.execSeq, seen: d.seen, posts: d.posts, next: d.chain.to, kin: e.kin,
	}
	if p.has(*e == now) {
		*e = now
		return
	}
	word(p, &e.outcome)
	word(p, &e.match)
	small(p, &e.findings)
	p.place(&e.execSeq)
	small(p, &e.seen)
	small(p, &e.posts)
	p.sum(&e.next)
}
