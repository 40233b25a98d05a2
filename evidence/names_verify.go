package evidence

import (
	"slices"
	"strings"
)

// bodyRedacted reports whether a record's body has a redaction.
func bodyRedacted(list []Redaction) bool {
	return slices.ContainsFunc(list, func(r Redaction) bool { return strings.HasPrefix(r.Path, "/body/") })
}

// redactedAt reports whether a record has a redaction at a path.
func redactedAt(list []Redaction, path string) bool {
	return slices.ContainsFunc(list, func(r Redaction) bool { return r.Path == path })
}
