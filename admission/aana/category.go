package aana

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// foldNFKC makes texts comparable that a reader takes for the same: full-width letters and
// ligatures become plain ones.
func foldNFKC(s string) string { return strings.ToLower(normalizeNFKC(s)) }

// normalizeNFKC is the NFKC form.
func normalizeNFKC(s string) string { return norm.NFKC.String(s) }

func foldPlain(s string) string { return strings.ToLower(s) }

// classifyCategory is step 2: a read that is declared public but bound to an identity is a
// private one.
func (p *profile) classifyCategory(e *wire.Event) (c wire.Category, corrected bool) {
	if e.Category == wire.PublicRead && p.isIdentityBound(e) {
		return wire.PrivateRead, true
	}
	return e.Category, false
}

// isHighRisk reports whether the tool name or the risk domain of a write demands an explicit
// confirmation.
func (p *profile) isHighRisk(e *wire.Event) bool {
	return e.Category == wire.Write && (riskyDomains[e.RiskDomain] || p.isRiskyName(e.ToolName))
}

// publicWords anywhere in an event disable the reference's identity check.
var publicWords = pattern(`\b(search|find|list|lookup|catalog|availability|public|opening hours)\b`)

// identityByText is the reference's identity check.
func identityByText(e *wire.Event) bool {
	for key := range e.Arguments {
		if identityKeys[key] {
			return true
		}
	}
	name := foldPlain(e.ToolName)
	if publicWords().MatchString(foldPlain(eventText(e))) || slices.ContainsFunc(plainWords(name), func(w string) bool { return searchWords[w] }) {
		return false
	}
	return containsAny(name, identityHints)
}

// eventText is the text that the reference searches for public words.
func eventText(e *wire.Event) string {
	args, err := strictjson.Canonical(e.Arguments)
	if err != nil {
		args = nil // then it has no public words
	}
	parts := []string{e.ToolName, e.RiskDomain, e.UserIntent, string(args)}
	for _, r := range e.Evidence {
		parts = append(parts, r.SourceID, r.Kind, r.Summary)
	}
	return strings.Join(parts, "\n")
}

var plainWord = pattern(`[a-z0-9]+`)

func plainWords(folded string) []string { return plainWord().FindAllString(folded, -1) }

func riskyBySubstring(name string) bool { return containsAny(foldPlain(name), riskyVerbs) }

// identityByWords is the hardened identity check: the names of arguments at any depth and in
// any spelling, then the words of the tool's name.
func identityByWords(e *wire.Event) bool {
	if hasIdentityKey(e.Arguments) {
		return true
	}
	words := nameWords(e.ToolName)
	if slices.ContainsFunc(words, func(w string) bool { return searchWords[w] }) {
		return false
	}
	return slices.ContainsFunc(words, isComposed)
}

func hasIdentityKey(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if joinedIdentityKeys[strings.Join(nameWords(key), "")] || hasIdentityKey(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasIdentityKey)
	}
	return false
}

// fillerWords are words that occur beside a hint in a name without separators.
var fillerWords = []string{"get", "fetch", "read", "load", "view", "show", "find", "lookup", "my", "by", "all", "ids", "id", "info", "data", "details", "detail",
	"record", "history", "status", "summary"}

// isComposed reports whether a word is composed of hints, their plurals and fillerWords, with
// at least one hint: users, getuserprofile, but not border. It looks at every position once: a
// search that tries all compositions takes for ever with a name that an attacker chooses.
func isComposed(word string) bool {
	type composed struct{ plain, hinted bool } // what is before a position, without and with a hint
	at := make([]composed, len(word)+1)
	at[0].plain = true
	for i := range word {
		if !at[i].plain && !at[i].hinted {
			continue
		}
		rest := word[i:]
		for _, h := range identityHints {
			if strings.HasPrefix(rest, h) {
				at[i+len(h)].hinted = true
				if strings.HasPrefix(rest[len(h):], "s") {
					at[i+len(h)+1].hinted = true
				}
			}
		}
		for _, g := range fillerWords {
			if strings.HasPrefix(rest, g) {
				end := &at[i+len(g)]
				*end = composed{end.plain || at[i].plain, end.hinted || at[i].hinted}
			}
		}
	}
	return at[len(word)].hinted
}

// verbEndings are the endings that a form of a verb may have.
var verbEndings = wordSet("", "s", "es", "d", "ed", "ing", "ting", "ring", "red", "ion", "ions", "ment", "ments", "out", "outs")

// riskyByWords compares whole words: payload is no payment.
func riskyByWords(name string) bool {
	return slices.ContainsFunc(nameWords(name), func(word string) bool {
		return slices.ContainsFunc(riskyVerbs, func(verb string) bool {
			stem := strings.TrimSuffix(verb, "e")
			return word == verb || strings.HasPrefix(word, stem) && (verbEndings[strings.TrimPrefix(word, verb)] || verbEndings[word[len(stem):]])
		})
	})
}

// nameWords splits a name into words: at everything that is neither letter nor digit, where a
// capital follows a small letter or starts a word after capitals, and between letters and
// digits. The words are case-folded.
func nameWords(name string) []string {
	runes := []rune(norm.NFKC.String(name))
	var words []string
	start := 0
	flush := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush(i)
			start = i + 1
		case i > start && isWordBoundary(runes, i):
			flush(i)
		}
	}
	flush(len(runes))
	return words
}

func isWordBoundary(runes []rune, i int) bool {
	before, here := runes[i-1], runes[i]
	switch {
	case unicode.IsDigit(before) != unicode.IsDigit(here):
		return true
	case unicode.IsUpper(here) && unicode.IsLower(before):
		return true
	}
	return unicode.IsUpper(here) && unicode.IsUpper(before) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
}
