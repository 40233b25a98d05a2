package auditor

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
)

// startCounting starts the metrics at the position from which this auditor resumes. Sequences that
// the evidence lacks there count as lost.
func startCounting(ctx context.Context, a shardAccess, position uint64) (*metrics.Auditor, error) {
	_, sequences, err := a.db.ShardExtent(ctx, a.shard)
	if err != nil {
		return nil, fmt.Errorf("counting the evidence: %w", err)
	}
	counts := a.counters()
	counts.Resumed(position, sequences)
	counts.Follow(daemon.StreamHead(a.js, a.stream))
	return counts, nil
}

// counters are the auditor's metrics.
func (s shardAccess) counters() *metrics.Auditor {
	rules := map[string][]events.Severity{}
	for _, r := range Rules() {
		rules[r.Name] = []events.Severity{r.Severity}
	}
	return s.env.Metrics.Auditor(s.stream, redaction.DetectorNames(), rules)
}
