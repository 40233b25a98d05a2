package redact

import "strings"

// Values that are more than a word: lists, objects and blocks. Under a key of decoded JSON they
// are redacted whole. In a text their content decides, because a text can be code, a schema or
// prose.

// nested handles a value that begins at v, after blanks, if it is a list, an object or a block of
// YAML. It reports whether it is one.
func (sc *textScanner) nested(n nameRule, v int, colon bool) bool {
	if v < sc.inside {
		return true // inside a value that was added already
	}
	if n.strength != strongName || strings.HasPrefix(sc.s[v:], placeholderPrefix) || strings.HasPrefix(sc.s[v:], "{{") {
		return false
	}
	switch sc.s[v] {
	case '[', '{':
		sc.bracketed(n, v, colon)
		return true
	case '|', '>':
		if to := runEnd(sc.s[:min(len(sc.s), v+4)], v+1, digit|dash|base64Rest); to < len(sc.s) && colon && lineEnd(sc.s[to]) {
			sc.literalBlock(v, to)
			return true
		}
	case '\n', '\r':
		if colon {
			sc.block(v)
		}
		return true
	}
	return false
}

func lineEnd(c byte) bool { return c == '\n' || c == '\r' }

// maxListWindow is how far a list or an object may reach in a text.
const maxListWindow = 64 << 10

// bracketed adds a whole list or object if the name proves that a value in it is secret. A list
// that is longer than maxListWindow is added with everything after it; one that the text cuts
// off is added up to maxValueWindow.
func (sc *textScanner) bracketed(n nameRule, v int, colon bool) {
	limit := min(len(sc.s), v+maxListWindow)
	to, closed, found := sc.leaves(n, v, limit, colon)
	sc.budget.charge(2 * (to - v))
	switch {
	case !found:
		return
	case !closed && limit < len(sc.s):
		to = len(sc.s)
	case !closed:
		to = min(to, v+maxValueWindow)
	}
	sc.inside = to
	sc.addSpan(v, to, Assignment)
}

// leaves walks through a list or an object that begins at v. It returns its end, whether a
// bracket closes it, and whether a value in it is secret.
func (sc *textScanner) leaves(n nameRule, v, limit int, colon bool) (end int, closed, found bool) {
	s, depth := sc.s[:limit], 0
	for i := v; i < limit; {
		switch c := s[i]; {
		case c == '[' || c == '{':
			depth++
			i++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i + 1, true, found
			}
			i++
		case byteClass[c]&space != 0 || strings.IndexByte(",:=()<>;", c) >= 0:
			i++
		default:
			from, to, next, quoted := leaf(s, i)
			if isKey := keyFollows(s, next); !isKey && !schemaWord(s[from:to]) && n.secret(s[from:to], quoted || !colon) {
				found = true
			}
			i = next
		}
	}
	return limit, false, found
}

// leaf returns the quoted text or the word that begins at i: from and to are its own bytes, next
// is the position after it. It is never empty.
func leaf(s string, i int) (from, to, next int, quoted bool) {
	if open := openingQuote(s[i:]); open > 0 {
		from = i + open
		if to, next = quotedEnd(s, i, from); to >= 0 {
			return from, to, next, true
		}
		return from, len(s), len(s), true
	}
	for to = i + 1; to < len(s) && byteClass[s[to]]&(space|quoteChar) == 0 && strings.IndexByte("[]{},:", s[to]) < 0; {
		to++
	}
	return i, to, to, false
}

// keyFollows reports whether the text that ends at i is a key, with a separator after it.
func keyFollows(s string, i int) bool {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i < len(s) && (s[i] == ':' || s[i] == '=')
}

// schemaWord reports whether a value describes another value: it is the name of a type, or a
// number.
func schemaWord(v string) bool {
	if len(v) <= 8 {
		switch strings.ToLower(v) {
		case "string", "boolean", "bool", "number", "integer", "int", "object", "array", "any", "required", "optional", "password":
			return true
		}
	}
	return runEnd(v, 0, digit) == len(v)
}

// line returns the end of the line that contains i.
func line(s string, i int) int {
	if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(s)
}

// indentOf returns the number of blanks at the start of the line that contains i.
func indentOf(s string, i int) int {
	start := strings.LastIndexByte(s[max(0, i-4*maxIdent):i], '\n') + 1
	if start > 0 || i > 4*maxIdent {
		start += max(0, i-4*maxIdent)
	}
	n := start
	for n < i && (s[n] == ' ' || s[n] == '\t') {
		n++
	}
	return n - start
}

// blockLines calls each for every line of the YAML block below the line of v: lines with a deeper
// indent, and items of a list with the same indent.
func (sc *textScanner) blockLines(v, first int, each func(from, to int, item bool)) {
	s, indent := sc.s[:min(len(sc.s), v+maxValueWindow)], indentOf(sc.s, v)
	end := min(line(sc.s, first), len(s))
	for end < len(s) {
		from := end + 1
		to := line(s, from)
		text := from
		for text < to && (s[text] == ' ' || s[text] == '\t') {
			text++
		}
		item := text+1 < to && s[text] == '-' && s[text+1] == ' '
		if text < to && text-from <= indent && !(item && text-from == indent) || text == to && each == nil {
			break
		}
		if text < to && s[text] != '\r' {
			each(text, to, item)
		}
		end = to
	}
	sc.budget.charge(2 * (end - v))
}

// literalBlock adds the lines of a block scalar: password: | and what is indented below it.
func (sc *textScanner) literalBlock(v, first int) {
	from, to := 0, 0
	sc.blockLines(v, first, func(start, end int, _ bool) {
		if from == 0 {
			from = start
		}
		to = end
	})
	sc.addSpan(from, to, Assignment)
	sc.inside = max(sc.inside, to)
}

// block handles what is below a key of YAML: items of a list, members, or a single word. There,
// only text that looks unlike prose and unlike a name is a value.
func (sc *textScanner) block(v int) {
	s := sc.s
	sc.blockLines(v, v, func(from, to int, item bool) {
		if item {
			from = runEnd(s[:to], from+1, space)
		}
		if at := memberValue(s[:to], from); at > 0 {
			from = at
		}
		for to > from && byteClass[s[to-1]]&space != 0 {
			to--
		}
		if from >= to {
			return
		}
		start, end, next, quoted := leaf(s[:to], from)
		if !quoted {
			start, end, next = from, to, to
		}
		text := s[start:end]
		if next < to || !quoted && strings.ContainsAny(text, " \t,;|[{") || schemaWord(text) || isHarmlessValue(text) {
			return
		}
		if quoted || isUnlikeProse(text) && !nameLike(text) {
			sc.addSpan(start, end, Assignment)
		}
	})
}

// memberValue returns the start of the value of a member (key: value) at from, or 0.
func memberValue(s string, from int) int {
	end := runEnd(s, from, word|dot|quoteChar)
	if end == from || end+1 >= len(s) || s[end] != ':' || byteClass[s[end+1]]&space == 0 {
		return 0
	}
	return runEnd(s, end+1, space)
}

// nameLike reports whether a word looks like a name of a thing: letters of one case with - _ . in
// between, as in db_password.
func nameLike(v string) bool {
	return runEnd(v, 0, lower|dash|dot) == len(v) || runEnd(v, 0, upper|dash|dot) == len(v)
}
