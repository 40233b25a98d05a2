package redact

import "strings"

// Character classes of bytes, as bits.
const (
	lower uint16 = 1 << iota
	upper
	digit
	dash       // - _
	base64Rest // + / =
	dot
	tilde
	space     // blank, tab, line ends
	quoteChar // " ' `
	valueEnd  // ends an unquoted value; includes white space and quotes
	base32    // A-Z 2-7
	mailSign  // allowed in an e-mail address besides letters and digits
	joiner    // allowed between groups of digits
	dollar    // $
	at64      // @ % as in URLs
	operator  // of shells: | ; & < >

	letter  = lower | upper
	alnum   = letter | digit
	word    = alnum | dash
	base64c = alnum | base64Rest
	bearerc = alnum | dash | base64Rest | dot | tilde

	mailLocal  = alnum | dash | dot | mailSign
	mailDomain = alnum | dash | dot
)

var byteClass = func() (t [256]uint16) {
	for c := range t {
		switch {
		case c >= 'a' && c <= 'z':
			t[c] |= lower
		case c >= 'A' && c <= 'Z':
			t[c] |= upper | base32
		case c >= '0' && c <= '9':
			t[c] |= digit
		}
	}
	mark := func(set string, bit uint16) {
		for i := range len(set) {
			t[set[i]] |= bit
		}
	}
	mark("-_", dash)
	mark("+/=", base64Rest)
	mark(".", dot)
	mark("~", tilde)
	mark(" \t\r\n\v\f", space|valueEnd)
	mark("\"'`", quoteChar|valueEnd)
	mark("&;<>", valueEnd)
	mark("234567", base32)
	mark("+%", mailSign)
	mark(" -./()", joiner)
	mark("$", dollar)
	mark("@%", at64)
	mark("|;&<>", operator)
	for c := 0x80; c < 0x100; c++ { // letters of other scripts
		t[c] |= mailSign
	}
	return t
}()

// runEnd returns the end of the longest run of class from i on.
func runEnd(s string, i int, class uint16) int {
	for i < len(s) && byteClass[s[i]]&class != 0 {
		i++
	}
	return i
}

// afterEscape reports whether an escaped line break or tab ends at i: its n, r or t is no part of the word that follows.
func afterEscape(s string, i int) bool {
	return i > 1 && s[i-2] == '\\' && (s[i-1] == 'n' || s[i-1] == 'r' || s[i-1] == 't')
}

// insideWord reports whether a letter, a digit or _ before i makes what begins there a part of another word.
func insideWord(s string, i int) bool {
	return i > 0 && (byteClass[s[i-1]]&alnum != 0 || s[i-1] == '_') && !afterEscape(s, i)
}

// escapeIndex returns the position of the first escaped line break or tab in s, or len(s).
func escapeIndex(s string) int {
	for i := 2; i <= len(s); i++ {
		if afterEscape(s, i) {
			return i - 2
		}
	}
	return len(s)
}

// trimBlanks removes blanks, tabs and line breaks, also escaped ones, from the end of s.
func trimBlanks(s string) string {
	for {
		if s = strings.TrimRight(s, " \t\r\n\\"); !afterEscape(s, len(s)) {
			return s
		}
		s = s[:len(s)-2]
	}
}

func lowerASCII(c byte) byte {
	if byteClass[c]&upper != 0 {
		return c + 'a' - 'A'
	}
	return c
}

func upperASCII(c byte) byte {
	if byteClass[c]&lower != 0 {
		return c - 'a' + 'A'
	}
	return c
}
