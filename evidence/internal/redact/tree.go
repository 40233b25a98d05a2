package redact

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrTooMuch says that a document asks for more redaction work than one record
// is worth; its body must be withheld as a whole.
var ErrTooMuch = errors.New("redact: more redactions or declared fields than one record may have")

// Hit is one redaction. Text is what was taken out; where that was no text, JSON
// is the value as decoded and IsJSON is set.
type Hit struct {
	Path     string // JSON pointer to the place in the redacted document
	Detector string
	Action   Action
	Rule     string // which rule of the policy chose the action; "" for none
	Text     string
	JSON     any
	IsJSON   bool

	start int // byte offset in its text: the order of several in one place
}

// Config says how the parts of one record are redacted. The zero value masks
// everything that a detector finds.
type Config struct {
	// Protocol is the protocol of the event, for what it says must never be
	// stored.
	Protocol string
	// Treat chooses what becomes of a finding; nil: it is masked. path is below
	// the document. What may not be released it is masked, whatever Treat says.
	Treat func(detector, path, value string) Treatment
	// Digest gives the text that stands for a value under Hash and Token: 32
	// hexadecimal digits.
	Digest func(t Treatment, detector, value string) string
	// Forced are fields that the policy redacts whatever they hold, as declared
	// fields are written.
	Forced []string
	// ForcedAll redacts every text of Strings.
	ForcedAll bool
	// Size is the length of the document in bytes: what redaction may cost. 0:
	// there is no limit but that for each text.
	Size int
	// Echoes are texts that are known to be secret from another place.
	Echoes *Echoes
	// ScanCache is what a Cleaner has found in the same document; nil: it was not asked.
	ScanCache *ScanCache
}

// Document redacts a decoded JSON document (maps, slices, strings,
// json.Number, bool, nil) in place. prefix is the JSON pointer of the document;
// declared are the fields that its producer named, as paths from the document.
// The hits are sorted by path and, within one text, by place.
func Document(root any, prefix string, declared []string, c Config) (any, []Hit, error) {
	m := fieldMarker{visits: maxVisits}
	root, err := m.markAll(root, declared, DeclaredField)
	if err == nil && len(c.Forced) > 0 {
		root, err = m.markAll(root, c.Forced, PolicyField)
	}
	if err != nil {
		return nil, nil, err
	}
	w := documentWalker{path: []byte(prefix), base: len(prefix), config: c, never: neverStoreFor(c.Protocol, root)}
	root, drop := w.redactValue(root, "")
	if drop {
		root = nil
	}
	if len(w.hits) > MaxHits || w.isOverBudget() {
		return nil, nil, ErrTooMuch
	}
	SortHits(w.hits)
	return root, w.hits, nil
}

// Strings redacts the texts of a list, such as a header's values, in place.
// The texts need not be UTF-8. What is dropped leaves an empty text.
func Strings(list []string, name, prefix string, c Config) []Hit {
	w := documentWalker{path: []byte(prefix), base: len(prefix), config: c}
	for i, s := range list {
		at := w.push(strconv.Itoa(i))
		switch {
		case !utf8.ValidString(s):
			list[i], _ = w.redactWhole(InvalidUTF8, s)
		case c.ForcedAll && s != "":
			v, drop := w.redactDeclared(declaredValue{s, PolicyField}, name)
			if list[i], _ = v.(string); drop {
				list[i] = ""
			}
		default:
			out, drop := w.redactText(s, name)
			if list[i] = out; drop {
				list[i] = ""
			}
		}
		w.pop(at)
	}
	return w.hits
}

// OneText redacts a single text found at path; what is dropped leaves an empty text.
func OneText(s, path string, c Config) (string, []Hit) {
	w := documentWalker{path: []byte(path), base: len(path), config: c}
	out, drop := w.redactText(s, "")
	if drop {
		out = ""
	}
	return out, w.hits
}

// SortHits puts hits into the order of redactions: by path and, within one text, by
// place.
func SortHits(hits []Hit) {
	slices.SortStableFunc(hits, func(a, b Hit) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return a.start - b.start
	})
}

// declaredValue stands in the tree for a value that the producer declared, or
// the policy.
type declaredValue struct {
	v        any
	detector string
}

type documentWalker struct {
	path   []byte
	base   int // where the document's part of path begins
	hits   []Hit
	config Config
	work   int // done so far
	budget workBudget
	never  neverStoreRules
}

func (w *documentWalker) push(token string) (at int) {
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

func (w *documentWalker) pop(at int) { w.path = w.path[:at] }

func (w *documentWalker) redactObject(m map[string]any) {
	paired, beside := isNameValuePair(m), hasUserPassword(m)
	var odd []string // keys that hold a secret themselves
	for k, v := range m {
		if w.isFull() {
			return
		}
		if len(w.findSpans(k)) > 0 {
			odd = append(odd, k)
			continue
		}
		w.redactMember(m, k, k, v, paired && pairValues[pairKey(k)] || beside && isUserPasswordKey(k))
	}
	slices.Sort(odd)
	for _, k := range odd {
		if w.isFull() {
			return
		}
		w.redactSecretKey(m, k)
	}
}

// redactSecretKey redacts a member whose key holds a secret.
func (w *documentWalker) redactSecretKey(m map[string]any, k string) {
	v := m[k]
	if name, kept := w.redactKey(m, k); kept {
		w.redactMember(m, name, k, v, false)
	}
}

// redactKey redacts a key of m and gives its new name; with a key that is dropped
// goes its value.
func (w *documentWalker) redactKey(m map[string]any, k string) (name string, kept bool) {
	from := len(w.hits)
	name, drop := w.redactSpans(k) // the path of its hits is set below
	if from == len(w.hits) {
		return k, true // allowed
	}
	v := m[k]
	delete(m, k)
	for free := name; ; name = free + "~" + strconv.Itoa(len(m)) {
		if _, taken := m[name]; !taken {
			break
		}
	}
	at := w.push(name)
	for i := range w.hits[from:] {
		h := &w.hits[from+i]
		h.Path, h.start = string(w.path), h.start-len(k)
	}
	w.pop(at)
	if drop {
		return "", false
	}
	m[name] = v
	return name, true
}

// redactMember redacts m's value v, whose original key decides, and puts it at name.
func (w *documentWalker) redactMember(m map[string]any, name, key string, v any, paired bool) {
	at := w.push(name)
	defer w.pop(at)
	if paired {
		key = "password"
	}
	if w.never.enabled && w.redactForbidden(m, name, key, v) {
		return
	}
	out, drop := w.redactValue(v, key)
	if drop {
		delete(m, name)
		return
	}
	switch out := out.(type) {
	case map[string]any, []any: // redacted in place
		m[name] = out
	default:
		if out != v || name != key {
			m[name] = out
		}
	}
}

// isNameValuePair reports whether an object is like {"Name": "DB_PASSWORD", "Value": …}:
// one member says what another one is.
func isNameValuePair(m map[string]any) bool {
	if len(m) < 2 || len(m) > maxPair {
		return false
	}
	named, valued := false, false
	for k, v := range m {
		s, isText := v.(string)
		named = named || isText && len(s) <= maxIdent && CredentialName(s) && pairNames[pairKey(k)]
	}
	for k := range m {
		valued = valued || named && pairValues[pairKey(k)]
	}
	return named && valued
}

// maxPair is how many members an object has that is a name and its value.
const maxPair = 12

// isUserPasswordKey reports whether a key means a password beside one of a user.
func isUserPasswordKey(k string) bool {
	return len(k) <= 4 && (strings.EqualFold(k, "pass") || strings.EqualFold(k, "pw"))
}

// hasUserPassword reports whether an object has such a key beside one of a user.
func hasUserPassword(m map[string]any) bool {
	pass, user := false, false
	for k := range m {
		pass = pass || isUserPasswordKey(k)
	}
	for k := range m {
		if !pass {
			break
		}
		switch pairKey(k) {
		case "user", "username", "login", "usr", "uid":
			user = true
		}
	}
	return pass && user
}

// redactArray redacts a list; what stands in a list of phones is a phone.
func (w *documentWalker) redactArray(list []any, key string) {
	secrets := w.redactArguments(list)
	each, name := "", ""
	if one := strings.TrimSuffix(key, "s"); personalField(one).detector != "" {
		each, name = one, one
	}
	for i, v := range list {
		if w.isFull() {
			return
		}
		at := w.push(strconv.Itoa(i))
		if secrets[i] {
			name = "password"
		}
		out, drop := w.redactValue(v, name)
		if list[i] = out; drop {
			list[i] = nil
		}
		w.pop(at)
		name = each
		if i+1 < len(list) {
			if a := announcedCredential(v, list[i+1], i == 0 && len(list) == 2); a != "" {
				name = a
			}
		}
	}
}

// announcedCredential returns v if, as one of an argument vector or as the first of a
// pair, it says that next is a credential: ["--password", "…"],
// ["Authorization", "…"], ["X-Api-Key", "…"]. A list of words is neither.
func announcedCredential(v, next any, pair bool) string {
	s, ok := v.(string)
	if _, text := next.(string); !ok || !text || len(s) > maxIdent {
		return ""
	}
	n := lookupName(s)
	if n.strength == strongName && (strings.HasPrefix(s, "-") || pair && (n.line || strings.Contains(s, "-") || strings.Contains(s, "_") && s == strings.ToUpper(s))) {
		return s
	}
	return ""
}
