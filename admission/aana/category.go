package aana

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// foldNFKC makes text comparable that means the same to a reader: full-width
// letters and ligatures become plain ones.
func foldNFKC(s string) string { return strings.ToLower(normalizeNFKC(s)) }

// normalizeNFKC is the NFKC form.
func normalizeNFKC(s string) string { return norm.NFKC.String(s) }

func foldPlain(s string) string { return strings.ToLower(s) }

// classifyCategory is step 2: a read that is declared public and bound to an identity is
// a private one.
func (p *profile) classifyCategory(e *wire.Event) (c wire.Category, corrected bool) {
	if e.Category == wire.PublicRead && p.isIdentityBound(e) {
		return wire.PrivateRead, true
	}
	return e.Category, false
}

// isHighRisk reports whether a write needs an explicit confirmation because of
// what its tool is called or what it touches.
func (p *profile) isHighRisk(e *wire.Event) bool {
	return e.Category == wire.Write && (riskyDomains[e.RiskDomain] || p.isRiskyName(e.ToolName))
}

// publicWords anywhere in an event turn the reference's question off.
var publicWords = regexp.MustCompile(`\b(search|find|list|lookup|catalog|availability|public|opening hours)\b`)

// identityByText is the reference's question.
func identityByText(e *wire.Event) bool {
	for key := range e.Arguments {
		if identityKeys[key] {
			return true
		}
	}
	name := foldPlain(e.ToolName)
	if publicWords.MatchString(foldPlain(eventText(e))) || slices.ContainsFunc(plainWords(name), func(w string) bool { return searchWords[w] }) {
		return false
	}
	return containsAny(name, identityHints)
}

// eventText is everything that the reference looks for public words in.
func eventText(e *wire.Event) string {
	args, err := strictjson.Canonical(e.Arguments)
	if err != nil {
		args = nil // then there are no words in it that could turn the question off
	}
	parts := []string{e.ToolName, e.RiskDomain, e.UserIntent, string(args)}
	for _, r := range e.Evidence {
		parts = append(parts, r.SourceID, r.Kind, r.Summary)
	}
	return strings.Join(parts, "\n")
}

var plainWord = regexp.MustCompile(`[a-z0-9]+`)

func plainWords(folded string) []string { return plainWord.FindAllString(folded, -1) }

func riskyBySubstring(name string) bool { return containsAny(foldPlain(name), riskyVerbs) }

// identityByWords is the hardened question: an argument's name decides at any
// depth and in any spelling, then the words of the tool's name.
func identityByWords(e *wire.Event) bool {
	if hasIdentityKey(e.Arguments) {
		return true
	}
	words := nameWords(e.ToolName)
	if slices.ContainsFunc(words, func(w string) bool { return searchWords[w] }) {
		return false
	}
	return slices.ContainsFunc(words, func(w string) bool { return isComposed(w, false) })
}

func hasIdentityKey(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if identityKeys[strings.Join(nameWords(key), "_")] || hasIdentityKey(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasIdentityKey)
	}
	return false
}

// fillerWords are words that stand beside a hint in a name without separators.
var fillerWords = []string{"get", "fetch", "read", "load", "view", "show", "find", "lookup", "my", "by", "all", "ids", "id", "info", "data", "details", "detail",
	"record", "history", "status", "summary"}

// isComposed reports whether a word is put together from hints, their plurals and
// glue, with a hint among them: users, getuserprofile, but not border.
func isComposed(word string, hinted bool) bool {
	if word == "" {
		return hinted
	}
	for _, h := range identityHints {
		if rest, ok := strings.CutPrefix(word, h); ok && (isComposed(rest, true) || isComposed(strings.TrimPrefix(rest, "s"), true)) {
			return true
		}
	}
	for _, g := range fillerWords {
		if rest, ok := strings.CutPrefix(word, g); ok && isComposed(rest, hinted) {
			return true
		}
	}
	return false
}

// verbEndings are what a verb may end in and still be that verb.
var verbEndings = wordSet("", "s", "es", "d", "ed", "ing", "ting", "ring", "red", "ion", "ions", "ment", "ments", "out", "outs")

// riskyByWords takes whole words: payload is no payment.
func riskyByWords(name string) bool {
	return slices.ContainsFunc(nameWords(name), func(word string) bool {
		return slices.ContainsFunc(riskyVerbs, func(verb string) bool {
			stem := strings.TrimSuffix(verb, "e")
			return word == verb || strings.HasPrefix(word, stem) && (verbEndings[strings.TrimPrefix(word, verb)] || verbEndings[word[len(stem):]])
		})
	})
}

// nameWords takes a name apart: at everything that is neither letter nor digit,
// where a capital follows a small letter or starts a word after capitals, and
// between letters and digits. The words are folded.
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
