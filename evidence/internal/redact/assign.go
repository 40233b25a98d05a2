package redact

import (
	"slices"
	"strings"
)

// scanAssignment handles a name, a separator at i and a value: password=…, "api_key": "…",
// Authorization: Bearer ….
func (sc *textScanner) scanAssignment(i int) {
	sc.budget.charge(8)
	n, end := sc.nameBefore(i)
	if n.strength == noStrength || end == 0 {
		return
	}
	if n.text == "pass" && sc.s[i] == '=' && end == i && containsFold(sc.s[max(0, end-maxIdent):end], "user") { // user=x pass=y
		n.strength = strongName
	}
	if n.text == "pass" && sc.s[i] == ':' && passArgument(sc.s[max(0, end-maxIdent):end]) {
		n.strength = strongName
	}
	v := i + 1
	for v < len(sc.s) && v <= i+2 && (sc.s[v] == '=' || sc.s[v] == '>') { // := => ==
		v++
	}
	if strings.HasPrefix(sc.s[v:], "//") { // after a URL's scheme
		return
	}
	sc.addSecretValue(n, v, sc.s[i] == ':')
}

// nameBefore looks up the name that ends before the separator at i, and returns its end.
func (sc *textScanner) nameBefore(i int) (nameRule, int) {
	s, j := sc.s, i
	for j > 0 && i-j < maxBlanks && (s[j-1] == ' ' || s[j-1] == '\t') {
		j--
	}
	j = beforeIndex(s, j)
	if j > 0 && byteClass[s[j-1]]&quoteChar != 0 {
		for j--; j > 0 && s[j-1] == '\\'; {
			j--
		}
	}
	stem := beforeNumber(s, j)
	if stem > 0 && stem < j && s[stem-1] == '.' { // password.0 in a list of properties
		stem--
		j = stem
	}
	end := j
	if stem < 2 || byteClass[s[stem-1]]&alnum != 0 && !mayEndName(s[:stem]) && !wordEnds[pairOf(s[stem-2], s[stem-1])] {
		return nameRule{}, 0 // true for most separators
	}
	for j > 0 && end-j < 2*longestName && (byteClass[s[j-1]]&word != 0 || s[j-1] >= 0x80) {
		j--
	}
	sc.budget.charge(15 + 2*(end-j))
	if s[end-1] >= 0x80 {
		sc.budget.charge(40)
		if apart(s[j:end]) {
			sc.budget.charge(20 * (end - j))
		}
	}
	n := lookupName(s[j:end])
	if n.strength != strongName && j+1 < end && afterEscape(s, j+1) {
		sc.budget.charge(15 + 2*(end-j))
		if m := lookupName(s[j+1 : end]); m.text != "" {
			n, j = m, j+1
		}
	}
	if n.text == "" {
		if n = sc.pairedName(j, end); n.strength == noStrength && endsWithWord(s[max(0, end-wordReach):end]) { // a name of several words
			n = wordName
		}
	}
	if n.strength != strongName && n.text != "" && j > 1 && s[j-1] == ' ' { // "API key: …"
		for j--; j > 0 && end-j < longestName+2 && byteClass[s[j-1]]&word != 0; {
			j--
		}
		sc.budget.charge(15 + 2*(end-j))
		if m := lookupName(s[j:end]); m.strength == strongName {
			n = m
		}
	}
	return n, end
}

// maxBlanks is the greatest number of blanks and tabs on either side of a separator.
const maxBlanks = 64

// beforeIndex returns the end of the name before an index that ends at end: password[0],
// password[], user[password].
func beforeIndex(s string, end int) int {
	if end == 0 || s[end-1] != ']' {
		return end
	}
	j := end - 1
	for j > 0 && end-j < 8 && isDigit(s[j-1]) {
		j--
	}
	if j > 0 && s[j-1] == '[' {
		return j - 1
	}
	return end - 1
}

// beforeNumber returns the end of the name before a number that ends at end: passwd2, password_2.
func beforeNumber(s string, end int) int {
	j := end
	for j > 0 && end-j < 4 && isDigit(s[j-1]) {
		j--
	}
	if j == end {
		return end
	}
	if j == 0 || byteClass[s[j-1]]&(letter|dash|dot) == 0 && s[j-1] < 0x80 {
		return 0 // a number is no name
	}
	return j
}

func containsFold(s, word string) bool {
	for i := 0; i+len(word) <= len(s); i++ {
		if matchesLiteral(s[i:i+len(word)], word, true) {
			return true
		}
	}
	return false
}

// scanFlag handles --name value and --user=name:password; i is the second dash. scanAssignment handles --name=value.
func (sc *textScanner) scanFlag(i int) {
	s := sc.s
	sc.budget.charge(15)
	if i > 1 && byteClass[s[i-2]]&(alnum|dash) != 0 && !afterEscape(s, i-1) {
		return
	}
	end := runEnd(s, i+1, word)
	if end == i+1 || end-i > maxIdent || end >= len(s) || s[end] != ' ' && s[end] != '=' {
		return
	}
	if next := runEnd(s, end, space); next == len(s) || s[next] == '-' {
		return
	}
	if name := s[i+1 : end]; name == "user" || name == "proxy-user" { // curl --user name:password
		sc.addUserPassword(runEnd(s, end+1, space))
	} else if n := lookupName(name); s[end] == ' ' && (n.strength == strongName || n.text == "pass") {
		n.strength = strongName
		sc.addSecretValue(n, end, false)
	}
}

// addUserPassword adds the password of name:password, an argument that begins at v.
func (sc *textScanner) addUserPassword(v int) {
	s, argument := sc.s, nextArgument
	v = quoteAt(s, v)
	name := v + openingQuote(s[v:])
	if open := openingJoint(s[v:]); open > 0 {
		name, argument = v+open, innerArgument
	}
	colon := runEnd(s[:min(len(s), name+2*maxIdent)], name, word|dot|at64)
	if colon == name || colon >= len(s) {
		return
	}
	if byteClass[s[colon]]&quoteChar != 0 { // "name":"password"
		colon++
	}
	if colon+1 >= len(s) || s[colon] != ':' {
		return
	}
	from := colon + 1 + openingQuote(s[colon+1:])
	_, to, end := argument(s[:min(len(s), v+commandReach)], v)
	sc.budget.charge(end - v)
	if to == end { // no quote closes it
		to = sc.bareEnd(from)
	}
	if from <= to && !isHarmlessValue(s[from:to]) {
		sc.addSpan(from, to, Assignment)
	}
}

// addSecretValue adds the value that begins at v, after blanks and an opening quote, if the
// name proves that it is a secret.
func (sc *textScanner) addSecretValue(n nameRule, v int, colon bool) {
	s := sc.s
	sc.budget.charge(30)
	for limit := v + maxBlanks; v < len(s) && v < limit && (s[v] == ' ' || s[v] == '\t'); {
		v++
	}
	if v >= len(s) || sc.nested(n, v, colon) {
		return
	}
	if n.line && colon && sc.addHeaderValue(v) {
		return
	}
	if s[v] == '$' && openingQuote(s[v+1:]) == 1 { // $'…' of a shell
		v++
	}
	if open := openingJoint(s[v:]); open > 0 && n.strength != weakName {
		from := v + open
		to, _ := jointEnd(s, v, from)
		sc.budget.charge((to - from) / 2)
		if text := s[from:to]; n.secret(text, true) && (n.strength != likely || passwordLike(text)) {
			sc.addSpan(from, to, Assignment)
		}
	}
	from, to, quoted := sc.quotedValue(v)
	first := to // the end of the value's first part
	if quoted && n.strength != weakName {
		to = joinedEnd(s[:min(len(s), from+maxValueWindow)], v, from, to)
		sc.budget.charge((to - first) / 2)
	} else if !quoted {
		to = sc.bareEnd(from)
		part, _, _ := strings.Cut(s[from:to], `\ `)
		first = from + len(strings.TrimRight(part, `)]},.\`))
		sc.budget.charge((to - from) / 8)
	}
	if n.strength == weakName || n.strength == likely && !passwordLike(s[from:to]) {
		to = first
	}
	text := s[from:to]
	if n.strength == likely {
		if passwordLike(text) && !isHarmlessValue(text) {
			sc.addSpan(from, to, Assignment)
		}
		return
	}
	if n.strength == weakName {
		if !sc.plain.contains(from) {
			sc.plain = extent{from, runEnd(s, from, bearerc)}
		}
		switch { // a value that begins shortly after the start of a non-random one is not random either
		case from < sc.notRandomUpTo || to > sc.plain.to:
		case sc.looksRandom(text):
			sc.addSpan(from, to, HighEntropy)
		case len(text) >= minRandom:
			sc.notRandomUpTo = min(from+notRandomReach, to)
		}
		return
	}
	if n.secret(text, quoted || !colon) {
		sc.addSpan(from, to, Assignment)
	}
}

// secret reports whether the name proves that a value in a text is a secret. marked says that
// quotes or an equals sign tell the value from prose.
func (n nameRule) secret(text string, marked bool) bool {
	if isHarmlessValue(text) || n.many && runEnd(text, 0, digit) == len(text) {
		return false
	}
	return marked || !n.prose || isUnlikeProse(text) && (!n.word || hasASCII(text))
}

func (sc *textScanner) looksRandom(v string) bool {
	sc.budget.charge(min(len(v), 2*maxIdent))
	return isRandomMix(v)
}

// quotedValue finds the value inside quotes, escaped or not: the closing quote is the next of
// the same kind at the same depth of escaping. If there is none, from is the start of an
// unquoted value.
func (sc *textScanner) quotedValue(v int) (from, to int, ok bool) {
	s, open := sc.s, openingQuote(sc.s[v:])
	if open == 0 {
		return v, 0, false
	}
	v += open
	quote, k := s[v-1], open-1
	memo := &sc.quoted[strings.IndexByte("\"'`", quote)][k]
	if !memo.contains(v) {
		limit := min(len(s), v+maxValueWindow)
		memo.end = closingQuote(s[:limit], v, quote, k)
		memo.extent = extent{v, max(memo.end, v) + 1}
		if memo.end < 0 {
			memo.extent.to = limit
		}
	}
	return v, memo.end, memo.end >= v
}

// maxSlashes is the number of backslashes before a quote that is nested in three others.
const maxSlashes = 7

// closingQuote returns the end of a value that begins at v, or -1 if no quote closes it.
func closingQuote(s string, v int, quote byte, k int) int {
	for p := v; p < len(s); p++ {
		next := strings.IndexByte(s[p:], quote)
		if next < 0 {
			return -1
		}
		p += next
		slashes := 0
		for p-slashes > v && s[p-slashes-1] == '\\' && slashes <= maxSlashes {
			slashes++
		}
		if k == 0 && slashes%2 == 0 {
			return p
		}
		if k > 0 && slashes <= k {
			return p - slashes
		}
	}
	return -1
}

// openingQuote returns the length of the quote that s begins with, with the backslashes that
// escape it, or 0.
func openingQuote(s string) int {
	k := 0
	for k < len(s) && s[k] == '\\' && k < maxSlashes {
		k++
	}
	if k < len(s) && byteClass[s[k]]&quoteChar != 0 {
		return k + 1
	}
	return 0
}

// quoteAt returns the position of the quote behind a shell's $ at a position, $'…' or $"…", or the
// position itself.
func quoteAt(s string, at int) int {
	if at+1 < len(s) && s[at] == '$' && s[at+1] != '`' && openingQuote(s[at+1:]) > 0 {
		return at + 1
	}
	return at
}

// anyOpeningQuote is openingQuote that knows $'…' and joints, too.
func anyOpeningQuote(s string) int {
	at := quoteAt(s, 0)
	if n := openingJoint(s[at:]); n > 0 {
		return at + n
	}
	return at + openingQuote(s[at:])
}

// quotedEnd returns the end of the value from from on behind a quote that begins at v, and the
// position after its closing quote; the value ends at -1 if no quote closes it.
func quotedEnd(s string, v, from int) (to, end int) {
	if to = closingQuote(s, from, s[from-1], from-v-1); to < 0 {
		return -1, v
	}
	closed := to
	if to = joinedEnd(s, v, from, to); to > closed && byteClass[s[to-1]]&quoteChar == 0 && !strings.HasPrefix(s[to:], s[v:from]) {
		return to, to // it ends without a quote
	}
	return to, to + openingQuote(s[to:])
}

// joints are what stands between two parts of a quoted value if it holds the quote itself, in
// shells and in JSON's texts of their commands; a doubled quote is one of any kind of quotes.
var joints = map[byte][]string{
	'\'': {`'\''`, `'\\''`, `'"'"'`, `'\"'\"'`},
	'"':  {`"\""`, `"'"'"`},
}

// openingJoint returns the length of the joint that s begins with, if the same one is further behind:
// both are the quotes of a value in a quoted command of a shell. Without one it returns 0.
func openingJoint(s string) int {
	if len(s) < 4 || s[0] != '\'' || s[1] != '\\' && s[1] != '"' {
		return 0
	}
	for _, joint := range openingJoints {
		rest, found := strings.CutPrefix(s, joint)
		if !found || rest == "" || byteClass[rest[0]]&valueEnd != 0 || strings.IndexByte("),|", rest[0]) >= 0 {
			continue
		}
		if strings.Contains(rest[:min(len(rest), maxValueWindow)], joint) {
			return len(joint)
		}
	}
	return 0
}

// openingJoints are joints with the same in a text of JSON that is itself in one.
var openingJoints = append(slices.Clip(joints['\'']), `'\\\\''`, `'\\\"'\\\"'`)

// jointEnd returns the end of the value from from on behind the joint at v, and the position after
// its closing joint. The value goes on if it holds quotes of its own, or a letter or a digit follows.
func jointEnd(s string, v, from int) (to, end int) {
	joint := s[v:from]
	s = s[:min(len(s), from+maxValueWindow)]
	for at := from; ; {
		n := strings.Index(s[at:], joint)
		if n < 0 {
			return max(from, to), max(from, end) // the text is cut off
		}
		to = at + n
		end = to + len(joint)
		if at = behindJoint(s, end, joint); at > end { // a quote of the value
			if next := behindJoint(s, at, joint); next > 0 {
				at = next
			} else if strings.HasPrefix(s[at:], joint) {
				at += len(joint)
			}
			continue
		}
		if end == len(s) || byteClass[s[end]]&alnum == 0 {
			return to, end
		}
		for end < len(s) && byteClass[s[end]]&valueEnd == 0 && strings.IndexByte(",)]}", s[end]) < 0 {
			end++
		}
		return end, end
	}
}

// behindJoint returns the position behind the next joint if only an escaped or quoted quote is
// before it, or 0.
func behindJoint(s string, at int, joint string) int {
	next := at
	for next < len(s) && (s[next] == '\\' || s[next] == '"') {
		next++
	}
	if next == at || !strings.HasPrefix(s[next:], joint) {
		return 0
	}
	return next + len(joint)
}

// joinedEnd returns the end of a value whose quote begins at v, which begins at from and whose
// first closing quote is at to. The value goes on if the quote is doubled, as in YAML,
// PowerShell, SQL and CSV, behind a joint, or if a letter or a digit follows.
func joinedEnd(s string, v, from, to int) int {
	quote := s[v:from]
	for {
		next := to + len(quote)
		if next >= len(s) {
			return to
		}
		if strings.HasPrefix(s[next:], quote) {
			next += len(quote)
		} else if len(quote) == 1 && byteClass[s[next]]&alnum != 0 {
			for next < len(s) && byteClass[s[next]]&valueEnd == 0 && strings.IndexByte(",)]}", s[next]) < 0 {
				next++
			}
			return next
		} else {
			next = 0
			for _, joint := range joints[quote[0]] {
				if strings.HasPrefix(s[to:], joint) {
					next = to + len(joint)
					break
				}
			}
		}
		closed := -1
		if next > 0 {
			closed = closingQuote(s, next, quote[len(quote)-1], len(quote)-1)
		}
		if closed < 0 {
			return to
		}
		to = closed
	}
}

// bareEnd returns the end of an unquoted value: white space (but no blank behind a backslash), a
// quote, & ; < >, or a comma before a blank. Brackets and full stops at the end do not belong to the value.
func (sc *textScanner) bareEnd(v int) int {
	s := sc.s
	if !sc.bare.contains(v) {
		end := v
		for end < len(s) && (byteClass[s[end]]&valueEnd == 0 || s[end] == ' ' && end > v && s[end-1] == '\\') {
			if s[end] == ',' && (end+1 == len(s) || byteClass[s[end+1]]&(space|quoteChar) != 0) {
				break
			}
			end++
		}
		sc.bare = extent{v, end}
	}
	end := sc.bare.to
	for end > v && end > sc.bare.to-4 && strings.IndexByte(")]},.\\", s[end-1]) >= 0 {
		end--
	}
	return max(end, v)
}

// addHeaderValue adds a header's value up to the end of its line, if it looks like a header's
// value.
func (sc *textScanner) addHeaderValue(v int) bool {
	s := sc.s
	if !sc.line.contains(v) {
		end := v
		for end < len(s) && s[end] != '\n' && s[end] != '\r' && byteClass[s[end]]&quoteChar == 0 {
			end++
		}
		sc.line = extent{v, end}
		sc.lineHit = strings.IndexByte(s[v:end], '=') >= 0 && !IsPlaceholder(s[v:end])
	}
	if !sc.lineHit && !isAuthScheme(s[v:min(sc.line.to, v+20)]) {
		return false
	}
	sc.addSpan(v, sc.line.to, Assignment)
	return true
}

func isAuthScheme(s string) bool {
	for _, word := range []string{"bearer ", "basic ", "digest ", "token ", "negotiate ", "apikey ", "ntlm ", "bot ", "sharedkey ", "hmac-sha256 ", "aws4-hmac-sha256 "} {
		if len(s) >= len(word) && matchesLiteral(s[:len(word)], word, true) {
			return true
		}
	}
	return false
}

// isHarmlessValue reports whether a value shows that there is no secret.
func isHarmlessValue(v string) bool {
	switch strings.ToLower(v[:min(len(v), 12)]) {
	case "", "true", "false", "null", "none", "nil", "undefined", "redacted", "[redacted]", "[redacted", "<redacted>", "unknown":
		return len(v) <= 12
	}
	if body, marked := strings.CutPrefix(v, placeholderPrefix); marked {
		return isPlaceholderBody(strings.TrimSuffix(body, "]"))
	}
	return strings.HasPrefix(v, "${") || strings.HasPrefix(v, "{{") ||
		strings.Trim(v, "*") == "" || strings.Trim(v, `\"'`) == ""
}

// passArgument reports whether a text ends with pass as an argument of a command: /pass:… of
// Windows, -passin pass:… of openssl.
func passArgument(s string) bool {
	head, ok := strings.CutSuffix(s, "pass")
	head = strings.TrimRight(head, "\"' ")
	return ok && (strings.HasSuffix(head, "/") || strings.HasSuffix(head, " -pass") || strings.HasSuffix(head, " -passin") || strings.HasSuffix(head, " -passout"))
}

// hasASCII reports whether a value has ASCII characters; prose in another script has none.
func hasASCII(v string) bool {
	return strings.IndexFunc(v, func(r rune) bool { return r < 0x80 }) >= 0
}

// isUnlikeProse reports whether a word looks unlike prose: it is long, or has a digit, a sign
// or an upper-case letter inside.
func isUnlikeProse(v string) bool {
	if len(v) >= 16 {
		return true
	}
	for i := range len(v) {
		c := byteClass[v[i]]
		if c&letter == 0 && v[i] < 0x80 || (i > 0 && c&upper != 0) {
			return true
		}
	}
	return false
}
