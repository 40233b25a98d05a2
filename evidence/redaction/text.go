package redaction

import (
	"slices"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Text applies the built-in rules to a text that is in no record, and returns the names
// of the detectors that found something. It makes no commitment to the removed values.
func Text(text string) (redacted string, detectors []string) {
	redacted, hits := redact.OneText(text, "", redact.Config{})
	return redacted, detectorsOf(hits)
}

// JSON is Text for a JSON document of a protocol ("aump" and so on). It also
// redacts fields by their names. The result is in RFC 8785 form. A document that cannot be
// redacted is an error.
func JSON(protocol string, doc []byte) (redacted string, detectors []string, err error) {
	tree, err := strictjson.Parse(doc, strictjson.DefaultLimits)
	if err != nil {
		return "", nil, err
	}
	tree, hits, err := redact.Document(tree, "", nil, redact.Config{Protocol: protocol})
	if err != nil {
		return "", nil, err
	}
	text, err := canonical.Append(nil, tree)
	return string(text), detectorsOf(hits), err
}

func detectorsOf(hits []redact.Hit) (names []string) {
	for _, h := range hits {
		names = append(names, h.Detector)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SecretName reports whether a name, of a session for instance, holds a credential. The
// evidence then has the name in another form (see evidence.MaskedNames).
func SecretName(name string) bool {
	var c redact.CleanChecker
	return names.HoldsSecret(&c, name)
}
