package redact

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrTooMuch says that a document asks for more redaction work than one record
// is worth; its body must be withheld as a whole.
var ErrTooMuch = errors.New("redact: more redactions or declared fields than one record may have")

// Hit is one redaction. Value is what was taken out: text itself when JSON is
// false, otherwise a JSON value that was not a string, as decoded.
type Hit struct {
	Path     string // JSON pointer to the place in the redacted document
	Detector string
	Text     string
	JSON     any
	IsJSON   bool

	start int // byte offset in its text: the order of several in one place
}

// Document redacts a decoded JSON document (maps, slices, strings,
// json.Number, bool, nil) in place. prefix is the JSON pointer of the document;
// declared are the fields that its producer named, as paths from the document.
// The hits are sorted by path and, within one text, by place.
func Document(root any, prefix string, declared []string) (any, []Hit, error) {
	root, err := markDeclared(root, declared)
	if err != nil {
		return nil, nil, err
	}
	w := walker{path: []byte(prefix)}
	if root = w.value(root, ""); len(w.hits) > MaxHits {
		return nil, nil, ErrTooMuch
	}
	sortHits(w.hits)
	return root, w.hits, nil
}

// Strings redacts the texts of a list, such as a header's values, in place.
// The texts need not be UTF-8.
func Strings(list []string, name, prefix string) []Hit {
	w := walker{path: []byte(prefix)}
	for i, s := range list {
		at := w.push(strconv.Itoa(i))
		switch {
		case !utf8.ValidString(s):
			list[i] = w.whole(InvalidUTF8, s)
		default:
			list[i] = w.text(s, lookup(name))
		}
		w.pop(at)
	}
	return w.hits
}

// One redacts a single text found at path.
func One(s, path string) (string, []Hit) {
	w := walker{path: []byte(path)}
	out := w.text(s, name{})
	return out, w.hits
}

func sortHits(hits []Hit) {
	slices.SortStableFunc(hits, func(a, b Hit) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return a.start - b.start
	})
}

// declaredValue stands in the tree for a value that the producer declared.
type declaredValue struct{ v any }

type walker struct {
	path []byte
	hits []Hit
}

func (w *walker) push(token string) (at int) {
	at = len(w.path)
	w.path = append(w.path, '/')
	for i := 0; i < len(token); i++ {
		switch token[i] {
		case '~':
			w.path = append(w.path, "~0"...)
		case '/':
			w.path = append(w.path, "~1"...)
		default:
			w.path = append(w.path, token[i])
		}
	}
	return at
}

func (w *walker) pop(at int) { w.path = w.path[:at] }

// whole records that all of v was taken out and returns what stands there now.
func (w *walker) whole(detector string, v any) string {
	if len(w.hits) <= MaxHits {
		h := Hit{Path: string(w.path), Detector: detector}
		if s, ok := v.(string); ok {
			h.Text = s
		} else {
			h.JSON, h.IsJSON = unmark(v), true
		}
		w.hits = append(w.hits, h)
	}
	return Placeholder(detector)
}

// value redacts a value that stands under key.
func (w *walker) value(v any, key string) any {
	switch v := v.(type) {
	case string:
		return w.text(v, lookup(key))
	case declaredValue:
		return w.whole(DeclaredField, v.v)
	case json.Number:
		if CredentialName(key) {
			return w.whole(CredentialField, v)
		}
	case map[string]any:
		if len(v) > 0 && CredentialName(key) {
			return w.whole(CredentialField, v)
		}
		w.object(v)
	case []any:
		if len(v) > 0 && CredentialName(key) {
			return w.whole(CredentialField, v)
		}
		w.array(v)
	}
	return v
}

// text redacts a string whose key has the given row.
func (w *walker) text(s string, n name) string {
	switch {
	case len(w.hits) > MaxHits || s == "" || IsPlaceholder(s):
		return s
	case n.s == strong:
		return w.whole(CredentialField, s)
	case n.s == weak && random(s):
		return w.whole(HighEntropy, s)
	case n.text == "replytoken" && replyToken(s):
		return s
	}
	out, spans := Text(s)
	for _, sp := range spans {
		w.hits = append(w.hits, Hit{Path: string(w.path), Detector: sp.Detector, Text: s[sp.Start:sp.End], start: sp.Start})
	}
	return out
}

// replyToken reports whether s is exactly an AAEP reply token. In a reply_token
// field it stays, as the protocol's correlation id: a reply counts only with its
// authenticated sender. In texts for people it is redacted.
func replyToken(s string) bool {
	tail, ok := strings.CutPrefix(s, "rpl_")
	return ok && tail != "" && run(tail, 0, alnum) == len(tail)
}

func (w *walker) object(m map[string]any) {
	paired := pairedValue(m)
	var odd []string // keys that hold a secret themselves
	for k, v := range m {
		if len(w.hits) > MaxHits {
			return
		}
		if len(Scan(k)) > 0 {
			odd = append(odd, k)
			continue
		}
		w.member(m, k, k, v, k == paired)
	}
	slices.Sort(odd)
	for _, k := range odd {
		if len(w.hits) > MaxHits {
			return
		}
		v := m[k]
		delete(m, k)
		name, spans := Text(k)
		for free := name; ; name = free + "~" + strconv.Itoa(len(m)) {
			if _, taken := m[name]; !taken {
				break
			}
		}
		at := w.push(name)
		for _, sp := range spans {
			w.hits = append(w.hits, Hit{Path: string(w.path), Detector: sp.Detector, Text: k[sp.Start:sp.End], start: sp.Start - len(k)})
		}
		w.pop(at)
		w.member(m, name, k, v, false)
	}
}

// member redacts m's value v, whose original key decides, and puts it at name.
func (w *walker) member(m map[string]any, name, key string, v any, paired bool) {
	at := w.push(name)
	defer w.pop(at)
	if _, isText := v.(string); paired && isText {
		key = "password"
	}
	switch out := w.value(v, key).(type) {
	case map[string]any, []any: // redacted in place
		m[name] = out
	default:
		if out != v || name != key {
			m[name] = out
		}
	}
}

// pairedValue finds the key under which an object like {"name": "password",
// "value": …} holds its secret.
func pairedValue(m map[string]any) string {
	if len(m) < 2 || len(m) > 8 {
		return ""
	}
	for _, k := range [...]string{"name", "key", "header", "field"} {
		if s, ok := m[k].(string); ok && len(s) <= maxIdent && CredentialName(s) {
			if _, ok := m["value"].(string); ok {
				return "value"
			}
		}
	}
	return ""
}

func (w *walker) array(list []any) {
	name := ""
	for i, v := range list {
		if len(w.hits) > MaxHits {
			return
		}
		at := w.push(strconv.Itoa(i))
		list[i] = w.value(v, name)
		w.pop(at)
		name = ""
		if i+1 < len(list) {
			name = announces(v, list[i+1], i == 0 && len(list) == 2)
		}
	}
}

// announces returns v if, as one of an argument vector or as the first of a
// pair, it says that next is a credential: ["--password", "…"],
// ["Authorization", "…"], ["X-Api-Key", "…"]. A list of words is neither.
func announces(v, next any, pair bool) string {
	s, ok := v.(string)
	if _, text := next.(string); !ok || !text || len(s) > maxIdent {
		return ""
	}
	n := lookup(s)
	if n.s == strong && (strings.HasPrefix(s, "-") || pair && (n.line || strings.Contains(s, "-"))) {
		return s
	}
	return ""
}
