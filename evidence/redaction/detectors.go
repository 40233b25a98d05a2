package redaction

import "github.com/countersign-dev/countersign/evidence/internal/redact"

// DetectorNames lists the detector names that redactions can have.
func DetectorNames() []string { return redact.Detectors() }
