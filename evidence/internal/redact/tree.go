package redact

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/protocol"
)

// ErrTooMuch says that a document needs more redaction work than one record may have; its whole
// body must be withheld.
var ErrTooMuch = errors.New("redact: more redactions or declared fields than one record may have")

// Hit is one redaction. Text is the redacted text; if the value was no string, IsJSON is set and
// JSON is the decoded value.
type Hit struct {
	Path     string // JSON pointer to the place in the redacted document
	Detector string
	Action   Action
	Rule     string // the rule of the policy that chose the action; "" for none
	Text     string
	JSON     any
	IsJSON   bool

	start int // byte offset in its text; orders several hits in one place
}

// Config says how the parts of one record are redacted. The zero value masks everything that a
// detector finds.
type Config struct {
	// Protocol is the protocol of the event; it selects what must never be stored.
	Protocol string
	// Treat chooses the treatment of a finding; nil masks all. path is relative to the
	// document. A finding that must not be released is never kept, whatever Treat returns.
	Treat func(detector, path, value string) Treatment
	// Digest returns the text that replaces a value under Hash and Token: 32 hexadecimal
	// digits.
	Digest func(t Treatment, detector, value string) string
	// Forced are fields that the policy always redacts, in the syntax of declared fields.
	Forced []string
	// ForcedAll makes Strings redact every text.
	ForcedAll bool
	// Size is the length of the document in bytes; it bounds the total work. 0 leaves only
	// the limit for each text.
	Size int
	// Echoes are values that are known to be secret from another place.
	Echoes *Echoes
}

// Document redacts a decoded JSON document (maps, slices, strings, json.Number, bool, nil) in
// place. prefix is the JSON pointer of the document; declared are the fields that its producer
// named, as paths from the document. The hits are sorted by path and, within one text, by
// offset. The error is ErrTooMuch.
func Document(root any, prefix string, declared []string, c Config) (any, []Hit, error) {
	m := fieldMarker{visits: maxVisits}
	root, err := m.markAll(root, declared, DeclaredField)
	if err == nil && len(c.Forced) > 0 {
		root, err = m.markAll(root, c.Forced, PolicyField)
	}
	if err != nil {
		return nil, nil, err
	}
	w := newDocumentWalker(prefix, c)
	w.never = neverStoreFor(protocol.Of(c.Protocol), root)
	root, drop := w.redactValue(root, "")
	if drop {
		root = nil
	}
	if w.isFull() {
		return nil, nil, ErrTooMuch
	}
	SortHits(w.hits)
	return root, w.hits, nil
}

// Strings redacts the texts of a list, such as a header's values, in place. The texts need not
// be UTF-8. A dropped text becomes empty.
func Strings(list []string, name, prefix string, c Config) []Hit {
	w := newDocumentWalker(prefix, c)
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

// OneText redacts a single text at path. A dropped text becomes empty.
func OneText(s, path string, c Config) (string, []Hit) {
	w := newDocumentWalker(path, c)
	out, drop := w.redactText(s, "")
	if drop {
		out = ""
	}
	return out, w.hits
}

// SortHits sorts hits in the order of redactions: by path and, within one text, by offset.
func SortHits(hits []Hit) {
	slices.SortStableFunc(hits, func(a, b Hit) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return a.start - b.start
	})
}

// declaredValue wraps a value in the tree that the producer or the policy named.
type declaredValue struct {
	v        any
	detector string
}

type documentWalker struct {
	path      []byte
	base      int // start of the document's part of path
	hits      []Hit
	pathBytes int // of all hits
	config    Config
	work      int // done so far
	budget    workBudget
	never     neverStoreRules
	program   []string // words of the program whose list of arguments is next

	accountIDs bool // ids of private accounts are redacted in texts
}

func newDocumentWalker(prefix string, c Config) documentWalker {
	return documentWalker{path: []byte(prefix), base: len(prefix), config: c, accountIDs: protocol.Of(c.Protocol).AccountIDs}
}

func (w *documentWalker) push(token string) (at int) {
	at = len(w.path)
	w.path = append(append(w.path, '/'), strictjson.EscapePointer(token)...)
	return at
}

func (w *documentWalker) pop(at int) { w.path = w.path[:at] }

func (w *documentWalker) redactObject(m map[string]any) {
	paired, beside := isNameValuePair(m), hasUserPassword(m)
	program := programOf(m)
	var odd []string // keys that hold a secret themselves
	for k, v := range m {
		if w.isFull() {
			return
		}
		if len(w.findSpans(k)) > 0 {
			odd = append(odd, k)
			continue
		}
		if slices.Contains(argumentKeys, k) {
			w.program = program
		}
		w.redactMember(m, k, k, v, paired && pairValues[pairKey(k)] || beside && isUserPasswordKey(k))
		w.program = nil
	}
	slices.Sort(odd)
	for _, k := range odd {
		if w.isFull() {
			return
		}
		w.redactSecretKey(m, k)
	}
}

// redactSecretKey redacts a member with a key that holds a secret.
func (w *documentWalker) redactSecretKey(m map[string]any, k string) {
	v := m[k]
	if name, kept := w.redactKey(m, k); kept {
		w.redactMember(m, name, k, v, false)
		keepKey(m, name)
	}
}

// keepKey leaves null in the place of a dropped value with a redacted key: the key holds the
// placeholder of its own redaction.
func keepKey(m map[string]any, name string) {
	if _, kept := m[name]; !kept {
		m[name] = nil
	}
}

// redactKey redacts a key of m and returns its new name. If the key is dropped, so is its value.
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
		w.pathBytes += len(w.path) - len(h.Path)
		h.Path, h.start = string(w.path), h.start-len(k)
	}
	w.pop(at)
	if drop {
		return "", false
	}
	m[name] = v
	return name, true
}

// redactMember redacts the value v of m by its original key, and stores it under name.
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

// isNameValuePair reports whether an object is like {"Name": "DB_PASSWORD", "Value": …}: one
// member names the value of another.
func isNameValuePair(m map[string]any) bool {
	if len(m) < 2 || len(m) > maxPair {
		return false
	}
	named, valued := false, false
	for k, v := range m {
		s, isText := v.(string)
		named = named || isText && len(s) <= maxIdent && credentialName(s) && pairNames[pairKey(k)]
	}
	for k := range m {
		valued = valued || named && pairValues[pairKey(k)]
	}
	return named && valued
}

// maxPair is the greatest number of members of an object that is a name and its value.
const maxPair = 12

// isUserPasswordKey reports whether a key means a password if the object also names a user.
func isUserPasswordKey(k string) bool {
	return len(k) <= 4 && (strings.EqualFold(k, "pass") || strings.EqualFold(k, "pw"))
}

// hasUserPassword reports whether an object has such a key and names a user.
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

// redactArray redacts a list. The items of a list of phones are phones.
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

// announcedCredential returns v if v says that next is a credential, as an element of an argument
// vector or as the first of a pair: ["--password", "…"], ["Authorization", "…"], ["X-Api-Key",
// "…"]. In a list of words it does not.
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
