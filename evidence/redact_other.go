package evidence

import (
	"slices"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// RedactText takes out of a text that stands in no record what the built-in rules
// take out of records, and names the detectors that found something. Nothing
// commits to what was taken out.
func RedactText(text string) (redacted string, detectors []string) {
	redacted, hits := redact.OneText(text, "", redact.Config{})
	return redacted, detectorsOf(hits)
}

// RedactJSON is RedactText for a JSON document of a protocol ("aump" and so on):
// fields are looked at by their names, too. The result is in RFC 8785 form; what
// cannot be redacted is an error.
func RedactJSON(protocol string, doc []byte) (redacted string, detectors []string, err error) {
	tree, err := strictjson.Parse(doc, strictjson.DefaultLimits)
	if err != nil {
		return "", nil, err
	}
	tree, hits, err := redact.Document(tree, "", nil, redact.Config{Protocol: protocol})
	if err != nil {
		return "", nil, err
	}
	text, err := appendCanonical(nil, tree)
	return string(text), detectorsOf(hits), err
}

func detectorsOf(hits []redact.Hit) (names []string) {
	for _, h := range hits {
		names = append(names, h.Detector)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
