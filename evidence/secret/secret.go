// Package secret tells whether a value holds a credential, by the detectors with which evidence is
// redacted. It is the only package of evidence that admission imports: it makes no record and
// knows no policy. It is pure and linear in its input.
package secret

import (
	"encoding/json"
	"slices"

	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Found reports whether a text, or a tree of maps, lists, texts, json.Numbers, bools and nils,
// holds what evidence never releases: a credential by its shape (encoded ones included), or a value
// in a field that is named like one. Personal data and texts that are only random are none. It is
// true, too, for a value that takes the detectors more work than one record may. It changes tree.
func Found(tree any) bool {
	if text, ok := tree.(string); ok {
		return slices.ContainsFunc(redact.Scan(text), func(s redact.Span) bool { return !redact.Releasable(s.Detector) })
	}
	_, hits, err := redact.Document(tree, "", nil, redact.Config{Size: sizeOf(tree)})
	return err != nil || slices.ContainsFunc(hits, func(h redact.Hit) bool { return !redact.Releasable(h.Detector) })
}

// perValue is what a value counts beside its text, as in its JSON form.
const perValue = 4

// sizeOf is about the length of a tree's JSON form.
func sizeOf(tree any) int {
	n := perValue
	switch v := tree.(type) {
	case string:
		n += len(v)
	case json.Number:
		n += len(v)
	case []any:
		for _, e := range v {
			n += sizeOf(e)
		}
	case map[string]any:
		for name, e := range v {
			n += len(name) + perValue + sizeOf(e)
		}
	}
	return n
}
