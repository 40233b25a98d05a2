package correlation

import (
	"encoding/binary"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// detailsCodec writes the details of a call, or reads them: what does the one does the
// other, so that both know the same fields (TestFoldingKnowsEveryField). The texts
// that it reads are parts of what it reads from.
type detailsCodec struct {
	output []byte // written so far

	reading bool
	input   string // still to be read

	flags     [maxFlags / 64]uint64 // for what may be there or not
	flagCount uint                  // how many were asked for

	knownTexts   [backReferences]string // the first ones, which later ones may be the same as
	textEnds     [backReferences]uint64 // of the texts, while they are written
	textPlaces   [64]uint8              // of the texts, by a hash of their ends; from 1
	knownCount   int
	lastSecond   int64 // the last time
	lastNanos    uint32
	lastSeq      uint64      // the last sequence
	lastArgsSum  fact.Sum256 // the last arguments
	lastProtocol string      // the last protocol
}

// The bits lie behind everything else, and last of all how many bytes of them there
// are. A call that has all it can have asks for less than half of mostBits.
const maxFlags = 512

// startWriting begins to write.
func (p *detailsCodec) startWriting() {
	p.resetState()
	p.output, p.reading, p.input = p.output[:0], false, ""
}

// resetState forgets what was written or read.
func (p *detailsCodec) resetState() {
	clear(p.knownTexts[:p.knownCount])
	p.flags, p.textPlaces = [len(p.flags)]uint64{}, [len(p.textPlaces)]uint8{}
	p.flagCount, p.knownCount, p.lastSecond, p.lastNanos, p.lastSeq, p.lastArgsSum, p.lastProtocol = 0, 0, 0, 0, 0, fact.Sum256{}, ""
}

// finishWriting is what was written since.
func (p *detailsCodec) finishWriting() []byte {
	if p.flagCount > maxFlags {
		panic("correlation: more is there or not than has a bit")
	}
	size := (p.flagCount + 7) / 8
	end := uint(len(p.output)) + size
	for _, word := range p.flags[:(p.flagCount+63)/64] {
		p.output = binary.LittleEndian.AppendUint64(p.output, word)
	}
	p.output = append(p.output[:end], byte(size))
	return p.output
}

// startReading begins to read what was written.
func (p *detailsCodec) startReading(in string) {
	p.resetState()
	end := len(in) - 1
	bits := in[end-int(in[end]) : end]
	for i := range len(bits) {
		p.flags[i/8] |= uint64(bits[i]) << (i % 8 * 8)
	}
	p.reading, p.input = true, in[:end-len(bits)]
}

// How a text is written: nothing, a usual word, the number of one that came before
// or its length.
const (
	noText         = 0
	backReferences = 24
	firstReference = 1 + len(codedWords)
	firstLiteral   = firstReference + backReferences
)

func (p *detailsCodec) readUint() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		c := p.input[0]
		p.input = p.input[1:]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return n
		}
	}
}

func (p *detailsCodec) codeUint(n *uint64) {
	if p.reading {
		*n = p.readUint()
	} else {
		p.writeUint(*n)
	}
}

// writeUint writes a number, which is a small one as a rule.
func (p *detailsCodec) writeUint(n uint64) {
	if n < 0x80 {
		p.output = append(p.output, byte(n))
	} else {
		p.output = binary.AppendUvarint(p.output, n)
	}
}

type integer interface {
	~int | ~int8 | ~int32 | ~int64 | ~uint8 | ~uint32
}

// numbers are not negative as a rule.
func codeInt[T integer](p *detailsCodec, n *T) {
	if p.reading {
		*n = T(p.readUint())
	} else {
		p.writeUint(uint64(int64(*n)))
	}
}

// codeFlag says whether something is there; of what is not, nothing more is written.
func (p *detailsCodec) codeFlag(there bool) bool {
	word, bit := &p.flags[p.flagCount/64%uint(len(p.flags))], uint64(1)<<(p.flagCount%64)
	p.flagCount++
	if p.reading {
		return *word&bit != 0
	}
	if there {
		*word |= bit
	}
	return there
}

func (p *detailsCodec) codeText(s *string) {
	if p.reading {
		*s = p.readText()
		return
	}
	if *s == "" {
		p.output = append(p.output, noText)
		return
	}
	t := *s
	end := textEnd(t)
	at := end * 0x9e3779b97f4a7c15 >> 58
	for ; p.textPlaces[at] != 0; at = (at + 1) % uint64(len(p.textPlaces)) {
		if i := p.textPlaces[at] - 1; p.textEnds[i] == end && p.knownTexts[i] == t {
			p.output = append(p.output, byte(firstReference+int(i)))
			return
		}
	}
	if p.knownCount < len(p.knownTexts) {
		p.knownTexts[p.knownCount], p.textEnds[p.knownCount] = t, end
		p.knownCount++
		p.textPlaces[at] = uint8(p.knownCount)
	}
	p.writeUint(uint64(firstLiteral + len(t)))
	p.output = append(p.output, t...)
}

// textEnd are the last bytes of a text that is not empty, in which ids differ if they
// do, and its length.
func textEnd(t string) uint64 {
	n := len(t)
	if n < 8 {
		return uint64(n)<<56 | uint64(t[0])<<8 | uint64(t[n-1])
	}
	t = t[n-8:]
	return uint64(n)<<56 ^ (uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
		uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56)
}

func (p *detailsCodec) readText() string {
	switch n := int(p.readUint()); {
	case n == noText:
		return ""
	case n < firstReference:
		return codedWords[n-1]
	case n < firstLiteral:
		return p.knownTexts[n-firstReference]
	default:
		s := p.input[:n-firstLiteral]
		p.input = p.input[n-firstLiteral:]
		if p.knownCount < len(p.knownTexts) {
			p.knownTexts[p.knownCount] = s
			p.knownCount++
		}
		return s
	}
}

func (p *detailsCodec) codeBytes(b []byte) {
	if p.reading {
		p.input = p.input[copy(b, p.input):]
	} else {
		p.output = append(p.output, b...)
	}
}

// How a time is written: none, the last one again, or another one.
const (
	noTime = iota
	sameTime
	otherTime
)

func (p *detailsCodec) codeTime(t *time.Time) {
	if p.reading {
		*t = p.readTime()
		return
	}
	if t.IsZero() {
		p.output = append(p.output, noTime)
		return
	}
	p.writeTime(t.Unix(), uint32(t.Nanosecond()))
}

func (p *detailsCodec) writeTime(second int64, nanos uint32) {
	if second == p.lastSecond && nanos == p.lastNanos {
		p.output = append(p.output, sameTime)
		return
	}
	p.output = binary.LittleEndian.AppendUint32(append(p.output, otherTime), nanos)
	p.writeSigned(second - p.lastSecond)
	p.lastSecond, p.lastNanos = second, nanos
}

func (p *detailsCodec) readTime() time.Time {
	how := p.input[0]
	p.input = p.input[1:]
	switch how {
	case noTime:
		return time.Time{}
	case otherTime:
		p.lastNanos = uint32(p.input[0]) | uint32(p.input[1])<<8 | uint32(p.input[2])<<16 | uint32(p.input[3])<<24
		p.input = p.input[4:]
		z := p.readUint()
		p.lastSecond += int64(z>>1) ^ -int64(z&1)
	}
	return time.Unix(p.lastSecond, int64(p.lastNanos)).UTC()
}

// codeSeq is a sequence; those of one call are near each other.
func (p *detailsCodec) codeSeq(seq *uint64) {
	if !p.reading {
		p.writeSigned(int64(*seq - p.lastSeq))
		p.lastSeq = *seq
		return
	}
	z := p.readUint()
	p.lastSeq += uint64(int64(z>>1) ^ -int64(z&1))
	*seq = p.lastSeq
}

// writeSigned writes a number that may be negative.
func (p *detailsCodec) writeSigned(n int64) { p.writeUint(uint64(n)<<1 ^ uint64(n>>63)) }

// codeLength writes how many elements follow, and one; zero is a list that is nil.
func (p *detailsCodec) codeLength(n int, isNil bool) (length int, there bool) {
	u := uint64(n) + 1
	if isNil {
		u = 0
	}
	p.codeUint(&u)
	return int(u) - 1, u > 0
}

// codeList writes or reads a list of elements, one after the other.
func codeList[T any](p *detailsCodec, l *[]T, each func(*detailsCodec, *T)) {
	n, there := p.codeLength(len(*l), *l == nil)
	if !there {
		return
	}
	if p.reading {
		*l = make([]T, n)
	}
	for i := range *l {
		each(p, &(*l)[i])
	}
}

func (p *detailsCodec) codeStrings(l *[]string) { codeList(p, l, (*detailsCodec).codeText) }

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

func (p *detailsCodec) codeOptionalSum(s *fact.Sum) {
	if p.codeFlag(!s.IsZero()) {
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

func (p *detailsCodec) codeArguments(a *fact.Arguments) {
	p.codeOptionalText(&a.DecisionDigest)
	if a.Known = p.codeFlag(a.Known); !a.Known {
		return
	}
	if p.codeFlag(a.PlainSum == p.lastArgsSum) {
		a.PlainSum = p.lastArgsSum
	} else {
		p.codeBytes(a.PlainSum[:])
		p.lastArgsSum = a.PlainSum
	}
	if p.codeFlag(a.TenantSum != fact.Sum256{}) {
		p.codeBytes(a.TenantSum[:])
	}
	p.codeOptionalText(&a.RecordDigest)
	if p.codeFlag(a.Canonical != nil) {
		text := string(a.Canonical)
		if p.codeText(&text); p.reading {
			a.Canonical = []byte(text)
		}
	}
	if p.codeFlag(a.RedactedPaths != nil) {
		p.codeStrings(&a.RedactedPaths)
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

func (p *detailsCodec) codeClaim(c *fact.VerdictClaim) {
	if p.codeFlag(*c != fact.VerdictClaim{}) {
		codeWord(p, &c.Verdict)
		p.codeSeq(&c.Seq)
		p.codeTime(&c.DecidedAt)
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

func (p *detailsCodec) codeVerdict(v *fact.RecordedVerdict) {
	p.codeText(&v.Id)
	p.codeSeq(&v.Seq)
	p.codeTime(&v.At)
	codeWord(p, &v.Verdict)
	p.codeOptionalTime(&v.Expires)
	v.HasReceipt = p.codeFlag(v.HasReceipt)
	p.codeOptionalText(&v.ArgsDigest)
	p.codeApproval(&v.Approval)
	p.codeOptionalText(&v.EventID)
	p.codeOptionalText(&v.ApprovalRef)
}

func (p *detailsCodec) codeApproval(at **fact.Approval) {
	if !p.codeFlag(*at != nil) {
		return
	}
	if p.reading {
		*at = new(fact.Approval)
	}
	a := *at
	codeWord(p, &a.Status)
	p.codeText(&a.Workflow)
	p.codeText(&a.Action)
	p.codeText(&a.ResumePolicy)
	p.codeTime(&a.DecidedAt)
	p.codeTime(&a.ExpiresAt)
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
