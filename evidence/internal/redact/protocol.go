package redact

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// Detectors of the rows of protocols.
const (
	NeverStore = storable.NeverStore
	Protected  = storable.Protected
)

// neverStoreRules are the rules for one event.
type neverStoreRules struct {
	enabled bool
	rows    map[string]storable.Rule
	extra   storable.ExtraRules
}

// neverStoreFor makes the rules for an event.
func neverStoreFor(row *storable.Row, root any) neverStoreRules {
	n := neverStoreRules{rows: row.NeverStore}
	if row.Inspect != nil {
		n.extra = row.Inspect(root)
	}
	n.enabled = n.rows != nil || n.extra != nil
	return n
}

// findRule returns the rule for a key; path is the path of the value.
func (n *neverStoreRules) findRule(key string, path []byte) (storable.Rule, bool) {
	if row, listed := n.rows[key]; listed && row.AppliesAt(path) {
		return row, true
	}
	if n.extra == nil {
		return storable.Rule{}, false
	}
	return n.extra(key, path)
}

// redactForbidden redacts a member that the protocol excludes from storage. The walker's path is
// that of the member.
func (w *documentWalker) redactForbidden(m map[string]any, name, key string, v any) bool {
	row, found := w.never.findRule(key, w.path)
	if !found {
		return false
	}
	if d, marked := v.(declaredValue); marked {
		if d.detector != PolicyField {
			return false
		}
		v = d.v
	}
	switch v := v.(type) {
	case nil, bool:
		m[name] = v
		return true
	case string:
		if v == "" || IsPlaceholder(v) {
			return false
		}
	case map[string]any:
		if row.Names && len(v) <= maxIdent {
			w.redactContents(row.Detector, v)
			m[name] = v
			return true
		}
		if len(v) == 0 {
			return false
		}
	case []any:
		if len(v) == 0 {
			return false
		}
	}
	mark, drop := w.redactWhole(row.Detector, v)
	if m[name] = mark; drop {
		delete(m, name)
	}
	return true
}

// redactContents redacts the values of an object and keeps the names that hold no secret.
func (w *documentWalker) redactContents(detector string, m map[string]any) {
	var odd []string
	for k, v := range m {
		if len(w.findSpans(k)) > 0 {
			odd = append(odd, k)
			continue
		}
		w.redactContent(detector, m, k, v)
	}
	slices.Sort(odd)
	for _, k := range odd {
		v := m[k]
		if name, kept := w.redactKey(m, k); kept {
			w.redactContent(detector, m, name, v)
			keepKey(m, name)
		}
	}
}

// redactContent redacts the value v of the member k of m.
func (w *documentWalker) redactContent(detector string, m map[string]any, k string, v any) {
	if d, marked := v.(declaredValue); marked {
		v = d.v
	}
	switch v.(type) {
	case nil, bool:
		m[k] = v
		return
	}
	at := w.push(k)
	defer w.pop(at)
	mark, drop := w.redactWhole(detector, v)
	if m[k] = mark; drop {
		delete(m, k)
	}
}

// accountKinds are the words before the underscore in the id of a private account.
var accountKinds = []string{"acct", "account", "customer", "user", "card", "payment"}

// findAccountIDs appends the ids of private accounts: customer_4f8a2e7d. Only the texts of a
// protocol with AccountIDs in its row are searched.
func findAccountIDs(s string, spans []Span) []Span {
	for i := 0; i < len(s) && len(spans) <= 2*maxSpans; i++ {
		next := strings.IndexByte(s[i:], '_')
		if next < 0 {
			break
		}
		i += next
		to := runEnd(s, i+1, alnum)
		if to-i <= 8 {
			continue
		}
		for _, kind := range accountKinds {
			if from := i - len(kind); from >= 0 && matchesLiteral(s[from:i], kind, true) && (from == 0 || byteClass[s[from-1]]&alnum == 0) {
				spans = append(spans, Span{from, to, PrivateAccount})
			}
		}
		i = to - 1
	}
	return spans
}
