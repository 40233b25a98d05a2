package gateway

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

// newGuard returns what checks receipts; nil without a checkpoint key.
func (f Flags) newGuard() (*guard.Guard, error) {
	if f.CheckpointKey == "" {
		return nil, nil
	}
	key, err := keys.ReadCheckpointKey(f.CheckpointKey)
	if err != nil {
		return nil, fmt.Errorf("--checkpoint-key: %w", err)
	}
	g, err := guard.New(guard.Options{Tenant: f.Tenant, PublicKey: key})
	if err != nil {
		return nil, fmt.Errorf("--checkpoint-key: %w", err)
	}
	return g, nil
}

// newRetirements follows the keys bucket: a receipt of a key that was retired holds no longer. Records for
// which the checkpoint key does not vouch are left out.
func newRetirements(js jetstream.JetStream, g *guard.Guard) *view {
	return &view{name: "keys", read: readBucket(js, streams.BucketKeys), apply: func(records map[string][]byte) {
		for _, record := range records {
			_ = g.Trust(record)
		}
	}}
}

// verifyReceipt checks a receipt against a call of the caller's publisher. It does not mark the receipt
// as used: only its executor knows what ran.
func (s *server) verifyReceipt(who token.Record, row endpoint.Row, r endpoint.Receipt) endpoint.Response {
	if s.guard == nil || !s.retirements.isCurrent() {
		return row.Fail(gateway.ProblemOf(gateway.Unverifiable))
	}
	err := s.guard.Check(guard.Execution{
		Receipt: r.Receipt, Key: r.Key, Source: who.User, Session: r.Session, ToolCallID: r.ToolCallID, Tool: r.Tool, Arguments: r.Arguments,
	})
	if err != nil {
		return gateway.ReceiptFails(guard.Code(err))
	}
	claims, err := s.guard.Open(r.Receipt, r.Key)
	if err != nil {
		return gateway.ReceiptFails(guard.Code(err))
	}
	return gateway.ReceiptHolds(claims.DecisionID, claims.Nonce, claims.ExpiresAt, claims.UseUntil)
}
