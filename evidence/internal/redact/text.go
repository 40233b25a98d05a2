package redact

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// treat asks the policy about a finding.
func (w *walker) treat(detector, value string) Treatment {
	if w.c.Treat == nil {
		return Treatment{}
	}
	return w.c.Treat(detector, string(w.path[w.base:]), value).limited(detector)
}

// whole records that all of v is taken out and returns what stands there now,
// or that nothing does. The caller has asked whether v is allowed.
func (w *walker) whole(detector string, v any) (mark string, drop bool) {
	h := Hit{Path: string(w.path), Detector: detector}
	if s, ok := v.(string); ok {
		h.Text = s
	} else {
		h.JSON, h.IsJSON = unmark(v), true
	}
	t := w.treat(detector, h.Text)
	h.Action, h.Rule = t.Action, t.Rule
	if w.add(h); h.IsJSON && (t.Action == Hash || t.Action == Token) {
		return w.mark(t, detector, canonical(h.JSON)), false
	}
	return w.mark(t, detector, h.Text), t.Action == Drop
}

func (w *walker) add(h Hit) {
	if len(w.hits) <= MaxHits {
		w.hits = append(w.hits, h)
	}
}

// value redacts a value that stands under key and says whether it is to be left
// out.
func (w *walker) value(v any, key string) (out any, drop bool) {
	switch v := v.(type) {
	case string:
		return w.text(v, key)
	case declaredValue:
		return w.declared(v, key)
	case json.Number:
		return w.number(v, key)
	case map[string]any:
		if len(v) > 0 && CredentialName(key) {
			return w.whole(CredentialField, v)
		}
		if personalField(key).detector == Address && addressParts(v) && w.treat(Address, "").Action != Allow {
			return w.whole(Address, v)
		}
		w.object(v)
	case []any:
		if len(v) > 0 && CredentialName(key) {
			return w.whole(CredentialField, v)
		}
		w.array(v, key)
	}
	return v, false
}

// declared takes out what producer or policy named. A field that its name makes
// a credential is one, whatever the policy wants of it; what the policy allows in
// one rule and names in another is looked at like anything else.
func (w *walker) declared(d declaredValue, key string) (any, bool) {
	text, isText := d.v.(string)
	t := w.treat(d.detector, text)
	switch {
	case d.detector == PolicyField && CredentialName(key), t.Action == Allow, t.Action == Truncate && !isText:
		return w.value(d.v, key)
	case t.Action == Truncate:
		return w.truncate(t, d.detector, text)
	case isText && t.Last > 0 && w.forbids(text):
		return w.spans(text)
	}
	return w.whole(d.detector, d.v)
}

// number looks at a number's name, and at its digits when it has as many as a
// payment card.
func (w *walker) number(v json.Number, key string) (any, bool) {
	detector := ""
	if n := lookup(key); n.s == strong && !n.many {
		detector = CredentialField
	} else if f := personalField(key); f.detector != "" && f.check(string(v)) {
		detector = f.detector
	} else if len(v) >= 13 {
		spans, work := w.m.scan(string(v))
		if w.work += work; len(spans) == 1 && spans[0].End-spans[0].Start == len(v) {
			detector = spans[0].Detector
		}
	}
	if detector == "" || w.treat(detector, string(v)).Action == Allow {
		return v, false
	}
	return w.whole(detector, v)
}

// addressParts reports whether an object has the parts of a postal address.
func addressParts(m map[string]any) bool {
	for k := range m {
		if personalField(k).detector == Address || k == "city" {
			return true
		}
	}
	return false
}

// text redacts a string that stands under key and says whether it is to be left
// out.
func (w *walker) text(s string, key string) (out string, drop bool) {
	if w.full() || s == "" || IsPlaceholder(s) {
		return s, false
	}
	detector := ""
	if n := lookup(key); n.proves(s) {
		detector = CredentialField
	} else if n.s == weak && random(s) {
		detector = HighEntropy
	} else if n.text == "replytoken" && replyToken(s) {
		return s, false
	} else if f := personalField(key); f.detector != "" && f.check(s) {
		detector = f.detector
	}
	if detector != "" {
		switch t := w.treat(detector, s); {
		case t.Action == Allow:
		case t.Action == Truncate:
			return w.truncate(t, detector, s)
		case !Releasable(detector) || !w.forbids(s):
			return w.whole(detector, s)
		}
	}
	return w.spans(s)
}

// forbids reports whether a text that stands where personal data or a random
// value is expected holds what may never be released: that counts then.
func (w *walker) forbids(s string) bool {
	return slices.ContainsFunc(w.find(s), func(sp Span) bool { return !Releasable(sp.Detector) })
}

// truncate keeps the beginning of a text, but for what is found in it.
func (w *walker) truncate(t Treatment, detector, s string) (out string, drop bool) {
	w.add(Hit{Path: string(w.path), Detector: detector, Action: Truncate, Rule: t.Rule, Text: s, start: -1})
	out, drop = w.replace(s, w.find(s), len(head(s, t.Keep)))
	return out + Placeholder(detector), drop
}

// spans redacts the parts of a text that detectors find.
func (w *walker) spans(s string) (out string, drop bool) {
	return w.replace(s, w.find(s), len(s))
}

// replace redacts what spans name, as far as they begin before end, and leaves
// out what stands behind that.
func (w *walker) replace(s string, spans []Span, end int) (out string, drop bool) {
	if len(spans) == 0 {
		return s[:end], false
	}
	var b strings.Builder
	at := 0
	for _, sp := range spans {
		if sp.Start >= end {
			break
		}
		v := s[sp.Start:sp.End]
		t := w.treat(sp.Detector, v)
		if t.Action == Allow {
			continue
		}
		w.add(Hit{Path: string(w.path), Detector: sp.Detector, Action: t.Action, Rule: t.Rule, Text: v, start: sp.Start})
		if t.Action == Drop {
			drop = true
		}
		b.WriteString(s[at:sp.Start])
		if t.Action == Truncate {
			b.WriteString(head(v, min(t.Keep, utf8.RuneCountInString(v)/2)))
		}
		b.WriteString(w.mark(t, sp.Detector, v))
		at = sp.End
	}
	b.WriteString(s[at:max(at, end)])
	return b.String(), drop
}

// overworked reports whether the document is more work than it is worth. The sum
// does not depend on the order in which members are looked at.
func (w *walker) overworked() bool {
	return w.c.Size > 0 && w.work > workPerRecord+workPerByte*w.c.Size
}

// full reports whether there is no point in going on.
func (w *walker) full() bool { return len(w.hits) > MaxHits || w.overworked() }

// find is Scan with what this record knows besides.
func (w *walker) find(s string) []Span {
	spans, work, known := w.c.Memory.find(s)
	if !known {
		spans, work = w.m.scan(s)
	}
	w.work += work
	if w.c.Protocol != protocolAANA && w.c.Echoes == nil {
		return spans
	}
	var more []Span
	if w.c.Protocol == protocolAANA {
		more = accountIDs(s, more)
	}
	if more = w.c.Echoes.find(s, more); len(more) == 0 {
		return spans
	}
	return merged(s, append(spans, more...))
}

// replyToken reports whether s is exactly an AAEP reply token. In a reply_token
// field it stays, as the protocol's correlation id: a reply counts only with its
// authenticated sender. In texts for people it is redacted.
func replyToken(s string) bool {
	tail, ok := strings.CutPrefix(s, "rpl_")
	return ok && tail != "" && run(tail, 0, alnum) == len(tail)
}
