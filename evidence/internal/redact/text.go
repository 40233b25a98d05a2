package redact

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// treatmentFor asks the policy for the treatment of a finding.
func (w *documentWalker) treatmentFor(detector, value string) Treatment {
	if w.config.Treat == nil {
		return Treatment{}
	}
	return w.config.Treat(detector, string(w.path[w.base:]), value).limitFor(detector)
}

// redactWhole records that all of v is redacted, and returns its placeholder or that it is
// dropped. The caller has checked that v is not allowed.
func (w *documentWalker) redactWhole(detector string, v any) (mark string, drop bool) {
	h := Hit{Path: string(w.path), Detector: detector}
	if s, ok := v.(string); ok {
		h.Text = s
	} else {
		h.JSON, h.IsJSON = unwrapDeclared(v), true
	}
	t := w.treatmentFor(detector, h.Text)
	h.Action, h.Rule = t.Action, t.Rule
	if w.addHit(h); h.IsJSON && (t.Action == Hash || t.Action == Token) {
		return w.placeholderFor(t, detector, canonicalText(h.JSON)), false
	}
	return w.placeholderFor(t, detector, h.Text), t.Action == Drop
}

func (w *documentWalker) addHit(h Hit) {
	if len(w.hits) <= MaxHits && w.pathBytes <= MaxPathBytes {
		w.hits = append(w.hits, h)
		w.pathBytes += len(h.Path)
	}
}

// redactValue redacts the value of key and reports whether it is to be dropped.
func (w *documentWalker) redactValue(v any, key string) (out any, drop bool) {
	switch v := v.(type) {
	case string:
		return w.redactText(v, key)
	case declaredValue:
		return w.redactDeclared(v, key)
	case json.Number:
		return w.redactNumber(v, key)
	case map[string]any:
		if len(v) > 0 && credentialName(key) {
			return w.redactWhole(CredentialField, v)
		}
		if personalField(key).detector == Address && isAddress(v) && w.treatmentFor(Address, "").Action != Allow {
			return w.redactWhole(Address, v)
		}
		w.redactObject(v)
	case []any:
		if len(v) > 0 && credentialName(key) {
			return w.redactWhole(CredentialField, v)
		}
		w.redactArray(v, key)
	}
	return v, false
}

// redactDeclared redacts a field that the producer or a policy named. A field with the name of a
// credential is a credential, whatever the policy says. A field that one rule of the policy
// names and another allows is redacted like any other value.
func (w *documentWalker) redactDeclared(d declaredValue, key string) (any, bool) {
	text, isText := d.v.(string)
	t := w.treatmentFor(d.detector, text)
	switch {
	case d.detector == PolicyField && credentialName(key), t.Action == Allow, t.Action == Truncate && !isText:
		return w.redactValue(d.v, key)
	case t.Action == Truncate:
		return w.truncateText(t, d.detector, text)
	case isText && t.KeepLast > 0 && w.holdsUnreleasable(text):
		return w.redactSpans(text)
	}
	return w.redactWhole(d.detector, d.v)
}

// redactNumber redacts a number by what it is as it was sent or as evidence writes it: 4.111e15 becomes 4111000000000000.
func (w *documentWalker) redactNumber(v json.Number, key string) (any, bool) {
	sent := string(v)
	written := strictjson.CanonicalNumber(sent)
	detector := w.findNumber(written, key)
	if detector == "" && written != sent {
		detector = w.findNumber(sent, key)
	}
	if detector == "" || w.treatmentFor(detector, written).Action == Allow {
		return v, false
	}
	return w.redactWhole(detector, v)
}

// findNumber checks the name of a number, whether it is the echo of another value, and its digits
// if it has as many as a payment card. It returns "" if there is nothing to redact.
func (w *documentWalker) findNumber(digits, key string) (detector string) {
	if n := lookupName(key); n.strength == strongName && !n.many {
		return CredentialField
	}
	if f := personalField(key); f.detector != "" && f.check(digits) {
		return f.detector
	}
	if echoes := w.config.Echoes.findSpans(digits, nil); len(echoes) > 0 {
		return echoes[0].Detector
	}
	if !isLongInteger(digits) {
		return ""
	}
	spans, work := w.budget.scanText(digits)
	if w.work += work; len(spans) == 1 && spans[0].End-spans[0].Start == len(digits) {
		return spans[0].Detector
	}
	return ""
}

// minNumber is the fewest digits of a number that is scanned: as many as the shortest payment card has.
const minNumber = 13

func isLongInteger(number string) bool {
	return len(number) >= minNumber && !strings.ContainsAny(number, ".eE")
}

// isAddress reports whether an object has the parts of a postal address.
func isAddress(m map[string]any) bool {
	for k := range m {
		if personalField(k).detector == Address || k == "city" {
			return true
		}
	}
	return false
}

// redactText redacts the string value of key and reports whether it is to be dropped.
func (w *documentWalker) redactText(s string, key string) (out string, drop bool) {
	if w.isFull() || s == "" || IsPlaceholder(s) {
		return s, false
	}
	detector := ""
	if n := lookupName(key); n.proves(s) {
		detector = CredentialField
	} else if n.strength == weakName && isRandom(s) {
		detector = HighEntropy
	} else if n.text == "replytoken" && isReplyToken(s) {
		return s, false
	} else if f := personalField(key); f.detector != "" && f.check(s) {
		detector = f.detector
	}
	if detector != "" {
		switch t := w.treatmentFor(detector, s); {
		case t.Action == Allow:
		case t.Action == Truncate:
			return w.truncateText(t, detector, s)
		case !Releasable(detector) || !w.holdsUnreleasable(s):
			return w.redactWhole(detector, s)
		}
	}
	return w.redactSpans(s)
}

// holdsUnreleasable reports whether a text in a field of personal data or of a random value holds
// anything that must not be released; that finding then takes precedence.
func (w *documentWalker) holdsUnreleasable(s string) bool {
	return slices.ContainsFunc(w.findSpans(s), func(sp Span) bool { return !Releasable(sp.Detector) })
}

// truncateText keeps the beginning of a text, with the findings in it redacted.
func (w *documentWalker) truncateText(t Treatment, detector, s string) (out string, drop bool) {
	from := len(w.hits)
	w.addHit(Hit{Path: string(w.path), Detector: detector, Action: Truncate, Rule: t.Rule, Text: s, start: -1})
	out, drop = w.replaceSpans(s, w.findSpans(s), len(firstRunes(s, t.KeepFirst)))
	if drop {
		dropAll(w.hits[from:])
	}
	return out + Placeholder(detector), drop
}

// redactSpans redacts the parts of a text that detectors find.
func (w *documentWalker) redactSpans(s string) (out string, drop bool) {
	return w.replaceSpans(s, w.findSpans(s), len(s))
}

// replaceSpans replaces the spans that begin before end, and cuts the text there.
func (w *documentWalker) replaceSpans(s string, spans []Span, end int) (out string, drop bool) {
	if len(spans) == 0 {
		return s[:end], false
	}
	var b strings.Builder
	at, from := 0, len(w.hits)
	for _, sp := range spans {
		if sp.Start >= end {
			break
		}
		v := s[sp.Start:sp.End]
		t := w.treatmentFor(sp.Detector, v)
		if t.Action == Allow {
			continue
		}
		w.addHit(Hit{Path: string(w.path), Detector: sp.Detector, Action: t.Action, Rule: t.Rule, Text: v, start: sp.Start})
		if t.Action == Drop {
			drop = true
		}
		b.WriteString(s[at:sp.Start])
		if t.Action == Truncate {
			b.WriteString(firstRunes(v, min(t.KeepFirst, utf8.RuneCountInString(v)/2)))
		}
		b.WriteString(w.placeholderFor(t, sp.Detector, v))
		at = sp.End
	}
	if drop {
		dropAll(w.hits[from:])
	}
	b.WriteString(s[at:max(at, end)])
	return b.String(), drop
}

// dropAll gives all hits of one text the action and the rule of the hit that drops the text: the
// placeholders of the others are gone with it.
func dropAll(hits []Hit) {
	i := slices.IndexFunc(hits, func(h Hit) bool { return h.Action == Drop })
	for j := range hits {
		if i >= 0 { // not so if the hit that drops was beyond MaxHits
			hits[j].Action, hits[j].Rule = Drop, hits[i].Rule
		}
	}
}

// isOverBudget reports whether the document takes more work than its budget. The sum does not
// depend on the order of the members.
func (w *documentWalker) isOverBudget() bool {
	return w.config.Size > 0 && w.work > workPerRecord+workPerByte*w.config.Size
}

// isFull reports whether the walk can stop, because the body will be withheld.
func (w *documentWalker) isFull() bool {
	return len(w.hits) > MaxHits || w.pathBytes > MaxPathBytes || w.isOverBudget()
}

// findSpans is Scan plus the echoes and the protocol's own detectors.
func (w *documentWalker) findSpans(s string) []Span {
	spans, work := w.budget.scanText(s)
	w.work += work
	if !w.accountIDs && w.config.Echoes == nil {
		return spans
	}
	var more []Span
	if w.accountIDs {
		more = findAccountIDs(s, more)
	}
	if more = w.config.Echoes.findSpans(s, more); len(more) == 0 {
		return spans
	}
	return mergeSpans(s, append(spans, more...))
}

// isReplyToken reports whether s is exactly an AAEP reply token. In a reply_token field it stays,
// as the protocol's correlation id: a reply counts only with its authenticated sender. In
// other texts it is redacted.
func isReplyToken(s string) bool {
	tail, ok := strings.CutPrefix(s, "rpl_")
	return ok && tail != "" && runEnd(tail, 0, alnum) == len(tail)
}
