package redact

import "strings"

func (c *CleanChecker) peek() byte {
	if c.at < len(c.s) {
		return c.s[c.at]
	}
	return 0
}

// skipBlank skips white space.
func (c *CleanChecker) skipBlank() {
	for c.at < len(c.s) {
		switch c.s[c.at] {
		case ' ', '\n', '\r', '\t':
			c.at++
		default:
			return
		}
	}
}

func (c *CleanChecker) checkValue(k keyFacts, depth int) bool {
	switch c.peek() {
	case '"':
		_, ok := c.checkString(k, true)
		return ok
	case '{':
		return depth < cleanDepth && c.checkObject(k, depth+1)
	case '[':
		return depth < cleanDepth && c.checkArray(k, depth+1)
	case 't':
		return c.readLiteral("true")
	case 'f':
		return c.readLiteral("false")
	case 'n':
		return c.readLiteral("null")
	}
	return c.checkNumber(k)
}

func (c *CleanChecker) readLiteral(w string) bool {
	if !strings.HasPrefix(c.s[c.at:], w) {
		return false
	}
	c.at += len(w)
	c.out = append(c.out, w...)
	return true
}

// checkString consumes a string, checks it if look is set, and writes it.
func (c *CleanChecker) checkString(k keyFacts, look bool) (value string, ok bool) {
	start := c.at + 1
	i, escaped := start, false
	for ; ; i++ {
		if i >= len(c.s) || c.s[i] < ' ' {
			return "", false
		}
		if c.s[i] == '"' {
			break
		}
		if c.s[i] == '\\' {
			escaped = true
			i++
		}
	}
	value, c.at = c.s[start:i], i+1
	if escaped {
		if value, ok = unescapeSimple(value); !ok {
			return "", false
		}
	}
	if look && !c.checkText(value, k) {
		return "", false
	}
	if !escaped {
		c.out = append(c.out, c.s[start-1:i+1]...)
		return value, true
	}
	c.out = append(c.out, '"')
	for j := range len(value) {
		if short := strings.IndexByte("\"\\\b\f\n\r\t", value[j]); short >= 0 {
			c.out = append(c.out, '\\', `"\bfnrt`[short])
			continue
		}
		c.out = append(c.out, value[j])
	}
	c.out = append(c.out, '"')
	return value, true
}

// unescapeSimple resolves escapes of two characters; it rejects a text with other escapes.
func unescapeSimple(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i >= len(s) {
			return "", false
		}
		at := strings.IndexByte(`"\/bfnrt`, s[i])
		if at < 0 {
			return "", false
		}
		b.WriteByte("\"\\/\b\f\n\r\t"[at])
	}
	return b.String(), true
}

// checkNumber consumes a number with a single spelling that every reader decodes to the same
// value: at most 15 digits, no exponent, and in a fraction no trailing zero and a non-zero
// digit among the first six.
func (c *CleanChecker) checkNumber(k keyFacts) bool {
	start := c.at
	if c.peek() == '-' {
		c.at++
	}
	whole := runEnd(c.s, c.at, digit)
	digits, zero := whole-c.at, c.peek() == '0'
	if digits == 0 || zero && digits > 1 {
		return false
	}
	c.at = whole
	if c.peek() == '.' {
		end := runEnd(c.s, whole+1, digit)
		fraction := c.s[whole+1 : end]
		if fraction == "" || fraction[len(fraction)-1] == '0' || zero && strings.Trim(fraction[:min(6, len(fraction))], "0") == "" {
			return false
		}
		digits, zero, c.at = digits+len(fraction), false, end
	}
	switch c.peek() {
	case '.', 'e', 'E':
		return false
	}
	lit := c.s[start:c.at]
	if digits > 15 || zero && lit[0] == '-' || !c.checkDigits(lit, k) {
		return false
	}
	c.out = append(c.out, lit...)
	return true
}

// checkDigits reports whether no detector finds anything in a number.
func (c *CleanChecker) checkDigits(lit string, k keyFacts) bool {
	if k.credential.strength == strongName || k.detector != "" && k.check(lit) {
		return false
	}
	if len(lit) < 13 {
		return true
	}
	spans, work := c.budget.scanText(lit)
	c.work += work
	return len(spans) == 0
}
