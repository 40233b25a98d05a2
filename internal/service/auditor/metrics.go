package auditor

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// startCounting starts the metrics at the position from which this auditor resumes. Sequences
// that the evidence lacks there count as lost.
func (a *auditor) startCounting(ctx context.Context, position uint64) error {
	if a.env.Metrics == nil {
		return nil
	}
	_, sequences, err := a.db.ShardExtent(ctx, a.shard)
	if err != nil {
		return fmt.Errorf("counting the evidence: %w", err)
	}
	a.metrics = a.env.Metrics.Auditor(a.flags.Stream, redaction.DetectorNames())
	a.metrics.Resumed(position, sequences)
	a.metrics.Follow(daemon.StreamHead(a.js, a.flags.Stream))
	return nil
}
