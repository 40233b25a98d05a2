package auditor

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// startCounting begins to show what this auditor does, from the position that it resumes
// at. What the evidence has not got there is lost.
func (a *auditor) startCounting(ctx context.Context, position uint64) error {
	if a.env.Metrics == nil {
		return nil
	}
	_, sequences, err := a.db.ShardExtent(ctx, a.shard)
	if err != nil {
		return fmt.Errorf("counting the evidence: %w", err)
	}
	a.metrics = a.env.Metrics.Auditor(a.flags.Stream, evidence.Detectors())
	a.metrics.Resumed(position, sequences)
	a.metrics.Follow(daemon.StreamHead(a.js, a.flags.Stream))
	return nil
}
