package admitter

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/quota"
)

// Rule describes a kind of finding that the admitter itself makes. Rule switches do not apply to
// it.
type Rule struct {
	Name                string
	Severity            events.Severity
	Explanation, Remedy string
	Inputs, Ref         string // the data it is decided from; where it is documented
}

// ruleQuota is the name of the finding about a publisher that exceeds a quota.
const ruleQuota = "quota_exceeded"

var quotaRule = Rule{
	ruleQuota, events.SeverityMedium, "A publisher sent more than its quota, or its tenant's, allows. What was too much was refused and is not on the log.",
	"See whether the publisher works as it should; otherwise raise the limits of the admitter.",
	"the rate of a publisher's events or requests, and the admitter's limits", "docs/operating.md#quotas",
}

// Rules lists the rules of the admitter's own findings, ordered by name.
func Rules() []Rule { return []Rule{quotaRule} }

// reportExcess writes one finding about a publisher in the background: it must not delay other
// callers' requests.
func (s *service) reportExcess(tenant, publisher, of string, e quota.Excess) {
	s.env.Log.Warn().Str("tenant", tenant).Str("publisher", publisher).Str("of", of).Str("limit", e.String()).Msg("quota exceeded")
	now := time.Now()
	id, err := uuid.NewV7()
	if err != nil {
		return // the log line has it
	}
	f := events.Finding{
		FindingID: ruleQuota + "-" + id.String(), Rule: ruleQuota, Severity: quotaRule.Severity, Tenant: tenant,
		EventIDs: []string{}, Seqs: []uint64{}, DetectedAt: events.At(now), Remedy: quotaRule.Remedy,
		Explanation: fmt.Sprintf("Publisher %s exceeded the %s's quota of %d %s per second of %s. What was too much was refused and is not on the log.",
			publisher, e.Of, e.Limit, e.What, of),
	}
	msg, err := s.signedRecord(s.space.Finding(tenant, string(f.Severity), ""), f.FindingID, events.TypeFinding, now, f)
	if err == nil {
		err = s.committer.AppendAsync(msg, func(_ uint64, err error) {
			if err != nil {
				s.env.Log.Error().Err(err).Msg("the finding about a quota could not be stored")
			}
		})
	}
	if err != nil {
		s.env.Log.Error().Err(err).Msg("the finding about a quota could not be written")
	}
}
