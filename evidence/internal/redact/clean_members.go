package redact

import (
	"slices"
	"strings"
)

func (c *CleanChecker) checkArray(k keyFacts, depth int) bool {
	if c.at++; !c.openBracket('[', ']') {
		return c.closeBracket(']')
	}
	if k.credential.strength == strongName || k.list {
		return false
	}
	announced := false
	for first := true; ; first = false {
		if c.peek() == '"' {
			text, ok := c.checkString(keyFacts{plainKey: true}, true)
			if !ok || announced || first && programs[programName(text)] {
				return false
			}
			announced = len(text) <= maxIdent && lookupName(text).strength == strongName
		} else if announced = false; !c.checkValue(keyFacts{plainKey: true}, depth) {
			return false
		}
		if c.skipBlank(); c.peek() != ',' {
			return c.closeBracket(']')
		}
		c.at++
		c.out = append(c.out, ',')
		c.skipBlank()
	}
}

// openBracket writes a bracket and reports whether something stands behind it.
func (c *CleanChecker) openBracket(bracket, end byte) bool {
	c.out = append(c.out, bracket)
	c.skipBlank()
	return c.peek() != end
}

func (c *CleanChecker) closeBracket(bracket byte) bool {
	if c.peek() != bracket {
		return false
	}
	c.at++
	c.out = append(c.out, bracket)
	return true
}

func (c *CleanChecker) checkObject(k keyFacts, depth int) bool {
	if c.at++; !c.openBracket('{', '}') {
		return c.closeBracket('}')
	}
	if k.credential.strength == strongName || k.detector == Address {
		return false
	}
	first, begin := len(c.members), len(c.out)
	sorted, folded, said, holds := true, false, false, false
	for {
		m := cleanMember{from: len(c.out)}
		member, value, ok := c.checkMember(&m, depth)
		if !ok {
			return false
		}
		m.to = len(c.out)
		if n := len(c.members); n > first {
			sorted = sorted && c.members[n-1].key < m.key
		}
		folded = folded || member.hasUpper
		holds = holds || member.isPairValue
		said = said || value != "" && member.isPairName && len(value) <= maxIdent && CredentialName(value)
		if c.members = append(c.members, m); len(c.members)-first > cleanMembers || said && holds {
			return false
		}
		if c.skipBlank(); c.peek() != ',' {
			break
		}
		c.at++
		c.out = append(c.out, ',')
		c.skipBlank()
	}
	list := c.members[first:]
	c.members = c.members[:first]
	if folded && hasFoldedDuplicate(list) || !sorted && !c.sortMembers(list, begin) {
		return false
	}
	return c.closeBracket('}')
}

// checkMember takes a key and its value; value is the text, where it is one.
func (c *CleanChecker) checkMember(m *cleanMember, depth int) (k keyFacts, value string, ok bool) {
	if c.peek() != '"' {
		return k, "", false
	}
	if m.key, ok = c.checkString(k, false); !ok {
		return k, "", false
	}
	if len(m.key)+2 != len(c.out)-m.from { // it has escapes
		return k, "", false
	}
	if k = c.factsFor(m.key); !k.plainKey || k.isPassword || m.key == "redaction" {
		return k, "", false
	}
	if _, listed := c.rows[m.key]; listed {
		return k, "", false
	}
	c.work += k.work
	if c.skipBlank(); c.peek() != ':' {
		return k, "", false
	}
	c.at++
	c.out = append(c.out, ':')
	if c.skipBlank(); c.peek() == '"' {
		value, ok = c.checkString(k, true)
		return k, value, ok
	}
	return k, "", c.checkValue(k, depth)
}

// hasFoldedDuplicate reports whether two keys differ in case only, or too many might.
func hasFoldedDuplicate(list []cleanMember) bool {
	if len(list) > cleanFolded {
		return true
	}
	for i := range list {
		for j := range list[:i] {
			if len(list[i].key) == len(list[j].key) && strings.EqualFold(list[i].key, list[j].key) {
				return true
			}
		}
	}
	return false
}

// sortMembers brings the members that were written from begin on into the order of their
// keys. It reports false if a key is there twice.
func (c *CleanChecker) sortMembers(list []cleanMember, begin int) bool {
	c.sortBuffer = append(c.sortBuffer[:0], c.out[begin:]...)
	slices.SortFunc(list, func(a, b cleanMember) int { return strings.Compare(a.key, b.key) })
	c.out = c.out[:begin]
	for i, m := range list {
		if i > 0 {
			if list[i-1].key == m.key {
				return false
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.sortBuffer[m.from-begin:m.to-begin]...)
	}
	return true
}
