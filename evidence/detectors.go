package evidence

import "github.com/countersign-dev/countersign/evidence/internal/redact"

// Detectors lists the detector names that redactions can have.
func Detectors() []string { return redact.Detectors() }
