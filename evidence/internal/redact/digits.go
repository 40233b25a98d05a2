package redact

import (
	"strings"
	"unicode/utf8"
)

// Numbers are found by their groups of digits: 4111 1111 1111 1111 has the shape 4-4-4-4. Every
// group begins a window of up to maxWindow groups; a window with a shape in the table of
// numbers is checked. Where shape and check digits leave too much to chance, a word before the
// number must say what it is.

const (
	maxGroups = 24 // greatest number of groups in one run
	maxWindow = 7  // greatest number of groups in one number
	maxGroup  = 19 // greatest number of digits in one group
	minDigits = 7  // fewest digits of any number
)

// digitGroup is a run of digits.
type digitGroup struct{ at, n int32 }

func (g digitGroup) end() int { return int(g.at + g.n) }

// digitRun is a run of digits that blanks and signs join.
type digitRun struct {
	s          string
	budget     *workBudget
	figures    *[maxWindow * maxGroup]byte // buffer for the digits of a window
	groups     []digitGroup
	total      int
	words      uint32 // meanings of the words before the run; see precedingWords
	wordsKnown bool   // words is set
}

// scanDigits handles the number with its first two digits ending at i, and returns where to
// continue.
func (sc *textScanner) scanDigits(i int) (next int) {
	s, start := sc.s, i-1
	for back := 0; back < 3 && start >= 2 && (byteClass[s[start-1]]&joiner != 0 || s[start-1] >= utf8.RuneSelf); back++ { // +1 415 …: a single digit makes no pair
		single := start - joinerBefore(s, start) - 1
		if single < sc.number || !isDigit(s[single]) || single > 0 && isDigit(s[single-1]) {
			break
		}
		start = single
	}
	n, total, end := 0, 0, start
	for p := start; n < maxGroups; n++ {
		for end = p; end < len(s) && isDigit(s[end]); end++ {
		}
		sc.groups[n] = digitGroup{int32(p), int32(end - p)}
		total += end - p
		p = end
		for signs := 0; signs < 2 && p < len(s) && (byteClass[s[p]]&joiner != 0 || s[p] >= utf8.RuneSelf); signs++ {
			_, size := joinerAt(s, p)
			p += size
		}
		if p == end || p >= len(s) || !isDigit(s[p]) {
			n++
			break
		}
	}
	if next = end; n == maxGroups {
		next = sc.groups[maxGroups-maxWindow].end() // a number may begin in the last groups
	}
	sc.budget.charge(9 + 5*n)
	decimal := n == 2 && s[sc.groups[0].end()] == '.' && sc.groups[0].end()+1 == int(sc.groups[1].at)
	if decimal && sc.groups[0].n >= minNumber && isZeros(s[sc.groups[1].at:end]) { // tables write a long integer as 4111111111111111.0
		n, total, decimal = 1, int(sc.groups[0].n), false
	}
	if total >= minDigits && !decimal || touchesLetter(s, start, end) {
		sc.budget.charge(11 * n)
		sc.run = digitRun{s: s, budget: sc.budget, figures: &sc.figures, groups: sc.groups[:n], total: total}
		sc.addNumbers(&sc.run)
	}
	sc.number = max(sc.number, next)
	return max(next, i+1)
}

// joinerAt returns the sign at i that may stand between groups of digits, as ASCII, and its length; 0 if there is none.
func joinerAt(s string, i int) (sign byte, size int) {
	if i < len(s) && byteClass[s[i]]&joiner != 0 {
		return s[i], 1
	}
	if i < len(s) && s[i] >= utf8.RuneSelf {
		return typeset(utf8.DecodeRuneInString(s[i:]))
	}
	return 0, 0
}

// joinerBefore returns the length of such a sign that ends at i.
func joinerBefore(s string, i int) (size int) {
	if i > 0 && s[i-1] < utf8.RuneSelf {
		_, size = joinerAt(s, i-1)
		return size
	}
	_, size = typeset(utf8.DecodeLastRuneInString(s[:i]))
	return size
}

// typeset returns the sign in place of which typesetting has a rune: no-break and narrow blanks, and dashes.
func typeset(r rune, size int) (sign byte, _ int) {
	switch {
	case r == '\u00a0', r == '\u202f', r >= '\u2000' && r <= '\u200a':
		return ' ', size
	case r >= '\u2010' && r <= '\u2015', r == '\u2212':
		return '-', size
	}
	return 0, 0
}

func isDigit(c byte) bool { return byteClass[c]&digit != 0 }

func isZeros(s string) bool { return strings.Trim(s, "0") == "" }

// touchesLetter reports whether an upper-case letter touches [from, to).
func touchesLetter(s string, from, to int) bool {
	return from > 0 && byteClass[s[from-1]]&upper != 0 || to < len(s) && byteClass[s[to]]&upper != 0
}

// addNumbers tries every window of a run, from left to right, longest first.
func (sc *textScanner) addNumbers(r *digitRun) {
	for j := range len(r.groups) {
		if int(r.groups[j].at) < sc.number {
			continue
		}
		if from, to, detector := r.findNumber(j); to > from {
			sc.addSpan(from, to, detector)
			sc.number = to
		}
	}
}

// findNumber looks for a number that begins with group j.
func (r *digitRun) findNumber(j int) (from, to int, detector string) {
	g := r.groups[j]
	start := int(g.at)
	if touchesLetter(r.s, start, g.end()) || g.n == 6 && g.end() < len(r.s) && (r.s[g.end()] == '-' || r.s[g.end()] == '+') {
		if from, to, detector = r.findLetterNumber(j); to > from {
			return from, to, detector
		}
	}
	if insideWord(r.s, start) {
		return 0, 0, ""
	}
	if start > 0 && r.s[start-1] == '+' {
		if to = r.internationalPhone(j); to > 0 {
			return start - 1, to, Phone
		}
	}
	var ends [maxWindow]uint8 // nodes of shapeTree
	n, node := 0, uint8(0)
	for n < maxWindow && j+n < len(r.groups) && r.groups[j+n].n <= maxGroup {
		if node = shapeTree[node].next[r.groups[j+n].n]; node == 0 {
			break
		}
		ends[n] = node
		n++
	}
	for k := n; k > 0; k-- {
		node := &shapeTree[ends[k-1]]
		if node.lead>>(r.s[g.at]-'0')&1 == 0 || !r.isBounded(j, k) {
			continue
		}
		rows := node.rows
		if row := r.matchPattern(rows, j, k); row != nil {
			return r.numberStart(j), r.groups[j+k-1].end(), row.detector
		}
	}
	return r.nationalPhone(j)
}

// numberStart is the start of a number that begins with group j. It includes an opening bracket.
func (r *digitRun) numberStart(j int) int {
	at := int(r.groups[j].at)
	if at > 0 && r.s[at-1] == '(' {
		at--
	}
	return at
}

// matchPattern returns the pattern that the k groups from j on match, or nil.
func (r *digitRun) matchPattern(rows []*numberPattern, j, k int) *numberPattern {
	var d []byte
	for _, row := range rows {
		if row.lead>>(r.s[r.groups[j].at]-'0')&1 == 0 || row.seps != "" && k > 1 && !r.hasSeparators(j, k, row.seps) {
			continue
		}
		r.budget.charge(45)
		if d == nil {
			d = r.figures[:0]
			for _, g := range r.groups[j : j+k] {
				d = append(d, r.s[g.at:g.end()]...)
			}
		}
		if row.standsAlone && r.isContinued(j, k) {
			continue
		}
		if row.check(d) && (row.words == 0 || row.sureSeps != "" && k > 1 && r.hasSeparators(j, k, row.sureSeps) || r.precedingWords()&row.words != 0) {
			return row
		}
	}
	return nil
}

// hasSeparators reports whether the signs between the k groups from j on, concatenated, are seps.
func (r *digitRun) hasSeparators(j, k int, seps string) bool {
	for i := j; i < j+k-1; i++ {
		between := r.between(i)
		if !strings.HasPrefix(seps, between) {
			return false
		}
		seps = seps[len(between):]
	}
	return seps == ""
}

// between returns the signs between group i and the next, as ASCII.
func (r *digitRun) between(i int) string {
	s := r.s[r.groups[i].end():r.groups[i+1].at]
	if len(s) == 1 || s[0] < utf8.RuneSelf && s[len(s)-1] < utf8.RuneSelf {
		return s
	}
	first, size := joinerAt(s, 0)
	if second, more := joinerAt(s, size); more > 0 {
		return string([]byte{first, second})
	}
	return string([]byte{first})
}

// isContinued reports whether a group as long as its neighbour precedes or follows the k groups
// from j on.
func (r *digitRun) isContinued(j, k int) bool {
	return j > 0 && r.groups[j-1].n == r.groups[j].n || j+k < len(r.groups) && r.groups[j+k].n == r.groups[j+k-1].n
}

// isBounded reports whether the k groups from j on stand alone: no letter, digit or fraction
// touches them, and they are no part of a longer number that is written in the same way.
func (r *digitRun) isBounded(j, k int) bool {
	s, end := r.s, r.groups[j+k-1].end()
	if end < len(s) && (byteClass[s[end]]&alnum != 0 || s[end] == '_') {
		return false
	}
	if j > 0 && r.isJoined(j-1, j, k) || j+k < len(r.groups) && r.isJoined(j+k-1, j, k) {
		return false
	}
	return j > 0 || r.groups[j].at < 2 || s[r.groups[j].at-1] != '.' && s[r.groups[j].at-1] != ',' || !isDigit(s[r.groups[j].at-2])
}

// isJoined reports whether group i and the next belong together: they are joined by a point, or
// by a dash if the number has dashes inside too.
func (r *digitRun) isJoined(i, j, k int) bool {
	sep := r.between(i)
	if sep == "." {
		return true
	}
	return sep == "-" && (k == 1 || r.between(j)[0] == '-')
}
