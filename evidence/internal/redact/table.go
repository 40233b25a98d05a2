package redact

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

// rule is one row of the table of secret shapes: a literal that begins (or contains) the secret,
// and what must follow it.
type rule struct {
	detector string
	literals []string // any of them; compared without case if fold is set
	fold     bool
	glued    bool   // may directly follow a letter or digit
	class    uint16 // alphabet of what follows
	min      int    // fewest bytes of class
	check    func(tail string) bool
	match    matcher // replaces class, min and check
}

// matcher reads the text around a literal at [start, after) and returns the part that is secret.
// The rule need not look again before next: everything that begins before it was read.
type matcher func(s string, start, after int) (from, to, next int)

// matchedRules are the shapes that a literal and an alphabet alone do not identify.
var matchedRules = []rule{
	{detector: URLPassword, literals: []string{"://"}, glued: true, match: matchURLPassword}, // urlRule
	{detector: "nats_seed", literals: []string{"SU", "SA", "SO", "SN", "SC", "SX"}, match: matchNATSSeed},
	{detector: "note_signing_key", literals: []string{"PRIVATE+KEY+"}, glued: true, class: bearerc, min: 20},
	{detector: "age_secret_key", literals: []string{"AGE-SECRET-KEY-1"}, glued: true, class: upper | digit, min: 30},
	{detector: ReplyToken, literals: []string{"rpl_"}, class: alnum, min: 1},
	{detector: "jwt", literals: []string{"eyJ"}, match: matchJWT},
	{detector: "bearer_token", literals: []string{"bearer "}, fold: true, match: matchBearer},
	{detector: BasicAuth, literals: []string{"basic "}, fold: true, match: matchBasic},
	barePassword, barePlainPassword,
	{detector: Assignment, literals: []string{"password '", "password by '", "identified by '", "identified by \"", "convertto-securestring '", "convertto-securestring \"",
		"password e'", "password = n'", "password=n'", "-asplaintext '", "-asplaintext \"", "storepassword '", "storepassword \"", "keypassword '", "keypassword \""}, fold: true, match: matchQuoted},
	{detector: Assignment, literals: []string{"requirepass", "REQUIREPASS", "masterauth", "MASTERAUTH", "aws_secret_access_key"}, match: matchSetting},
	{detector: Assignment, literals: []string{"password"}, match: matchLogin},
	{detector: Assignment, literals: []string{"phrase: ", "phrase=", "mnemonic: ", "mnemonic="}, fold: true, glued: true, match: matchSeedPhrase},
	{detector: URLPassword, literals: []string{"@tcp(", "@unix("}, glued: true, match: matchDriverPassword},
	{detector: PEM, literals: []string{"-----BEGIN "}, glued: true, match: matchPEM},
}

const (
	urlRule  = 0 // index of the rule for URLs in rules
	maxRules = 112
)

// rules is the whole table of shapes.
var rules = func() []rule {
	all := append(slices.Clip(matchedRules), providerRules...)
	if len(all) > maxRules {
		panic("redact: more rules than a scan keeps track of")
	}
	return all
}()

func hasDigit(tail string) bool { return strings.ContainsAny(tail, "0123456789") }

// longSegment reports whether tail has a digit and 16 bytes without a dash: "sk-learn-based-…" is
// a phrase, "sk-proj-Ab3…" is a key.
func longSegment(tail string) bool {
	length := 0
	for i := range len(tail) {
		if length++; byteClass[tail[i]]&dash != 0 {
			length = 0
		}
		if length >= 16 {
			return hasDigit(tail)
		}
	}
	return false
}

// matchNATSSeed matches S, a role letter, and base32, 58 bytes in all.
func matchNATSSeed(s string, start, _ int) (from, to, next int) {
	end := runEnd(s, start, base32)
	if end-start == 58 {
		return start, end, end
	}
	return 0, 0, end
}

// matchJWT matches three or more parts joined by dots, none of them short. A detached signature
// (with an empty middle part) is no secret.
func matchJWT(s string, start, _ int) (from, to, next int) {
	end, parts := start, 0
	for {
		stop := runEnd(s, end, word)
		if stop-end < 10 {
			break
		}
		parts++
		to = stop
		if stop == len(s) || s[stop] != '.' {
			break
		}
		end = stop + 1
	}
	if parts < 3 {
		return 0, 0, runEnd(s, start, word)
	}
	return start, to, to
}

func matchBearer(s string, _, after int) (from, to, next int) {
	from = runEnd(s, after, space)
	to = runEnd(s, from, bearerc)
	if v := s[from:to]; len(v) >= 8 && (len(v) >= 16 || hasDigit(v)) && !IsPlaceholder(v) {
		return from, to, to
	}
	return 0, 0, to
}

// matchBasic matches base64 that decodes to text with a colon, so that "basic authentication"
// is no finding.
func matchBasic(s string, _, after int) (from, to, next int) {
	from = runEnd(s, after, space)
	to = runEnd(s, from, base64c)
	v := strings.TrimRight(s[from:to], "=")
	if len(v) < 4 || len(v)%4 == 1 || len(v) > maxValueWindow {
		return 0, 0, to
	}
	if !base64HasColon(v) {
		return 0, 0, to
	}
	return from, to, to
}

// matchPEM matches a private key from its first to its last line; without a last line it
// matches all characters that can belong to a key.
func matchPEM(s string, start, after int) (from, to, next int) {
	head := s[:min(len(s), after+48)]
	if head = s[after:runEnd(head, after, upper|space)]; !strings.Contains(head, "PRIVATE KEY") {
		return 0, 0, after
	}
	window := s[after:min(len(s), after+maxPEMWindow)]
	if i := strings.Index(window, "-----END "); i >= 0 {
		end := after + i + len("-----END ")
		if j := strings.Index(s[end:min(len(s), end+64)], "-----"); j >= 0 {
			return start, end + j + 5, end + j + 5
		}
		return start, end, end
	}
	end := after
	for end < after+len(window) && (byteClass[s[end]]&(base64c|space|dash) != 0 || s[end] == '\\' || s[end] == ':' || s[end] == ',') {
		end++
	}
	return start, end, end
}

// matchURLPassword matches the password of scheme://user:password@host, and the token of scheme://token@host.
func matchURLPassword(s string, _, after int) (from, to, next int) {
	end, at, colon := after, -1, -1
	for end < len(s) && byteClass[s[end]]&(space|quoteChar) == 0 && strings.IndexByte("/?#<>", s[end]) < 0 {
		switch {
		case s[end] == '@':
			at = end
		case s[end] == ':' && colon < 0:
			colon = end
		}
		end++
	}
	if colon < 0 && at > 0 && isUserToken(s[after:at]) {
		return after, at, end
	}
	if colon < 0 || at <= colon+1 || IsPlaceholder(s[colon+1:at]) || IsPlaceholder(s[after:at]) {
		return 0, 0, end
	}
	return colon + 1, at, end
}

// matchQuoted matches the text after words that end with its opening quote, as in SQL, where a quote inside is doubled.
func matchQuoted(s string, _, after int) (from, to, next int) {
	limit, quote := min(len(s), after+maxValueWindow), s[after-1]
	for to = after; to < limit && (s[to] != quote || to+1 < limit && s[to+1] == quote); to++ {
		if s[to] == quote {
			to++
		}
	}
	if to >= limit || isHarmlessValue(s[after:to]) {
		return 0, 0, after
	}
	return after, to, to
}

// matchWord matches the next word behind blanks, or what is quoted there, if it begins unlike prose.
func matchWord(s string, _, after int) (from, to, next int) {
	for from = after; from < len(s) && (s[from] == ' ' || s[from] == '\t'); from++ {
	}
	if from == after {
		return 0, 0, after
	}
	from = quoteAt(s, from)
	open := openingQuote(s[from:])
	from += open
	for to = from; to < len(s) && byteClass[s[to]]&valueEnd == 0; to++ {
	}
	next = from + escapeIndex(s[from:to]) // what follows may be another line, or belong to the secret
	v := strings.Trim(s[from:next], ".,:=)\\")
	switch {
	case isHarmlessValue(v), !isUnlikeProse(v) && !hasSign(s[next:to]):
		return 0, 0, next
	case !isUnlikeProse(v):
		next = to
	}
	if open > 0 {
		if end, _ := quotedEnd(s[:min(len(s), from+maxValueWindow)], from-open, from); end > from {
			to, next = end, end
		}
	}
	return from, to, next
}

// hasSign reports whether a text has a digit, or a sign of passwords before its end, unlike most names.
func hasSign(v string) bool {
	return hasDigit(v) || strings.ContainsAny(v[:max(0, len(v)-1)], passwordSigns)
}

// matchSetting matches the next word unless it is a variable, or another argument of a command that names the setting, such as grep.
func matchSetting(s string, start, after int) (from, to, next int) {
	from, to, next = matchWord(s, start, after)
	if v := s[from:next]; to > from && (isVariable(v) || isArgument(v) && !precedesValue(s, start)) {
		return 0, 0, next
	}
	return from, to, next
}

// isVariable reports whether a word is a shell's $NAME or $1, the beginning of $(…), one sign, or prose in parentheses.
func isVariable(v string) bool {
	switch v = strings.TrimRight(v, ".,:=)\\"); {
	case len(v) < 2:
		return true
	case v[0] == '(':
		return !isUnlikeProse(v[1:])
	}
	return v[0] == '$' && (v[1] == '(' || runEnd(v, 1, upper|digit|dash) == len(v))
}

// isArgument reports whether a word is an option, a file, a variable or a sign of a shell.
func isArgument(v string) bool {
	return strings.HasSuffix(v, ".conf") || strings.IndexByte("-/~.*$(|", v[0]) >= 0 && !isRandomMix(v)
}

// precedesValue reports whether the setting's name at start is followed by its value: it is glued to a sign, as in --requirepass,
// it begins a line, perhaps behind a number or a sign, or it stands behind a colon or the word set or echo.
func precedesValue(s string, start int) bool {
	i := start
	for i > 0 && start-i < maxBlanks && byteClass[s[i-1]]&letter == 0 && strings.IndexByte("\r\n:", s[i-1]) < 0 {
		i--
	}
	blank := i < start && strings.IndexByte(" \t", s[start-1]) >= 0
	if !blank || i == 0 || byteClass[s[i-1]]&letter == 0 || afterEscape(s, i) {
		return true
	}
	word := s[max(0, i-len("echo")):i]
	return strings.TrimLeft(s[i:start], " \t\"'`") == "" && (containsFold(word, "echo") || len(word) >= 3 && containsFold(word[len(word)-3:], "set"))
}

// matchLogin matches the password of "login name password secret" and "machine host password secret", as in .netrc.
func matchLogin(s string, start, after int) (from, to, next int) {
	if from, to, next = matchWord(s, start, after); to == 0 {
		return 0, 0, after
	}
	before := trimBlanks(s[max(0, start-commandBack):start])
	before = trimBlanks(before[:strings.LastIndexAny(before, " \t\r\n")+1])
	if !strings.HasSuffix(before, "login") && !strings.HasSuffix(before, "machine") {
		return 0, 0, after
	}
	return from, to, next
}

// matchSeedPhrase matches the words of a wallet's seed: twelve or more of three to eight letters.
func matchSeedPhrase(s string, _, after int) (from, to, next int) {
	words := 0
	for at := after; ; words++ {
		end := runEnd(s, at, lower)
		if end-at < 3 || end-at > 8 {
			break
		}
		to, at = end, runEnd(s, end, space)
	}
	if words < 12 {
		return 0, 0, after
	}
	return after, to, to
}

// matchDriverPassword matches the password of user:password@tcp(host:port)/database, as the MySQL driver of Go writes it.
func matchDriverPassword(s string, start, after int) (from, to, next int) {
	from = start
	for from > 0 && start-from < maxPassword && byteClass[s[from-1]]&(space|quoteChar) == 0 {
		from--
	}
	colon := strings.IndexByte(s[from:start], ':')
	if colon < 0 || colon+1 == start-from || IsPlaceholder(s[from+colon+1:start]) {
		return 0, 0, after
	}
	return from + colon + 1, start, after
}

// isUserToken reports whether the user of a URL is a token: random, or longer than names with digits are.
func isUserToken(user string) bool {
	return isRandomMix(user) || len(user) >= minUserToken && runEnd(user, 0, alnum) == len(user) && hasDigit(user)
}

const minUserToken = 32

// base64HasColon reports whether v, up to an =, decodes to text with a colon and no control character before it.
func base64HasColon(v string) bool {
	v, _, _ = strings.Cut(v, "=")
	text, _ := base64.RawStdEncoding.DecodeString(v)
	name, _, found := bytes.Cut(text, []byte{':'})
	return found && !bytes.ContainsFunc(name, func(r rune) bool { return r < ' ' })
}
