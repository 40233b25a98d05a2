package redact

import "strings"

// Numbers are found by their groups: 4111 1111 1111 1111 has the shape 4-4-4-4.
// Every group begins a window of up to maxWindow groups; a window whose shape is
// in the table of numbers is checked. Where shape and check digits leave too much
// to chance, a word in front of the number must say what it is.

const (
	maxGroups = 24 // groups that are looked at together
	maxWindow = 7  // groups of one number at most
	maxGroup  = 19 // digits of one group at most
	minDigits = 7  // of anything that is looked for
)

// group is a run of digits.
type group struct{ at, n int32 }

func (g group) end() int { return int(g.at + g.n) }

// run of digits that blanks and signs join.
type digitRun struct {
	s       string
	m       *meter
	figures *[maxWindow * maxGroup]byte // room for the digits of a window
	g       []group
	total   int
	words   uint32 // what the words in front say; see words
	looked  bool   // words is known
}

// digits looks at the number whose first two digits end at i and says where to
// go on.
func (sc *scanner) digits(i int) (next int) {
	s, start := sc.s, i-1
	for back := 0; back < 3 && start >= 2 && classOf[s[start-1]]&joiner != 0 && isDigit(s[start-2]) && start-2 >= sc.number && (start == 2 || !isDigit(s[start-3])); back++ {
		start -= 2 // +1 415 …: one digit alone makes no pair
	}
	n, total, end := 0, 0, start
	for p := start; n < maxGroups; n++ {
		for end = p; end < len(s) && isDigit(s[end]); end++ {
		}
		sc.groups[n] = group{int32(p), int32(end - p)}
		total += end - p
		if p = end; p < len(s) && classOf[s[p]]&joiner != 0 {
			if p++; p < len(s) && classOf[s[p]]&joiner != 0 {
				p++
			}
		}
		if p == end || p >= len(s) || !isDigit(s[p]) {
			n++
			break
		}
	}
	if next = end; n == maxGroups {
		next = sc.groups[maxGroups-maxWindow].end() // a number may begin in the groups behind
	}
	sc.m.charge(9 + 5*n)
	decimal := n == 2 && s[sc.groups[0].end()] == '.' && sc.groups[0].end()+1 == int(sc.groups[1].at)
	if total >= minDigits && !decimal || lettered(s, start, end) {
		sc.m.charge(11 * n)
		sc.run = digitRun{s: s, m: sc.m, figures: &sc.figures, g: sc.groups[:n], total: total}
		sc.numbers(&sc.run)
	}
	sc.number = max(sc.number, next)
	return max(next, i+1)
}

func isDigit(c byte) bool { return classOf[c]&digit != 0 }

// lettered reports whether an upper-case letter touches [from, to).
func lettered(s string, from, to int) bool {
	return from > 0 && classOf[s[from-1]]&upper != 0 || to < len(s) && classOf[s[to]]&upper != 0
}

// numbers tries every window of a run, from left to right, longest first.
func (sc *scanner) numbers(r *digitRun) {
	for j := 0; j < len(r.g); j++ {
		if int(r.g[j].at) < sc.number {
			continue
		}
		if from, to, detector := r.find(j); to > from {
			sc.add(from, to, detector)
			sc.number = to
		}
	}
}

// find looks for a number that begins with group j.
func (r *digitRun) find(j int) (from, to int, detector string) {
	g := r.g[j]
	start := int(g.at)
	glued := start > 0 && (classOf[r.s[start-1]]&alnum != 0 || r.s[start-1] == '_')
	if lettered(r.s, start, g.end()) || g.n == 6 && g.end() < len(r.s) && (r.s[g.end()] == '-' || r.s[g.end()] == '+') {
		if from, to, detector = r.withLetters(j); to > from {
			return from, to, detector
		}
	}
	if glued {
		return 0, 0, ""
	}
	if start > 0 && r.s[start-1] == '+' {
		if to = r.international(j); to > 0 {
			return start - 1, to, Phone
		}
	}
	var ends [maxWindow]uint8 // nodes of the tree of shapes
	n, node := 0, uint8(0)
	for n < maxWindow && j+n < len(r.g) && r.g[j+n].n <= maxGroup {
		if node = shapes[node].next[r.g[j+n].n]; node == 0 {
			break
		}
		ends[n] = node
		n++
	}
	for k := n; k > 0; k-- {
		node := &shapes[ends[k-1]]
		if node.lead>>(r.s[g.at]-'0')&1 == 0 || !r.bounded(j, k) {
			continue
		}
		rows := node.rows
		if row := r.match(rows, j, k); row != nil {
			return r.from(j), r.g[j+k-1].end(), row.detector
		}
	}
	return r.nationalPhone(j)
}

// from is where a number that begins with group j begins: an opening bracket
// belongs to it.
func (r *digitRun) from(j int) int {
	at := int(r.g[j].at)
	if at > 0 && r.s[at-1] == '(' {
		at--
	}
	return at
}

// match finds the row that the k groups from j on are a number of.
func (r *digitRun) match(rows []*number, j, k int) *number {
	var d []byte
	for _, row := range rows {
		if row.lead>>(r.s[r.g[j].at]-'0')&1 == 0 || row.seps != "" && k > 1 && !r.separated(j, k, row.seps) {
			continue
		}
		r.m.charge(45)
		if d == nil {
			d = r.figures[:0]
			for _, g := range r.g[j : j+k] {
				d = append(d, r.s[g.at:g.end()]...)
			}
		}
		if row.alone && r.continued(j, k) {
			continue
		}
		if row.check(d) && (row.words == 0 || row.sure != "" && k > 1 && r.separated(j, k, row.sure) || r.said()&row.words != 0) {
			return row
		}
	}
	return nil
}

// separated reports whether the signs between the k groups from j on, one after
// the other, are seps.
func (r *digitRun) separated(j, k int, seps string) bool {
	for i := j; i < j+k-1; i++ {
		between := r.s[r.g[i].end():r.g[i+1].at]
		if !strings.HasPrefix(seps, between) {
			return false
		}
		seps = seps[len(between):]
	}
	return seps == ""
}

// continued reports whether a group as long as its neighbour stands, behind a
// blank, before or after the k groups from j on.
func (r *digitRun) continued(j, k int) bool {
	return j > 0 && r.g[j-1].n == r.g[j].n || j+k < len(r.g) && r.g[j+k].n == r.g[j+k-1].n
}

// bounded reports whether the k groups from j on stand alone: no letter, no
// digit and no fraction touches them, and they are no part of a longer number
// that is written in the same way.
func (r *digitRun) bounded(j, k int) bool {
	s, end := r.s, r.g[j+k-1].end()
	if end < len(s) && (classOf[s[end]]&alnum != 0 || s[end] == '_') {
		return false
	}
	if j > 0 && r.joined(j-1, j, k) || j+k < len(r.g) && r.joined(j+k-1, j, k) {
		return false
	}
	return j > 0 || r.g[j].at < 2 || s[r.g[j].at-1] != '.' && s[r.g[j].at-1] != ',' || !isDigit(s[r.g[j].at-2])
}

// joined reports whether group i and the next belong together: by a point, or
// by a dash where dashes are inside the number too.
func (r *digitRun) joined(i, j, k int) bool {
	sep := r.s[r.g[i].end():r.g[i+1].at]
	if sep == "." {
		return true
	}
	return sep == "-" && (k == 1 || r.s[r.g[j].end()] == '-')
}
