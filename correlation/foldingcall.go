package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// codeDetails writes or reads everything that is known of a call beside its place.
// Whatever is added to details belongs here, too. The joins come first: see
// foldedJoins.
func (p *detailsCodec) codeDetails(d *details) {
	p.codeStrings(&d.decisionIDs)
	p.codeIdentity(d)
	p.codeAnnouncement(d)
	p.codeVerdicts(d)
	p.codeEnd(d)
	codeList(p, &d.timeline, (*detailsCodec).codeStep)
	p.codeLinks(d)
	p.codeEmitted(d, &d.lastEmitted)
}

// What follows is written if it is there.

func (p *detailsCodec) codeOptionalText(s *string) {
	if p.codeFlag(*s != "") {
		p.codeText(s)
	}
}

func (p *detailsCodec) codeOptionalTime(t *time.Time) {
	if p.codeFlag(!t.IsZero()) {
		p.codeTime(t)
	}
}

func (p *detailsCodec) codeOptionalSum(s *sum) {
	if p.codeFlag(!s.isZero()) {
		p.codeBytes(s[:])
	}
}

// codeProtocol is mostly the same as before.
func (p *detailsCodec) codeProtocol(s *string) {
	if !p.codeFlag(*s != p.lastProtocol) {
		*s = p.lastProtocol
		return
	}
	codeWord(p, s)
	p.lastProtocol = *s
}

func (p *detailsCodec) codeIdentity(d *details) {
	p.codeOptionalSum(&d.targetSum)
	p.codeOptionalText(&d.canonicalTool)
	codeInt(p, &d.nameRank)
	p.codeProtocol(&d.protocol)
	p.codeText(&d.tool)
	p.codeText(&d.id)
	p.codeOptionalText(&d.agent)
}

func (p *detailsCodec) codeAnnouncement(d *details) {
	for _, is := range [...]*bool{&d.hasRequest, &d.hasPre, &d.hasPost, &d.failOpen, &d.needsHuman, &d.inferred, &d.hasMutationReason, &d.replaced} {
		*is = p.codeFlag(*is)
	}
	p.codeProtocol(&d.preProtocol)
	p.codeOptionalTime(&d.preAt)
	p.codeOptionalText(&d.preEvent)
	p.codeOptionalText(&d.requestEvent)
	p.codeOptionalText(&d.postEvent)
	p.codeProtocol(&d.postProtocol)
	if p.codeFlag(d.events != nil) {
		p.codeStrings(&d.events)
	}
	p.codeOptionalSum(&d.frameSum)
	p.codeOptionalText(&d.frameEvent)
	codeInt(p, &d.frameKind)
	p.codeArguments(&d.args)
	codeInt(p, &d.argsRank)
}

func (p *detailsCodec) codeArguments(a *arguments) {
	p.codeOptionalText(&a.decisionDigest)
	if a.known = p.codeFlag(a.known); !a.known {
		return
	}
	if p.codeFlag(a.plainSum == p.lastArgsSum) {
		a.plainSum = p.lastArgsSum
	} else {
		p.codeBytes(a.plainSum[:])
		p.lastArgsSum = a.plainSum
	}
	if p.codeFlag(a.tenantSum != sum256{}) {
		p.codeBytes(a.tenantSum[:])
	}
	p.codeOptionalText(&a.recordDigest)
	if p.codeFlag(a.canonical != nil) {
		text := string(a.canonical)
		if p.codeText(&text); p.reading {
			a.canonical = []byte(text)
		}
	}
	if p.codeFlag(a.redactedPaths != nil) {
		p.codeStrings(&a.redactedPaths)
	}
}

func (p *detailsCodec) codeVerdicts(d *details) {
	if p.codeFlag(d.decisions != nil) {
		codeList(p, &d.decisions, (*detailsCodec).codeVerdict)
	}
	p.codeClaim(&d.verdictClaim)
	p.codeApproval(&d.pendingApproval)
	p.codeApproval(&d.eventApproval)
	p.codeClaims(&d.claims)
	p.codeOptionalSum(&d.retriedKeySum)
}

func (p *detailsCodec) codeClaim(c *verdictClaim) {
	if p.codeFlag(*c != verdictClaim{}) {
		codeWord(p, &c.verdict)
		p.codeSeq(&c.seq)
		p.codeTime(&c.decidedAt)
	}
}

func (p *detailsCodec) codeClaims(s *callClaims) {
	if !p.codeFlag(*s != callClaims{}) {
		return
	}
	p.codeClaim(&s.verdict)
	p.codeApproval(&s.approval)
	s.namesDecision = p.codeFlag(s.namesDecision)
	codeInt(p, &s.reported)
}

func (p *detailsCodec) codeVerdict(v *recordedVerdict) {
	p.codeText(&v.id)
	p.codeSeq(&v.seq)
	p.codeTime(&v.at)
	codeWord(p, &v.verdict)
	p.codeOptionalTime(&v.expires)
	v.hasReceipt = p.codeFlag(v.hasReceipt)
	p.codeOptionalText(&v.argsDigest)
	p.codeApproval(&v.approval)
	p.codeOptionalText(&v.eventID)
	p.codeOptionalText(&v.approvalRef)
}

func (p *detailsCodec) codeApproval(at **approval) {
	if !p.codeFlag(*at != nil) {
		return
	}
	if p.reading {
		*at = new(approval)
	}
	a := *at
	codeWord(p, &a.status)
	p.codeText(&a.workflow)
	p.codeText(&a.action)
	p.codeText(&a.resumePolicy)
	p.codeTime(&a.decidedAt)
	p.codeTime(&a.expiresAt)
}

func (p *detailsCodec) codeEnd(d *details) {
	if p.codeFlag(d.outcome != "") {
		codeWord(p, &d.outcome)
	}
	p.codeArguments(&d.executedArgs)
	if p.codeFlag(d.execSeq != 0) {
		p.codeSeq(&d.execSeq)
	}
	if p.codeFlag(d.match != "") {
		codeWord(p, &d.match)
	}
	p.codeOptionalText(&d.reason)
	if p.codeFlag(d.differences != nil) {
		codeList(p, &d.differences, func(p *detailsCodec, x *events.Difference) {
			p.codeText(&x.Pointer)
			codeWord(p, &x.Kind)
		})
	}
	if p.codeFlag(d.moreDifferences != 0) {
		codeInt(p, &d.moreDifferences)
	}
	if p.codeFlag(d.rules != nil) {
		p.codeStrings(&d.rules)
	}
	p.codeOptionalText(&d.missingFinding)
	p.codeOptionalText(&d.missingCheckFinding)
	p.codeOptionalTime(&d.endedAt)
	if p.codeFlag(d.earlierEndFinding != findingRef{}) {
		p.codeText(&d.earlierEndFinding.rule)
		p.codeText(&d.earlierEndFinding.id)
	}
}

func (p *detailsCodec) codeStep(e *timelineEntry) {
	codeInt(p, &e.step)
	p.codeSeq(&e.seq)
	if p.reading {
		at := p.readTime()
		e.second, e.nanos = at.Unix(), int32(at.Nanosecond())
	} else {
		p.writeTime(e.second, uint32(e.nanos))
	}
	p.codeOptionalText(&e.eventID)
	p.codeProtocol(&e.protocol)
}

func (p *detailsCodec) codeLinks(d *details) {
	p.codeOptionalTime(&d.invokedAt)
	p.codeOptionalText(&d.invokedEvent)
	if p.codeFlag(d.invokedSeq != 0) {
		p.codeSeq(&d.invokedSeq)
	}
	if p.codeFlag(d.retractable != nil) {
		codeList(p, &d.retractable, func(p *detailsCodec, x *findingRef) {
			p.codeText(&x.rule)
			p.codeText(&x.id)
		})
	}
	codeInt(p, &d.announcedIn)
	codeInt(p, &d.endedIn)
	codeInt(p, &d.seenIn)
	codeInt(p, &d.maxEffect)
	p.codeOptionalSum(&d.retryChain.from)
	p.codeOptionalSum(&d.retryChain.to)
	if p.codeFlag(d.retryChain.attempt != 0) {
		codeInt(p, &d.retryChain.attempt)
	}
	if p.codeFlag(d.handoffFinding != handoffFinding{}) {
		p.codeText(&d.handoffFinding.agent)
		p.codeText(&d.handoffFinding.finding)
	}
	p.codeOptionalText(&d.trace)
	p.codeOptionalSum(&d.thread)
	p.codeOptionalText(&d.binding)
	p.codeOptionalTime(&d.claimedTimes.StartedAt.Time)
	p.codeOptionalTime(&d.claimedTimes.CompletedAt.Time)
	if p.codeFlag(d.claimedTimes.DurationMS != 0) {
		codeInt(p, &d.claimedTimes.DurationMS)
	}
	if p.codeFlag(d.claimedTimes.Attempt != 0) {
		codeInt(p, &d.claimedTimes.Attempt)
	}
	p.codeOptionalTime(&d.deadline)
}

// codeEmitted is mostly what the call is by now.
func (p *detailsCodec) codeEmitted(d *details, e *emittedState) {
	codeWord(p, &e.state)
	p.codeOptionalText(&e.decision)
	codeWord(p, &e.verdict)
	if p.codeFlag(e.parentLinkRank != 0) {
		codeInt(p, &e.parentLinkRank)
	}
	now := emittedState{
		state: e.state, decision: e.decision, verdict: e.verdict,
		outcome: d.outcome, match: d.match, findings: len(d.rules), execSeq: d.execSeq, seenIn: d.seenIn, endedIn: d.endedIn, retriedTo: d.retryChain.to, parentLinkRank: e.parentLinkRank,
	}
	if p.codeFlag(*e == now) {
		*e = now
	} else {
		codeWord(p, &e.outcome)
		codeWord(p, &e.match)
		codeInt(p, &e.findings)
		p.codeSeq(&e.execSeq)
		codeInt(p, &e.seenIn)
		codeInt(p, &e.endedIn)
		p.codeOptionalSum(&e.retriedTo)
	}
	for i := range d.recordCounts {
		if p.codeFlag(d.recordCounts[i] != 0) {
			codeInt(p, &d.recordCounts[i])
		}
	}
}
