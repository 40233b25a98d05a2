package redact

import (
	"strings"
	"unicode/utf8"
)

// Action is what becomes of a finding.
type Action uint8

// The actions. Mask is the default. Allow, Truncate, and Mask with Last are only
// for what may be released (Releasable).
const (
	Mask     Action = iota // a placeholder stands there
	Drop                   // the value that holds it is left out
	Hash                   // a keyed digest stands there, the same for equal values of one session
	Token                  // a keyed digest stands there, the same for equal values of one tenant; or of one session, as under Hash
	Truncate               // its beginning and a placeholder stand there
	Allow                  // it stays
)

var actionNames = [...]string{"mask", "drop", "hash", "tokenise", "truncate", "allow"}

func (a Action) String() string { return actionNames[a] }

// ParseAction finds an action by its name.
func ParseAction(name string) (Action, bool) {
	for i, n := range actionNames {
		if n == name {
			return Action(i), true
		}
	}
	return Mask, false
}

// Most that may stay of a value.
const (
	MaxLast = 4   // last characters under Mask
	MaxKeep = 256 // first characters under Truncate
)

// Treatment is an action with its measure. Last characters stay visible under
// Mask, at most MaxLast and a third of the value; the first Keep under Truncate.
type Treatment struct {
	Action    Action
	KeepLast  int
	KeepFirst int
	Rule      string

	InSession bool // of a Token: it is the session's, and dies with its key
}

// limitFor takes back what must not be done to a detector's findings.
func (t Treatment) limitFor(detector string) Treatment {
	if !Releasable(detector) {
		if t.KeepLast = 0; t.Action == Allow || t.Action == Truncate {
			t.Action = Mask
		}
	}
	return t
}

// NormalValue is the form of a value that its digests are made of: equal addresses,
// cards and numbers are equal however they are written.
func NormalValue(detector, value string) string {
	switch detector {
	case Email:
		return strings.ToLower(value)
	case Phone, Card, IBAN, NationalID:
		return strings.Map(func(c rune) rune {
			if c >= 0x80 || byteClass[byte(c)]&alnum == 0 {
				return -1
			}
			return rune(upperASCII(byte(c)))
		}, value)
	}
	return value
}

// placeholderFor is what stands for a value. Its forms are [redacted:<detector>],
// [redacted:<detector>:*<last characters>], [redacted:<detector>:h-<digest>],
// [redacted:<detector>:t-<digest>] and, of a session's token,
// [redacted:<detector>:s-<digest>].
func (w *documentWalker) placeholderFor(t Treatment, detector, value string) string {
	switch {
	case t.Action == Hash:
		return placeholderPrefix + detector + ":h-" + w.config.Digest(t, detector, value) + "]"
	case t.Action == Token && t.InSession:
		return placeholderPrefix + detector + ":s-" + w.config.Digest(t, detector, value) + "]"
	case t.Action == Token:
		return placeholderPrefix + detector + ":t-" + w.config.Digest(t, detector, value) + "]"
	case t.Action == Mask && t.KeepLast > 0:
		if last := lastSigns(value, min(t.KeepLast, MaxLast, len(value)/3)); last != "" {
			return placeholderPrefix + detector + ":*" + last + "]"
		}
	}
	return Placeholder(detector)
}

// lastSigns are the last letters and digits of a value, n at most.
func lastSigns(v string, n int) string {
	from := len(v)
	for from > 0 && len(v)-from < n && byteClass[v[from-1]]&alnum != 0 {
		from--
	}
	return v[from:]
}

// firstRunes is the first n characters of a text.
func firstRunes(s string, n int) string {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return s[:at]
}

// HoldsToken reports whether a text holds the mark of a token.
func HoldsToken(s string) bool {
	return strings.Contains(s, placeholderPrefix) && (strings.Contains(s, ":t-") || strings.Contains(s, ":s-"))
}

// HasPlaceholder reports whether s holds what a redaction with this detector and action
// leaves behind.
func HasPlaceholder(s, detector string, a Action) bool {
	switch a {
	case Hash:
		return strings.Contains(s, placeholderPrefix+detector+":h-")
	case Token:
		return strings.Contains(s, placeholderPrefix+detector+":t-") || strings.Contains(s, placeholderPrefix+detector+":s-")
	case Mask:
		return strings.Contains(s, Placeholder(detector)) || strings.Contains(s, placeholderPrefix+detector+":*")
	}
	return strings.Contains(s, Placeholder(detector))
}
