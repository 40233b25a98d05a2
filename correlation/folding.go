package correlation

import (
	"encoding/binary"
	"time"
)

// detailsCodec writes the details of a call, or reads them: what does the one does the
// other, so that both know the same fields (TestFoldingKnowsEveryField). The texts
// that it reads are parts of what it reads from.
type detailsCodec struct {
	output []byte // written so far

	reading   bool
	input     string // still to be read
	freeLists *callFreeLists

	flags     [maxFlags / 64]uint64 // for what may be there or not
	flagCount uint                  // how many were asked for

	knownTexts   [backReferences]string // the first ones, which later ones may be the same as
	textEnds     [backReferences]uint64 // of the texts, while they are written
	textPlaces   [64]uint8              // of the texts, by a hash of their ends; from 1
	knownCount   int
	lastSecond   int64 // the last time
	lastNanos    uint32
	lastSeq      uint64 // the last sequence
	lastArgsSum  sum256 // the last arguments
	lastProtocol string // the last protocol
}

// The bits lie behind everything else, and last of all how many bytes of them there
// are. A call that has all it can have asks for less than half of mostBits.
const maxFlags = 512

// startWriting begins to write.
func (p *detailsCodec) startWriting() {
	p.resetState()
	p.output, p.reading, p.input, p.freeLists = p.output[:0], false, "", nil
}

// resetState forgets what was written or read.
func (p *detailsCodec) resetState() {
	clear(p.knownTexts[:p.knownCount])
	p.flags, p.textPlaces = [len(p.flags)]uint64{}, [len(p.textPlaces)]uint8{}
	p.flagCount, p.knownCount, p.lastSecond, p.lastNanos, p.lastSeq, p.lastArgsSum, p.lastProtocol = 0, 0, 0, 0, 0, sum256{}, ""
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

// startReading begins to read what was written, into spare memory if that is not nil.
func (p *detailsCodec) startReading(in string, s *callFreeLists) {
	p.resetState()
	end := len(in) - 1
	bits := in[end-int(in[end]) : end]
	for i := range len(bits) {
		p.flags[i/8] |= uint64(bits[i]) << (i % 8 * 8)
	}
	p.reading, p.input, p.freeLists = true, in[:end-len(bits)], s
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
		*l = allocList(p, *l, n)
	}
	for i := range *l {
		each(p, &(*l)[i])
	}
}

// allocList makes room for n elements, of spare memory if there is some.
func allocList[T any](p *detailsCodec, l []T, n int) []T {
	if p.freeLists != nil {
		switch any(l).(type) {
		case []timelineEntry:
			return any(p.freeLists.allocTimeline(n)[:n]).([]T)
		case []string:
			return any(p.freeLists.allocStrings(n)[:n]).([]T)
		case []recordedVerdict:
			return any(p.freeLists.allocVerdicts(n)[:n]).([]T)
		}
	}
	return make([]T, n)
}

func (p *detailsCodec) codeStrings(l *[]string) { codeList(p, l, (*detailsCodec).codeText) }
