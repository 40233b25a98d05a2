package aana

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// lazyPattern returns a pattern that is compiled at its first use. Every program would compile all
// of them at its start otherwise (2 to 4 ms), and most decide nothing.
type lazyPattern func() *regexp.Regexp

func pattern(text string) lazyPattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// leakPattern is a pattern of text that evidence must not contain. The pattern is slow, so
// marks and digits are tested first: every matching text contains one of the marks and at least
// that many digits.
type leakPattern struct {
	pattern lazyPattern
	marks   []string // nil: no mark is required
	digits  int      // of any script, as in the reference's patterns; the pattern sees them as ASCII digits
}

// secretPatterns are the contract's patterns: keys of model providers and of a cloud, named
// credentials, social security numbers and payment card numbers.
var secretPatterns = []leakPattern{
	{pattern(`\bsk-[A-Za-z0-9_-]{12,}\b`), []string{"sk-"}, 0},
	{pattern(`\bsk-or-v1-[A-Za-z0-9]{20,}\b`), []string{"sk-or-v1-"}, 0},
	{pattern(`\bAKIA[0-9A-Z]{16}\b`), []string{"AKIA"}, 0},
	{credentialPattern, []string{":", "="}, 0},
	{pattern(`\b\d{3}-\d{2}-\d{4}\b`), []string{"-"}, 9},
	{pattern(`\b(?:\d[ -]*?){13,16}\b`), nil, 13},
}

// argumentSecrets are the patterns for arguments: the same except for payment cards, which
// isCard distinguishes from time stamps and counters.
var argumentSecrets = secretPatterns[:len(secretPatterns)-1]

var (
	credentialPattern = pattern(`(?i)\b(?:api[_-]?key|secret|token|password)\s*[:=]\s*['"]?[A-Za-z0-9_.\-]{8,}`)
	cardNumber        = pattern(`\b\d(?:[ -]?\d){12,15}\b`)
)

// personalPatterns are the contract's patterns of personal data: e-mail addresses and
// North American telephone numbers.
var personalPatterns = []leakPattern{
	{pattern(`(?i)\b[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}\b`), []string{"@"}, 0},
	{pattern(`\b(?:\+?1[-.\s]?)?\(?\d{3}\)?[-.\s]?\d{3}[-.\s]?\d{4}\b`), nil, 10},
}

func containsLeak(list []leakPattern, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		plain, digits := plainDigits(text)
		return slices.ContainsFunc(list, func(l leakPattern) bool {
			if l.digits == 0 {
				return (l.marks == nil || containsAny(text, l.marks)) && l.pattern().MatchString(text)
			}
			return digits >= l.digits && (l.marks == nil || containsAny(text, l.marks)) && l.pattern().MatchString(plain)
		})
	})
}

// plainDigits returns text with the decimal digits of every script as ASCII digits, and their
// number.
func plainDigits(text string) (plain string, digits int) {
	ascii := true
	for i := range len(text) {
		if text[i] >= '0' && text[i] <= '9' {
			digits++
		}
		ascii = ascii && text[i] < utf8.RuneSelf
	}
	if ascii {
		return text, digits
	}
	plain = strings.Map(func(r rune) rune {
		value, is := digitValue(r)
		if r < utf8.RuneSelf || !is {
			return r
		}
		digits++
		return '0' + value
	}, text)
	return plain, digits
}

// digitValue is the value of a decimal digit. Every range of digits in Unicode's table begins
// with a zero.
func digitValue(r rune) (value rune, is bool) {
	for _, g := range unicode.Nd.R16 {
		if r >= rune(g.Lo) && r <= rune(g.Hi) {
			return (r - rune(g.Lo)) % 10, true
		}
	}
	for _, g := range unicode.Nd.R32 {
		if r >= rune(g.Lo) && r <= rune(g.Hi) {
			return (r - rune(g.Lo)) % 10, true
		}
	}
	return 0, false
}

// scannedText is the text that the reference scans, as one text.
func scannedText(r wire.EvidenceRef) []string {
	return []string{strings.Join([]string{r.SourceID, r.Summary, r.CitationURL, r.RetrievalURL, r.Provenance}, " ")}
}

// wholeText returns every text of a reference, and again with full-width characters as plain
// ones.
func wholeText(r wire.EvidenceRef) []string {
	texts := append(scannedText(r), r.Freshness.Source)
	texts = append(append(texts, r.Supports...), r.Contradicts...)
	for _, t := range slices.Clone(texts) {
		if n := normalizeNFKC(t); n != t {
			texts = append(texts, n)
		}
	}
	return texts
}

// hasSecretArgument reports whether an argument, at any depth, holds a secret in its value, in
// its name, or in both together as in {"password": "…"}.
func hasSecretArgument(v any) bool { return hasSecretMember(false, v) }

// hasSecretMember looks at the value of a member. credential reports whether the member's name
// names a credential.
func hasSecretMember(credential bool, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if isSecretText(key) || hasSecretMember(namesCredential(key), member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return hasSecretMember(credential, item) })
	case string:
		return isSecretText(v) || credential && !isPlaceholder(v) && credentialPattern().MatchString("password="+strings.TrimSpace(v))
	case json.Number:
		return isCard(string(v))
	}
	return false
}

// namesCredential reports whether the last words of a member's name name a credential:
// dbPassword and x-api-key do.
func namesCredential(name string) bool {
	words := nameWords(name)
	n := len(words)
	if n == 0 {
		return false
	}
	last := words[n-1]
	if n > 1 && words[n-2] == "api" && last == "key" {
		last = "api_key"
	}
	return credentialPattern().MatchString(last + "=12345678")
}

// isPlaceholder reports whether v stands for a removed value.
func isPlaceholder(v string) bool {
	return placeholders[strings.Trim(strings.ToLower(v), "[]<>{}()*_ ")] || strings.Trim(v, "*•xX.-_ ") == ""
}

var placeholders = wordSet("", "redacted", "masked", "removed", "hidden", "secret", "password", "token", "placeholder")

func isSecretText(text string) bool {
	for _, t := range []string{text, normalizeNFKC(text)} {
		plain, _ := plainDigits(t)
		if containsLeak(argumentSecrets, t) || slices.ContainsFunc(cardNumber().FindAllString(plain, -1), isCard) {
			return true
		}
	}
	return false
}

// isCard reports whether a text of digits, spaces and dashes can be the number of a payment
// card: 13 to 16 digits of an issuer's range with a correct check digit. Times in milliseconds
// or microseconds are in no such range.
func isCard(text string) bool {
	digits := strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, text)
	if len(digits) < 13 || len(digits) > 16 || !(digits[0] >= '3' && digits[0] <= '6' || digits[0] == '2' && len(digits) == 16 && digits[1] >= '2' && digits[1] <= '7') {
		return false
	}
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i]) - '0'
		if d < 0 || d > 9 {
			return false
		}
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
