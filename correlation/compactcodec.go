package correlation

import (
	"encoding/binary"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// detailsCodec writes the details of a call, or reads them. Each method does both, so that
// both directions have the same fields (TestCompactingKnowsEveryField). A text that was read
// is a substring of the input.
type detailsCodec struct {
	output []byte // what was written so far

	reading bool
	input   string // what is still to be read

	flags     [maxFlags / 64]uint64 // one bit for each optional value: whether it is present
	flagCount uint                  // how many flags were written or read

	knownTexts   [backReferences]string // the first texts; a repeated text is written as its index here
	textEnds     [backReferences]uint64 // textEnd of each known text, while writing
	textPlaces   [64]uint8              // a hash table from textEnd to index and one, while writing
	knownCount   int
	lastSecond   int64 // the last time, as are lastNanos
	lastNanos    uint32
	lastSeq      uint64      // the last sequence
	lastArgsSum  fact.Sum256 // the last sum of arguments
	lastProtocol string      // the last protocol
}

// maxFlags bounds the flags of one call. The flags follow all other bytes; the last byte is
// their size. A call with every optional value has less than half as many flags.
const maxFlags = 512

// startWriting prepares the codec for writing.
func (p *detailsCodec) startWriting() {
	p.resetState()
	p.output, p.reading, p.input = p.output[:0], false, ""
}

// resetState clears the state of one call.
func (p *detailsCodec) resetState() {
	clear(p.knownTexts[:p.knownCount])
	p.flags, p.textPlaces = [len(p.flags)]uint64{}, [len(p.textPlaces)]uint8{}
	p.flagCount, p.knownCount, p.lastSecond, p.lastNanos, p.lastSeq, p.lastArgsSum, p.lastProtocol = 0, 0, 0, 0, 0, fact.Sum256{}, ""
}

// finishWriting appends the flags and returns all that was written.
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

// startReading prepares the codec to read what finishWriting returned.
func (p *detailsCodec) startReading(in string) {
	p.resetState()
	end := len(in) - 1
	bits := in[end-int(in[end]) : end]
	for i := range len(bits) {
		p.flags[i/8] |= uint64(bits[i]) << (i % 8 * 8)
	}
	p.reading, p.input = true, in[:end-len(bits)]
}

// A text is written as one number: noText, the code of a word (codedWords), a reference to an
// earlier text, or firstLiteral plus its length, followed by its bytes.
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

// writeUint writes a number as a varint. Most numbers take one byte.
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

// codeInt writes or reads a number that is rarely negative.
func codeInt[T integer](p *detailsCodec, n *T) {
	if p.reading {
		*n = T(p.readUint())
	} else {
		p.writeUint(uint64(int64(*n)))
	}
}

// codeFlag writes or reads whether an optional value is present. Nothing else is written of an
// absent value.
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

// textEnd has the last bytes of a non-empty text and its length. Ids that differ mostly differ
// in their last bytes.
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

// A time is written as noTime, sameTime (the last one again), or otherTime with its value.
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

// codeSeq writes or reads a sequence as the difference to the last one: those of one call are
// near each other.
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

// codeLength writes or reads the length of a list: the number of elements and one; 0 for nil.
func (p *detailsCodec) codeLength(n int, isNil bool) (length int, there bool) {
	u := uint64(n) + 1
	if isNil {
		u = 0
	}
	p.codeUint(&u)
	return int(u) - 1, u > 0
}

// codeList writes or reads a list, element by element.
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

// codeDetails writes or reads all details of a call. A new field of details needs a line here.
// decisionIDs come first: see compactedDecisionIDs.
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

// The codeOptional methods write a value only if it is not zero.

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

// codeProtocol writes or reads a protocol, which is mostly the last one again.
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
	p.codeText(&v.ID)
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
	if p.codeFlag(d.earlierEnd != earlierEnd{}) {
		p.codeText(&d.earlierEnd.event)
		p.codeText(&d.earlierEnd.finding)
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

// codeEmitted writes or reads the last emitted state, which mostly equals the call's present
// state.
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
