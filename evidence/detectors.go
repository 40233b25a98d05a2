package evidence

import "github.com/countersign-dev/countersign/evidence/internal/redact"

// Detectors lists the names of everything that redacts, as redactions name it.
func Detectors() []string { return redact.Detectors() }
