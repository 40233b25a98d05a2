package aump

import (
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// isExpired is true from the instant of expiry on.
func isExpired(m *mandate.Mandate, now time.Time) bool { return !m.ExpiresAt.After(now) }

// stateFindings returns what makes a mandate unusable at a time: rows 1 to 3 of the table.
func stateFindings(m *mandate.Mandate, now time.Time) []Finding {
	s := &rowInput{Input: Input{Mandate: m, Now: now}}
	var found []Finding
	for _, r := range []struct {
		fires      bool
		code, path string
	}{
		{isInactive(s), CodeInactive, "$.status"},
		{notYetIssued(s), CodeInactive, "$.issued_at"},
		{isExpired(m, now), CodeExpired, "$.expires_at"},
		{m.IsUnbounded(), CodeScope, "$.authority"},
	} {
		if r.fires {
			found = append(found, Finding{wire.Denied, r.code, r.path})
		}
	}
	return found
}
