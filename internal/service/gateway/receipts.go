package gateway

import (
	"fmt"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

// newGuard returns what checks receipts; nil without a checkpoint key.
func (f Flags) newGuard() (*guard.Guard, error) {
	if f.CheckpointKey == "" {
		return nil, nil
	}
	g, err := guard.New(guard.Options{Tenant: f.Tenant, PublicKey: f.CheckpointKey})
	if err != nil {
		return nil, fmt.Errorf("--checkpoint-key: %w", err)
	}
	return g, nil
}

// verifyReceipt checks a receipt against a call of the caller's publisher. It does not mark the receipt
// as used: only its executor knows what ran.
func (s *server) verifyReceipt(who token.Record, row endpoint.Row, r endpoint.Receipt) endpoint.Response {
	if s.guard == nil {
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
