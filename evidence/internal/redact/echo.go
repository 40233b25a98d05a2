package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// What is found in one place of a record is searched for in all others: a password that the
// name of a field revealed may also be in a text that does not mark it.

const (
	minEcho    = 8    // least bytes of a value that is searched for
	maxEchoes  = 2048 // greatest number of values that are searched for: more than a record has redactions
	echoForms  = 48   // how many of them are also searched for in other spellings
	echoBudget = 12   // work for each byte of text
)

// Echoes are values that must not appear anywhere in a record.
type Echoes struct {
	needles []needle
	byHead  map[uint64][]int
	bits    [64]uint64 // prefilter for byHead
	full    bool       // there are more values than maxEchoes
}

type needle struct {
	text     string
	detector string
	encoded  bool // a base64 form: adjacent base64 characters belong to it
}

// NewEchoes collects from hits the values that must not be released, of minEcho bytes or more
// and with varied bytes. It returns nil if there are none.
func NewEchoes(hits []Hit) *Echoes {
	e := &Echoes{byHead: map[uint64][]int{}}
	for _, h := range hits {
		switch {
		case Releasable(h.Detector) || noEchoDetectors[h.Detector]:
		case h.IsJSON:
			e.addLeaves(h.JSON, h.Detector)
		default:
			e.addLeaves(h.Text, h.Detector)
		}
	}
	if len(e.needles) == 0 {
		return nil
	}
	return e
}

// noEchoDetectors are detectors with findings that are not searched for elsewhere: those that
// cover a whole text or body, and reply tokens, which stay in their own field.
var noEchoDetectors = map[string]bool{Withheld: true, TooMany: true, InvalidUTF8: true, ReplyToken: true,
	RetentionSummary: true, RetentionHashes: true, RetentionNone: true}

// placeDetectors are detectors with findings that need not be secret by themselves. Only long
// ones, or those with a blank or an @, are searched for elsewhere, so that the name of a tool
// that is repeated in an argument is not redacted as a tool name.
var placeDetectors = map[string]bool{DeclaredField: true, NeverStore: true, Protected: true}

func (e *Echoes) addLeaves(v any, detector string) {
	switch v := v.(type) {
	case string:
		if !placeDetectors[detector] || len(v) >= 2*minEcho || strings.ContainsAny(v, " @") {
			e.addValue(v, detector)
		}
	case json.Number:
		e.addLeaves(strictjson.CanonicalNumber(string(v)), detector)
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			e.addLeaves(v[k], detector)
		}
	case []any:
		for _, child := range v {
			e.addLeaves(child, detector)
		}
	}
}

// addValue adds a value, and other spellings of it that decoding would not reveal.
func (e *Echoes) addValue(v, detector string) {
	if !e.addNeedle(needle{v, detector, false}) || len(e.needles) > echoForms {
		return
	}
	if quoted, err := jsontext.AppendQuote(nil, v); err == nil && len(quoted) > len(v)+2 {
		e.addNeedle(needle{string(quoted[1 : len(quoted)-1]), detector, false})
	}
	if strings.IndexByte(v, '+') >= 0 { // its form in a text with percent signs
		e.addNeedle(needle{strings.ReplaceAll(v, "+", " "), detector, false})
	}
	if len(v)*4/3 >= minBase64 {
		return
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 { // number of bytes before it in its group of three
			text := enc.EncodeToString(append(make([]byte, shift, shift+len(v)), v...))
			e.addNeedle(needle{text[(shift*8+5)/6 : (shift+len(v))*8/6], EncodedData, true})
		}
	}
}

// addNeedle adds a text. It reports whether the text can be searched for.
func (e *Echoes) addNeedle(n needle) bool {
	if len(n.text) < minEcho || !hasVariedBytes(n.text) || strings.Contains(allPlaceholders, n.text) {
		return false
	}
	head := headOf(n.text)
	for _, i := range e.byHead[head] {
		if e.needles[i].text == n.text {
			return true
		}
	}
	if e.full = e.full || len(e.needles) >= maxEchoes; e.full {
		return false
	}
	e.byHead[head] = append(e.byHead[head], len(e.needles))
	e.needles = append(e.needles, n)
	h := echoHash(head)
	e.bits[h>>6] |= 1 << (h & 63)
	return true
}

// allPlaceholders contains every placeholder. A value inside it would match placeholders.
var allPlaceholders = placeholderPrefix + strings.Join(append(Detectors(), ClassDetectors()...), "] "+placeholderPrefix) + "]"

// hasVariedBytes reports whether a text has at least five different bytes.
func hasVariedBytes(s string) bool {
	var seen [4]uint64
	for i := 0; i < len(s) && i < maxIdent; i++ {
		seen[s[i]>>6] |= 1 << (s[i] & 63)
	}
	return bits.OnesCount64(seen[0])+bits.OnesCount64(seen[1])+bits.OnesCount64(seen[2])+bits.OnesCount64(seen[3]) >= 5
}

func headOf(s string) uint64 { return binary.LittleEndian.Uint64([]byte(s[:8])) }

func echoHash(head uint64) uint64 { return head * 0x9E3779B97F4A7C15 >> (64 - 12) }

// AreTooMany reports whether there are more values than can be searched for.
func (e *Echoes) AreTooMany() bool { return e != nil && e.full }

// FoundIn reports whether any of the values is in s.
func (e *Echoes) FoundIn(s string) bool { return len(e.findSpans(s, nil)) > 0 }

// findSpans appends the places of the values in s, including its encoded parts. If the
// comparison takes too long, all of s counts as found.
func (e *Echoes) findSpans(s string, spans []Span) []Span {
	if e == nil || len(s) < minEcho {
		return spans
	}
	m := workBudget{left: echoBudget*len(s) + 1<<12}
	if spans = findEncoded(s, append(spans, e.findPlain(s, &m)...), maxDecodings, &m, e.findPlain); m.left < 0 {
		return append(spans, Span{0, len(s), TooMany})
	}
	return spans
}

// findPlain finds the values in s without decoding.
func (e *Echoes) findPlain(s string, m *workBudget) (spans []Span) {
	if len(s) < minEcho {
		return nil
	}
	head := headOf(s)
	for i := 0; i+minEcho <= len(s) && len(spans) <= 2*maxSpans && m.left >= 0; i++ {
		if i > 0 {
			head = head>>8 | uint64(s[i+7])<<56
		}
		h := echoHash(head)
		if e.bits[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for _, n := range e.byHead[head] {
			want := &e.needles[n]
			m.charge(4 + min(len(want.text), len(s)-i)/4)
			if strings.HasPrefix(s[i:], want.text) && !inWord(s, i, want.text) {
				spans = append(spans, want.spanAt(s, i))
			}
		}
	}
	return spans
}

func (n *needle) spanAt(s string, i int) Span {
	from, to := i, i+len(n.text)
	if n.encoded {
		for from > 0 && base64Digit[s[from-1]] >= 0 {
			from--
		}
		for to < len(s) && (base64Digit[s[to]] >= 0 || s[to] == '=') {
			to++
		}
	}
	return Span{from, to, n.detector}
}

// inWord reports whether a value of letters only is inside a longer word.
func inWord(s string, i int, v string) bool {
	if runEnd(v, 0, letter) < len(v) {
		return false
	}
	end := i + len(v)
	return i > 0 && byteClass[s[i-1]]&letter != 0 || end < len(s) && byteClass[s[end]]&letter != 0
}

// canonicalText is the text of a value for digests: equal values have equal texts.
func canonicalText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
