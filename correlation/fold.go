package correlation

import (
	"encoding/binary"

	"github.com/countersign-dev/countersign/events"
)

// A call that is over is remembered for what may come late, and usually nothing
// does. Its details are folded into one text then, about a fifth of their size
// and nothing for the garbage collector to look into, and unfolded when somebody
// asks. What is kept of them beside that, the outline, tells most of those who
// ask that the call is not the one they look for.

// outline is what a folded call can be asked without unfolding it. What it says of
// a call that is not folded is not up to date.
type outline struct {
	names  uint64 // a Bloom filter of the events and the workflow that it goes by
	plain  uint64 // the beginning of its arguments' SHA-256
	exact  bool   // that tells it from calls with other arguments
	denied bool   // its own verdict is deny
}

func outlineOf(c *call) outline {
	o := outline{plain: c.args.beginning(), denied: c.own().verdict == events.Deny}
	o.exact = c.args.known && len(c.args.redacted) == 0
	for _, e := range c.events {
		o.names |= nameBits(e)
	}
	for i := range c.decisions {
		d := &c.decisions[i]
		o.names |= nameBits(d.eventID) | nameBits(d.pending.value().workflow)
		o.exact = o.exact && (d.digest == "" || againstVerdict(&c.args, d.digest) == equal)
	}
	o.names |= nameBits(c.pending.value().workflow)
	return o
}

func (a *arguments) beginning() uint64 { return binary.BigEndian.Uint64(a.plain[:]) }

// nameBits are the bits of a name in the filter. A filter that lets too much
// through costs time only.
func nameBits(name string) uint64 {
	if name == "" {
		return 0
	}
	var ends [16]byte
	copy(ends[:8], name)
	copy(ends[8:], name[max(0, len(name)-8):])
	h := (binary.LittleEndian.Uint64(ends[:])*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(ends[8:])) * 0xff51afd7ed558ccd
	return 1<<(h>>58) | 1<<(h>>52&63)
}

// differs tells that a call that is over has other arguments than a fact, if that
// can be said without unfolding it.
func (c *call) differs(f *fact) bool {
	return c.details == nil && c.outline.exact && f.args.known && f.args.digest == "" && len(f.args.redacted) == 0 &&
		f.args.beginning() != c.outline.plain
}

// named tells that a call may go by a name.
func (c *call) named(bits uint64) bool { return c.details != nil || c.outline.names&bits == bits }

// wasDenied tells whether the verdict for this very call is deny.
func (c *call) wasDenied() bool {
	if c.details == nil {
		return c.outline.denied
	}
	return c.own().verdict == events.Deny
}

// unfold makes a call's details accessible, until the message is through at least.
func (c *call) unfold() *call {
	if c == nil || c.details != nil {
		return c
	}
	m := c.session.machine
	c.details = m.blank()
	p := &m.spare.last
	p.read(c.packed, &m.spare)
	p.details(c.details)
	m.loose = append(m.loose, c)
	return c
}

// foldAtOnce is how many calls are folded one after the other: a processor that
// has just done it does it again in less time.
const foldAtOnce = 64

// fold packs the details of the calls that are over.
func (m *machine) fold() {
	for i, c := range m.loose {
		if m.loose[i] = nil; c.open() || c.details == nil {
			continue
		}
		c.outline = outlineOf(c)
		p := &m.spare.last
		p.begin()
		p.details(c.details)
		if b := p.written(); string(b) != c.packed {
			c.packed = string(b)
		}
		m.spare.take(c.details)
		c.details = nil
	}
	m.loose = m.loose[:0]
}

// foldedJoins are a call's joins.
func (c *call) foldedJoins() []string {
	if c.details != nil {
		return c.joins
	}
	var joins []string
	var p folding
	p.read(c.packed, nil)
	p.names(&joins)
	return joins
}

// spare is memory of folded calls that is used again.
type spare struct {
	details   []*details
	timelines [][]timelineEntry
	decisions [][]verdictRec
	names     [][]string // with room for one
	last      folding
}

// maxSpare bounds it.
const maxSpare = 256

// usualSteps is how many steps most calls have.
const usualSteps = 4

func (m *machine) blank() *details {
	n := len(m.spare.details)
	if n == 0 {
		return new(details)
	}
	d := m.spare.details[n-1]
	m.spare.details = m.spare.details[:n-1]
	return d
}

// take takes the memory of details. Nobody else may refer to it.
func (s *spare) take(d *details) {
	if len(s.details) >= maxSpare {
		return
	}
	if cap(d.timeline) >= usualSteps && len(s.timelines) < maxSpare {
		clear(d.timeline)
		s.timelines = append(s.timelines, d.timeline[:0])
	}
	if cap(d.decisions) == 1 && len(s.decisions) < maxSpare {
		clear(d.decisions)
		s.decisions = append(s.decisions, d.decisions[:0])
	}
	s.takeNames(d.events)
	s.takeNames(d.joins)
	*d = details{}
	s.details = append(s.details, d)
}

func (s *spare) takeNames(l []string) {
	if cap(l) == 1 && len(s.names) < 2*maxSpare {
		clear(l)
		s.names = append(s.names, l[:0])
	}
}

func (s *spare) texts(n int) []string {
	if k := len(s.names); k > 0 && n == 1 {
		l := s.names[k-1]
		s.names = s.names[:k-1]
		return l
	}
	return make([]string, 0, n)
}

func (s *spare) timeline(n int) []timelineEntry {
	if k := len(s.timelines); k > 0 && cap(s.timelines[k-1]) >= n {
		t := s.timelines[k-1]
		s.timelines = s.timelines[:k-1]
		return t
	}
	return make([]timelineEntry, 0, max(n, usualSteps))
}

func (s *spare) verdicts(n int) []verdictRec {
	if k := len(s.decisions); k > 0 && n == 1 {
		d := s.decisions[k-1]
		s.decisions = s.decisions[:k-1]
		return d
	}
	return make([]verdictRec, 0, n)
}
