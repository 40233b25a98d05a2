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
	Action Action
	Last   int
	Keep   int
	Rule   string

	InSession bool // of a Token: it is the session's, and dies with its key
}

// limited takes back what must not be done to a detector's findings.
func (t Treatment) limited(detector string) Treatment {
	if !Releasable(detector) {
		if t.Last = 0; t.Action == Allow || t.Action == Truncate {
			t.Action = Mask
		}
	}
	return t
}

// Normal is the form of a value that its digests are made of: equal addresses,
// cards and numbers are equal however they are written.
func Normal(detector, value string) string {
	switch detector {
	case Email:
		return strings.ToLower(value)
	case Phone, Card, IBAN, NationalID:
		return strings.Map(func(c rune) rune {
			if c >= 0x80 || classOf[byte(c)]&alnum == 0 {
				return -1
			}
			return rune(upperASCII(byte(c)))
		}, value)
	}
	return value
}

// mark is what stands for a value. Its forms are [redacted:<detector>],
// [redacted:<detector>:*<last characters>], [redacted:<detector>:h-<digest>],
// [redacted:<detector>:t-<digest>] and, of a session's token,
// [redacted:<detector>:s-<digest>].
func (w *walker) mark(t Treatment, detector, value string) string {
	switch {
	case t.Action == Hash:
		return markHead + detector + ":h-" + w.c.Digest(t, detector, value) + "]"
	case t.Action == Token && t.InSession:
		return markHead + detector + ":s-" + w.c.Digest(t, detector, value) + "]"
	case t.Action == Token:
		return markHead + detector + ":t-" + w.c.Digest(t, detector, value) + "]"
	case t.Action == Mask && t.Last > 0:
		if last := lastSigns(value, min(t.Last, MaxLast, len(value)/3)); last != "" {
			return markHead + detector + ":*" + last + "]"
		}
	}
	return Placeholder(detector)
}

// lastSigns are the last letters and digits of a value, n at most.
func lastSigns(v string, n int) string {
	from := len(v)
	for from > 0 && len(v)-from < n && classOf[v[from-1]]&alnum != 0 {
		from--
	}
	return v[from:]
}

// head is the first n characters of a text.
func head(s string, n int) string {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return s[:at]
}

// HoldsToken reports whether a text holds the mark of a token.
func HoldsToken(s string) bool {
	return strings.Contains(s, markHead) && (strings.Contains(s, ":t-") || strings.Contains(s, ":s-"))
}

// Marked reports whether s holds what a redaction with this detector and action
// leaves behind.
func Marked(s, detector string, a Action) bool {
	switch a {
	case Hash:
		return strings.Contains(s, markHead+detector+":h-")
	case Token:
		return strings.Contains(s, markHead+detector+":t-") || strings.Contains(s, markHead+detector+":s-")
	case Mask:
		return strings.Contains(s, Placeholder(detector)) || strings.Contains(s, markHead+detector+":*")
	}
	return strings.Contains(s, Placeholder(detector))
}
