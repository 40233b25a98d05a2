package redaction

import (
	"slices"

	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Detector describes a detector for users and policy authors.
type Detector struct {
	Name string `json:"name"`
	// Releasable says whether a policy may keep its findings, or a part of them.
	Releasable bool `json:"releasable"`
	// Personal says whether it belongs to the group "personal".
	Personal bool `json:"personal"`
}

// Detectors lists all detectors by name.
func Detectors() []Detector {
	names, personal := redact.Detectors(), redact.PersonalDetectors()
	slices.Sort(names)
	out := make([]Detector, len(names))
	for i, n := range names {
		out[i] = Detector{Name: n, Releasable: redact.Releasable(n), Personal: slices.Contains(personal, n)}
	}
	return out
}
