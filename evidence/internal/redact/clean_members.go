package redact

import (
	"slices"
	"strings"
)

func (c *Cleaner) array(k keyFacts, depth int) bool {
	if c.at++; !c.open('[', ']') {
		return c.close(']')
	}
	if k.credential.s == strong || k.list {
		return false
	}
	announced := false
	for first := true; ; first = false {
		if c.peek() == '"' {
			text, ok := c.str(keyFacts{ok: true}, true)
			if !ok || announced || first && programs[program(text)] {
				return false
			}
			announced = len(text) <= maxIdent && lookup(text).s == strong
		} else if announced = false; !c.value(keyFacts{ok: true}, depth) {
			return false
		}
		if c.blank(); c.peek() != ',' {
			return c.close(']')
		}
		c.at++
		c.out = append(c.out, ',')
		c.blank()
	}
}

// open writes a bracket and reports whether something stands behind it.
func (c *Cleaner) open(bracket, end byte) bool {
	c.out = append(c.out, bracket)
	c.blank()
	return c.peek() != end
}

func (c *Cleaner) close(bracket byte) bool {
	if c.peek() != bracket {
		return false
	}
	c.at++
	c.out = append(c.out, bracket)
	return true
}

func (c *Cleaner) object(k keyFacts, depth int) bool {
	if c.at++; !c.open('{', '}') {
		return c.close('}')
	}
	if k.credential.s == strong || k.detector == Address {
		return false
	}
	first, begin := len(c.members), len(c.out)
	sorted, folded, said, holds := true, false, false, false
	for {
		m := cleanMember{from: len(c.out)}
		member, value, ok := c.member(&m, depth)
		if !ok {
			return false
		}
		m.to = len(c.out)
		if n := len(c.members); n > first {
			sorted = sorted && c.members[n-1].key < m.key
		}
		folded = folded || member.upper
		holds = holds || member.holds
		said = said || value != "" && member.names && len(value) <= maxIdent && CredentialName(value)
		if c.members = append(c.members, m); len(c.members)-first > cleanMembers || said && holds {
			return false
		}
		if c.blank(); c.peek() != ',' {
			break
		}
		c.at++
		c.out = append(c.out, ',')
		c.blank()
	}
	list := c.members[first:]
	c.members = c.members[:first]
	if folded && twice(list) || !sorted && !c.sort(list, begin) {
		return false
	}
	return c.close('}')
}

// member takes a key and its value; value is the text, where it is one.
func (c *Cleaner) member(m *cleanMember, depth int) (k keyFacts, value string, ok bool) {
	if c.peek() != '"' {
		return k, "", false
	}
	if m.key, ok = c.str(k, false); !ok {
		return k, "", false
	}
	if len(m.key)+2 != len(c.out)-m.from { // it has escapes
		return k, "", false
	}
	if k = c.key(m.key); !k.ok || k.pass || m.key == "redaction" {
		return k, "", false
	}
	if _, listed := c.rows[m.key]; listed {
		return k, "", false
	}
	c.work += k.work
	if c.blank(); c.peek() != ':' {
		return k, "", false
	}
	c.at++
	c.out = append(c.out, ':')
	if c.blank(); c.peek() == '"' {
		value, ok = c.str(k, true)
		return k, value, ok
	}
	return k, "", c.value(k, depth)
}

// twice reports whether two keys differ in case only, or too many might.
func twice(list []cleanMember) bool {
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

// sort brings the members that were written from begin on into the order of their
// keys. It reports false if a key is there twice.
func (c *Cleaner) sort(list []cleanMember, begin int) bool {
	c.spare = append(c.spare[:0], c.out[begin:]...)
	slices.SortFunc(list, func(a, b cleanMember) int { return strings.Compare(a.key, b.key) })
	c.out = c.out[:begin]
	for i, m := range list {
		if i > 0 {
			if list[i-1].key == m.key {
				return false
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.spare[m.from-begin:m.to-begin]...)
	}
	return true
}
