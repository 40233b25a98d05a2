package correlation

import (
	"encoding/binary"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// folding writes the details of a call, or reads them: what does the one does the
// other, so that both know the same fields (TestFoldingKnowsEveryField). The texts
// that it reads are parts of what it reads from.
type folding struct {
	b []byte // written so far

	reading bool
	in      string // still to be read
	spare   *spare

	texts  [backward]string // the first ones, which later ones may be the same as
	known  int
	second int64  // the last time
	seq    uint64 // the last sequence
	plain  sum256 // the last arguments
}

// How a text is written: nothing, a usual word, the number of one that came before
// or its length.
const (
	noText   = 0
	backward = 24
	refers   = 1 + len(usualWords)
	literal  = refers + backward
)

// usualWords are texts that most calls have.
var usualWords = [...]string{
	protoAAEP, protoAgentHook, "tool", "handoff", "aana", "aump",
	stepRequested, stepDecided, stepInvoked, stepCompleted, stepClosed, stepTraced,
	"allow", "ask", "defer", "deny", statusPending, statusApproved, statusConsumed,
	"completed", "failed", "denied", "abandoned", "orphaned", matchEqual, matchDrift, matchInconclusive, "succeeded", "success", "error",
}

// wordTable says where a usual word is among them, by its size and its ends.
var wordTable = func() (t [wordTableSize]uint8) {
	for i, w := range usualWords {
		at := wordPlace(w)
		for t[at] != 0 {
			at = (at + 1) % uint(len(t))
		}
		t[at] = 1 + uint8(i)
	}
	return t
}()

const wordTableSize = 128

func wordPlace(w string) uint {
	return (uint(len(w)) + 11*uint(w[0]) + 5*uint(w[len(w)-1])) % wordTableSize
}

// wordCode is how a usual word is written; 0 if it is none.
func wordCode(w string) byte {
	if w == "" {
		return 0
	}
	for at := wordPlace(w); wordTable[at] != 0; at = (at + 1) % wordTableSize {
		if code := wordTable[at]; usualWords[code-1] == w {
			return code
		}
	}
	return 0
}

func (p *folding) uint() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		c := p.in[0]
		p.in = p.in[1:]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return n
		}
	}
}

func (p *folding) number(n *uint64) {
	if p.reading {
		*n = p.uint()
	} else {
		p.write(*n)
	}
}

// write writes a number, which is a small one as a rule.
func (p *folding) write(n uint64) {
	if n < 0x80 {
		p.b = append(p.b, byte(n))
	} else {
		p.b = binary.AppendUvarint(p.b, n)
	}
}

type integer interface {
	~int | ~int8 | ~int32 | ~int64 | ~uint8 | ~uint32
}

// numbers are not negative as a rule.
func small[T integer](p *folding, n *T) {
	if p.reading {
		*n = T(p.uint())
	} else {
		p.write(uint64(int64(*n)))
	}
}

// has says whether something is there.
func (p *folding) has(there bool) bool {
	if p.reading {
		there = p.in[0] != 0
		p.in = p.in[1:]
		return there
	}
	var c byte
	if there {
		c = 1
	}
	p.b = append(p.b, c)
	return there
}

// flags writes up to eight of them in a byte.
func (p *folding) flags(list ...*bool) {
	if p.reading {
		c := p.in[0]
		p.in = p.in[1:]
		for i, f := range list {
			*f = c&(1<<i) != 0
		}
		return
	}
	var c byte
	for i, f := range list {
		if *f {
			c |= 1 << i
		}
	}
	p.b = append(p.b, c)
}

func (p *folding) text(s *string) {
	if p.reading {
		*s = p.readText()
		return
	}
	if *s == "" {
		p.b = append(p.b, noText)
		return
	}
	for i := range p.known {
		if p.texts[i] == *s {
			p.write(uint64(refers + i))
			return
		}
	}
	p.note(*s)
	p.write(uint64(literal + len(*s)))
	p.b = append(p.b, *s...)
}

func (p *folding) note(s string) {
	if p.known < len(p.texts) {
		p.texts[p.known] = s
		p.known++
	}
}

func (p *folding) readText() string {
	switch n := int(p.uint()); {
	case n == noText:
		return ""
	case n < refers:
		return usualWords[n-1]
	case n < literal:
		return p.texts[n-refers]
	default:
		s := p.in[:n-literal]
		p.in = p.in[n-literal:]
		p.note(s)
		return s
	}
}

// word is a text that may be a usual one.
func word[T ~string](p *folding, s *T) {
	t := string(*s)
	if p.reading {
		*s = T(p.readText())
		return
	}
	if code := wordCode(t); code != 0 {
		p.b = append(p.b, code)
		return
	}
	p.text(&t)
}

func (p *folding) bytes(b []byte) {
	if p.reading {
		p.in = p.in[copy(b, p.in):]
	} else {
		p.b = append(p.b, b...)
	}
}

// sum writes nothing more where there is none.
func (p *folding) sum(s *sum) {
	if p.has(*s != sum{}) {
		p.bytes(s[:])
	}
}

func (p *folding) time(t *time.Time) {
	if !p.reading {
		if t.IsZero() {
			p.b = append(p.b, 0)
			return
		}
		p.b = binary.AppendUvarint(p.b, uint64(t.Nanosecond())+1)
		s := t.Unix()
		p.signed(s - p.second)
		p.second = s
		return
	}
	nanos := p.uint()
	if nanos == 0 {
		*t = time.Time{}
		return
	}
	z := p.uint()
	p.second += int64(z>>1) ^ -int64(z&1)
	*t = time.Unix(p.second, int64(nanos-1)).UTC()
}

// place is a sequence; those of one call are near each other.
func (p *folding) place(seq *uint64) {
	if !p.reading {
		p.signed(int64(*seq - p.seq))
		p.seq = *seq
		return
	}
	z := p.uint()
	p.seq += uint64(int64(z>>1) ^ -int64(z&1))
	*seq = p.seq
}

// signed writes a number that may be negative.
func (p *folding) signed(n int64) { p.write(uint64(n)<<1 ^ uint64(n>>63)) }

// length writes how many elements follow, and one; zero is a list that is nil.
func (p *folding) length(n int, isNil bool) (length int, there bool) {
	u := uint64(n) + 1
	if isNil {
		u = 0
	}
	p.number(&u)
	return int(u) - 1, u > 0
}

// list writes or reads a list of elements, one after the other.
func list[T any](p *folding, l *[]T, each func(*folding, *T)) {
	n, there := p.length(len(*l), *l == nil)
	if !there {
		return
	}
	if p.reading {
		*l = grown(p, *l, n)
	}
	for i := range *l {
		each(p, &(*l)[i])
	}
}

// grown makes room for n elements, of spare memory if there is some.
func grown[T any](p *folding, l []T, n int) []T {
	if p.spare != nil {
		switch any(l).(type) {
		case []events.TimelineEntry:
			return any(p.spare.timeline(n)[:n]).([]T)
		case []string:
			return any(p.spare.texts(n)[:n]).([]T)
		case []verdictRec:
			return any(p.spare.verdicts(n)[:n]).([]T)
		}
	}
	return make([]T, n)
}

func (p *folding) names(l *[]string) { list(p, l, (*folding).text) }
