package verify

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/evidence"
)

// bodyRedacted reports whether a record's body has a redaction.
func bodyRedacted(list []evidence.Redaction) bool {
	return slices.ContainsFunc(list, func(r evidence.Redaction) bool { return strings.HasPrefix(r.Path, "/body/") })
}

// redactedAt reports whether a record has a redaction at a path.
func redactedAt(list []evidence.Redaction, path string) bool {
	return slices.ContainsFunc(list, func(r evidence.Redaction) bool { return r.Path == path })
}
