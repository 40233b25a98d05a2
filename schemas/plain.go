package schemas

import (
	"regexp"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
)

// matcher matches the usual patterns of schemas without the cost of regular expressions: a
// sequence of ASCII characters and classes, the last of which may be repeated.
type matcher struct {
	steps []asciiSet
	// last may occur from least to most times (-1: any number).
	last        asciiSet
	least, most int
}

// asciiSet is a set of ASCII characters.
type asciiSet [2]uint64

func (c *asciiSet) add(lo, hi rune) {
	for r := lo; r <= hi; r++ {
		c[r>>6] |= 1 << (r & 63)
	}
}

func (c *asciiSet) has(b byte) bool { return b < utf8.RuneSelf && c[b>>6]&(1<<(b&63)) != 0 }

func (m *matcher) match(s string) bool {
	if len(s) < len(m.steps) {
		return false
	}
	for i := range m.steps {
		if !m.steps[i].has(s[i]) {
			return false
		}
	}
	rest := s[len(m.steps):]
	if len(rest) < m.least || m.most >= 0 && len(rest) > m.most {
		return false
	}
	for i := range len(rest) {
		if !m.last.has(rest[i]) {
			return false
		}
	}
	return true
}

// matcherOf returns the matcher of a pattern, nil for a pattern of another form.
func matcherOf(re *regexp.Regexp) *matcher {
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil || tree.Op != syntax.OpConcat || len(tree.Sub) < 2 {
		return nil
	}
	parts := tree.Sub
	first, end := parts[0], parts[len(parts)-1]
	if first.Op != syntax.OpBeginText || end.Op != syntax.OpEndText {
		return nil
	}
	parts = parts[1 : len(parts)-1]
	m := &matcher{}
	for i, p := range parts {
		switch p.Op {
		case syntax.OpLiteral:
			if !m.addLiteral(p) {
				return nil
			}
			continue
		case syntax.OpCharClass:
			c, ok := classOf(p)
			if !ok {
				return nil
			}
			m.steps = append(m.steps, c)
			continue
		case syntax.OpStar:
			m.least, m.most = 0, -1
		case syntax.OpPlus:
			m.least, m.most = 1, -1
		case syntax.OpRepeat:
			m.least, m.most = p.Min, p.Max
		default:
			return nil
		}
		var ok bool
		if m.last, ok = classOf(p.Sub[0]); !ok || i != len(parts)-1 {
			return nil
		}
	}
	return m
}

func (m *matcher) addLiteral(p *syntax.Regexp) bool {
	for _, r := range p.Rune {
		if r >= utf8.RuneSelf || p.Flags&syntax.FoldCase != 0 {
			return false
		}
		var c asciiSet
		c.add(r, r)
		m.steps = append(m.steps, c)
	}
	return true
}

func classOf(p *syntax.Regexp) (c asciiSet, ok bool) {
	if p.Op != syntax.OpCharClass || p.Flags&syntax.FoldCase != 0 {
		return c, false
	}
	for i := 0; i < len(p.Rune); i += 2 {
		if p.Rune[i+1] >= utf8.RuneSelf {
			return c, false
		}
		c.add(p.Rune[i], p.Rune[i+1])
	}
	return c, true
}

// plainTime returns true only for a date-time, in the usual form.
func plainTime(s string) bool {
	_, plain := events.ParsePlainTime(s)
	return plain
}

// plainUUID returns true only for a UUID.
func plainUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case !isDigit(c) && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}
