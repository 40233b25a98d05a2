package correlation

import (
	"time"

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
}

// What follows is written if it is there.

func (p *folding) textIf(s *string) {
	if p.has(*s != "") {
		p.text(s)
	}
}

func (p *folding) timeIf(t *time.Time) {
	if p.has(!t.IsZero()) {
		p.time(t)
	}
}

func (p *folding) sumIf(s *sum) {
	if p.has(!s.none()) {
		p.bytes(s[:])
	}
}

// protocol is mostly the same as before.
func (p *folding) protocol(s *string) {
	if !p.has(*s != p.spoken) {
		*s = p.spoken
		return
	}
	word(p, s)
	p.spoken = *s
}

func (p *folding) identity(d *details) {
	p.sumIf(&d.target)
	p.textIf(&d.canonical)
	small(p, &d.rank)
	p.protocol(&d.protocol)
	p.text(&d.tool)
	p.text(&d.id)
	p.textIf(&d.agent)
}

func (p *folding) announced(d *details) {
	for _, is := range [...]*bool{&d.hasRequest, &d.hasPre, &d.hasPost, &d.failOpen, &d.human, &d.inferred, &d.mutated, &d.replaced} {
		*is = p.has(*is)
	}
	p.protocol(&d.preProtocol)
	p.timeIf(&d.preAt)
	p.textIf(&d.preEvent)
	p.textIf(&d.requestEvent)
	p.textIf(&d.postEvent)
	p.protocol(&d.postProtocol)
	if p.has(d.events != nil) {
		p.names(&d.events)
	}
	p.sumIf(&d.frame)
	p.textIf(&d.frameEvent)
	small(p, &d.frameKind)
	p.arguments(&d.args)
	small(p, &d.argsRank)
}

func (p *folding) arguments(a *arguments) {
	p.textIf(&a.digest)
	if a.known = p.has(a.known); !a.known {
		return
	}
	if p.has(a.plain == p.plain) {
		a.plain = p.plain
	} else {
		p.bytes(a.plain[:])
		p.plain = a.plain
	}
	if p.has(a.tenants != sum256{}) {
		p.bytes(a.tenants[:])
	}
	p.textIf(&a.keyed)
	if p.has(a.raw != nil) {
		text := string(a.raw)
		if p.text(&text); p.reading {
			a.raw = []byte(text)
		}
	}
	if p.has(a.redacted != nil) {
		p.names(&a.redacted)
	}
}

func (p *folding) judged(d *details) {
	if p.has(d.decisions != nil) {
		list(p, &d.decisions, (*folding).verdict)
	}
	p.claim(&d.claim)
	p.approval(&d.pending)
	p.approval(&d.granted)
	p.stated(&d.stated)
	p.sumIf(&d.again)
}

func (p *folding) claim(c *claim) {
	if p.has(*c != claim{}) {
		word(p, &c.verdict)
		p.place(&c.seq)
		p.time(&c.decidedAt)
	}
}

func (p *folding) stated(s *stated) {
	if !p.has(*s != stated{}) {
		return
	}
	p.claim(&s.verdict)
	p.approval(&s.approval)
	s.referred = p.has(s.referred)
	small(p, &s.reported)
}

func (p *folding) verdict(v *verdictRec) {
	p.text(&v.id)
	p.place(&v.seq)
	p.time(&v.at)
	word(p, &v.verdict)
	p.timeIf(&v.expires)
	v.receipt = p.has(v.receipt)
	p.textIf(&v.digest)
	p.approval(&v.pending)
	p.textIf(&v.eventID)
	p.textIf(&v.ref)
}

func (p *folding) approval(at **approval) {
	if !p.has(*at != nil) {
		return
	}
	if p.reading {
		*at = new(approval)
	}
	a := *at
	word(p, &a.status)
	p.text(&a.workflow)
	p.text(&a.action)
	p.text(&a.resume)
	p.time(&a.decidedAt)
	p.time(&a.expiresAt)
}

func (p *folding) ended(d *details) {
	if p.has(d.outcome != "") {
		word(p, &d.outcome)
	}
	p.arguments(&d.executed)
	if p.has(d.execSeq != 0) {
		p.place(&d.execSeq)
	}
	if p.has(d.match != "") {
		word(p, &d.match)
	}
	p.textIf(&d.reason)
	if p.has(d.differences != nil) {
		list(p, &d.differences, func(p *folding, x *events.Difference) {
			p.text(&x.Pointer)
			word(p, &x.Kind)
		})
	}
	if p.has(d.more != 0) {
		small(p, &d.more)
	}
	if p.has(d.rules != nil) {
		p.names(&d.rules)
	}
	p.textIf(&d.missing)
	p.textIf(&d.missingCheck)
	p.timeIf(&d.endedAt)
	if p.has(d.cameFirst != madeFinding{}) {
		p.text(&d.cameFirst.rule)
		p.text(&d.cameFirst.id)
	}
}

func (p *folding) step(e *timelineEntry) {
	small(p, &e.step)
	p.place(&e.seq)
	if p.reading {
		at := p.readTime()
		e.second, e.nanos = at.Unix(), int32(at.Nanosecond())
	} else {
		p.moment(e.second, uint32(e.nanos))
	}
	p.textIf(&e.eventID)
	p.protocol(&e.protocol)
}

func (p *folding) linked(d *details) {
	p.timeIf(&d.invokedAt)
	p.textIf(&d.invokedBy)
	if p.has(d.invokedSeq != 0) {
		p.place(&d.invokedSeq)
	}
	if p.has(d.excuses != nil) {
		list(p, &d.excuses, func(p *folding, x *madeFinding) {
			p.text(&x.rule)
			p.text(&x.id)
		})
	}
	small(p, &d.pres)
	small(p, &d.posts)
	small(p, &d.seen)
	small(p, &d.ran)
	p.sumIf(&d.chain.from)
	p.sumIf(&d.chain.to)
	if p.has(d.chain.attempt != 0) {
		small(p, &d.chain.attempt)
	}
	if p.has(d.tooLate != madeBy{}) {
		p.text(&d.tooLate.agent)
		p.text(&d.tooLate.finding)
	}
	p.textIf(&d.trace)
	p.sumIf(&d.thread)
	p.textIf(&d.binding)
	p.timeIf(&d.claimed.StartedAt.Time)
	p.timeIf(&d.claimed.CompletedAt.Time)
	if p.has(d.claimed.DurationMS != 0) {
		small(p, &d.claimed.DurationMS)
	}
	if p.has(d.claimed.Attempt != 0) {
		small(p, &d.claimed.Attempt)
	}
	p.timeIf(&d.deadline)
}

// shown is mostly what the call is by now.
func (p *folding) shown(d *details, e *emitted) {
	word(p, &e.state)
	p.textIf(&e.decision)
	word(p, &e.verdict)
	if p.has(e.kin != 0) {
		small(p, &e.kin)
	}
	now := emitted{
		state: e.state, decision: e.decision, verdict: e.verdict,
		outcome: d.outcome, match: d.match, findings: len(d.rules), execSeq: d.execSeq, seen: d.seen, posts: d.posts, next: d.chain.to, kin: e.kin,
	}
	if p.has(*e == now) {
		*e = now
	} else {
		word(p, &e.outcome)
		word(p, &e.match)
		small(p, &e.findings)
		p.place(&e.execSeq)
		small(p, &e.seen)
		small(p, &e.posts)
		p.sumIf(&e.next)
	}
	for i := range d.records {
		if p.has(d.records[i] != 0) {
			small(p, &d.records[i])
		}
	}
}
