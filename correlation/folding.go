package correlation

import (
	"encoding/binary"
	"time"
)

// folding writes the details of a call, or reads them: what does the one does the
// other, so that both know the same fields (TestFoldingKnowsEveryField). The texts
// that it reads are parts of what it reads from.
type folding struct {
	b []byte // written so far

	reading bool
	in      string // still to be read
	spare   *spare

	bits [mostBits / 64]uint64 // for what may be there or not
	bit  uint                  // how many were asked for

	texts  [backward]string // the first ones, which later ones may be the same as
	ends   [backward]uint64 // of the texts, while they are written
	places [64]uint8        // of the texts, by a hash of their ends; from 1
	known  int
	second int64 // the last time
	nanos  uint32
	seq    uint64 // the last sequence
	plain  sum256 // the last arguments
	spoken string // the last protocol
}

// The bits lie behind everything else, and last of all how many bytes of them there
// are. A call that has all it can have asks for less than half of mostBits.
const mostBits = 512

// begin begins to write.
func (p *folding) begin() {
	p.forget()
	p.b, p.reading, p.in, p.spare = p.b[:0], false, "", nil
}

// forget forgets what was written or read.
func (p *folding) forget() {
	clear(p.texts[:p.known])
	p.bits, p.places = [len(p.bits)]uint64{}, [len(p.places)]uint8{}
	p.bit, p.known, p.second, p.nanos, p.seq, p.plain, p.spoken = 0, 0, 0, 0, 0, sum256{}, ""
}

// written is what was written since.
func (p *folding) written() []byte {
	if p.bit > mostBits {
		panic("correlation: more is there or not than has a bit")
	}
	size := (p.bit + 7) / 8
	end := uint(len(p.b)) + size
	for _, word := range p.bits[:(p.bit+63)/64] {
		p.b = binary.LittleEndian.AppendUint64(p.b, word)
	}
	p.b = append(p.b[:end], byte(size))
	return p.b
}

// read begins to read what was written, into spare memory if that is not nil.
func (p *folding) read(in string, s *spare) {
	p.forget()
	end := len(in) - 1
	bits := in[end-int(in[end]) : end]
	for i := range len(bits) {
		p.bits[i/8] |= uint64(bits[i]) << (i % 8 * 8)
	}
	p.reading, p.in, p.spare = true, in[:end-len(bits)], s
}

// How a text is written: nothing, a usual word, the number of one that came before
// or its length.
const (
	noText   = 0
	backward = 24
	refers   = 1 + len(usualWords)
	literal  = refers + backward
)

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

// has says whether something is there; of what is not, nothing more is written.
func (p *folding) has(there bool) bool {
	word, bit := &p.bits[p.bit/64%uint(len(p.bits))], uint64(1)<<(p.bit%64)
	p.bit++
	if p.reading {
		return *word&bit != 0
	}
	if there {
		*word |= bit
	}
	return there
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
	t := *s
	end := endOf(t)
	at := end * 0x9e3779b97f4a7c15 >> 58
	for ; p.places[at] != 0; at = (at + 1) % uint64(len(p.places)) {
		if i := p.places[at] - 1; p.ends[i] == end && p.texts[i] == t {
			p.b = append(p.b, byte(refers+int(i)))
			return
		}
	}
	if p.known < len(p.texts) {
		p.texts[p.known], p.ends[p.known] = t, end
		p.known++
		p.places[at] = uint8(p.known)
	}
	p.write(uint64(literal + len(t)))
	p.b = append(p.b, t...)
}

// endOf are the last bytes of a text that is not empty, in which ids differ if they
// do, and its length.
func endOf(t string) uint64 {
	n := len(t)
	if n < 8 {
		return uint64(n)<<56 | uint64(t[0])<<8 | uint64(t[n-1])
	}
	t = t[n-8:]
	return uint64(n)<<56 ^ (uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
		uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56)
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
		if p.known < len(p.texts) {
			p.texts[p.known] = s
			p.known++
		}
		return s
	}
}

func (p *folding) bytes(b []byte) {
	if p.reading {
		p.in = p.in[copy(b, p.in):]
	} else {
		p.b = append(p.b, b...)
	}
}

// How a time is written: none, the last one again, or another one.
const (
	noTime = iota
	sameTime
	otherTime
)

func (p *folding) time(t *time.Time) {
	if p.reading {
		*t = p.readTime()
		return
	}
	if t.IsZero() {
		p.b = append(p.b, noTime)
		return
	}
	p.moment(t.Unix(), uint32(t.Nanosecond()))
}

func (p *folding) moment(second int64, nanos uint32) {
	if second == p.second && nanos == p.nanos {
		p.b = append(p.b, sameTime)
		return
	}
	p.b = binary.LittleEndian.AppendUint32(append(p.b, otherTime), nanos)
	p.signed(second - p.second)
	p.second, p.nanos = second, nanos
}

func (p *folding) readTime() time.Time {
	how := p.in[0]
	p.in = p.in[1:]
	switch how {
	case noTime:
		return time.Time{}
	case otherTime:
		p.nanos = uint32(p.in[0]) | uint32(p.in[1])<<8 | uint32(p.in[2])<<16 | uint32(p.in[3])<<24
		p.in = p.in[4:]
		z := p.uint()
		p.second += int64(z>>1) ^ -int64(z&1)
	}
	return time.Unix(p.second, int64(p.nanos)).UTC()
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
		case []timelineEntry:
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
