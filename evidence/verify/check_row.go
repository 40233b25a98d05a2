package verify

import (
	"cmp"
	"strconv"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/internal/view"
)

// checkRedactions checks that every redaction left a placeholder at its path.
func (e *Examiner) checkRedactions(text []byte, v *view.Record) {
	for i, red := range v.Redactions {
		if !hexDigest(red.Commitment, digest.PrefixKeyed) {
			e.addFinding(CodeRedaction, "redactions/"+strconv.Itoa(i), "the commitment is not of the form %s<64 hex digits>", digest.PrefixKeyed)
		}
		if !hasPlaceholder(text, red, v) {
			e.addFinding(CodeRedaction, "redactions/"+strconv.Itoa(i), "nothing at %.120q was replaced by %s", red.Path, redact.Placeholder(red.Detector))
		}
	}
}

// hasPlaceholder reports whether a redaction left its placeholder in the text of its record. A body that
// is withheld left a reason, and withheld headers left none.
func hasPlaceholder(text []byte, red evidence.Redaction, v *view.Record) bool {
	action, known := redact.ParseAction(cmp.Or(red.Action, redact.Mask.String()))
	switch {
	case !known || action == redact.Allow:
		return false
	case red.Path == "/body" && red.Detector == redact.Withheld:
		return len(v.Reason) > 0
	case red.Path == "/headers" && (red.Detector == redact.TooMany || red.Detector == redact.Withheld):
		return v.NoHeaders
	}
	value, last, ok := canonical.Locate(text, red.Path)
	if action == redact.Drop {
		return !ok || value == nil || value == "" || redact.HasPlaceholder(last, red.Detector, redact.Mask)
	}
	if !ok {
		return false
	}
	s, _ := value.(string)
	return redact.HasPlaceholder(s, red.Detector, action) || redact.HasPlaceholder(last, red.Detector, action)
}
