package auditor

import (
	"errors"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// An auditor puts right after its next start what was deleted from the database or
// changed in an index, also if ClickHouse is away for a while.
func TestAStartPutsRightWhatWasChangedByHand(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	for _, name := range []string{"s1", "s2"} { // each with a checkpoint
		n.Publish(servicetest.Runtime, session(t, name)...)
		audited(t, n, flags(n, dsn, 100))
	}
	options, err := clickhouse.ParseDSN(dsn)
	servicetest.OK(t, err)
	c, err := clickhouse.Open(options)
	servicetest.OK(t, err)
	defer func() { _ = c.Close() }()
	number := func(query string) (n uint64) {
		servicetest.OK(t, c.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	const sizes, wrong = "SELECT uniqExact(size) FROM checkpoints", "SELECT count() FROM evidence_chain WHERE session_index = 77"
	before, first := number(sizes), number("SELECT toUInt64(min(size)) FROM checkpoints")
	servicetest.OK(t, c.Exec(t.Context(), "ALTER TABLE checkpoints DELETE WHERE size < (SELECT max(size) FROM checkpoints) SETTINGS mutations_sync = 2"))
	servicetest.OK(t, c.Exec(t.Context(), "ALTER TABLE evidence_chain UPDATE session_index = 77 WHERE seq = 2 SETTINGS mutations_sync = 2"))
	if before < 2 || number(sizes) != 1 || number(wrong) != 1 {
		t.Fatalf("%d checkpoints before, %d now, %d rows changed", before, number(sizes), number(wrong))
	}
	p, through := startProxy(t, dsn, "never")
	a := standing(t, flags(n, through, 100))
	size := uint64(a.tree.Size())
	p.away(true)
	a.checkpoints.restores.Add(1)
	done := make(chan error, 2)
	go func() { done <- a.checkpoints.restore(t.Context(), 0, first) }()
	go func() { done <- a.checkpoints.restore(t.Context(), first, size) }()
	servicetest.Eventually(t, "it says of both that it cannot store", func() bool {
		return strings.Count(a.env.Health.Report().Problems["store"], "published checkpoints") == 2
	})
	if a.checkpoints.restores.Load() != 2 {
		t.Error("a restore counts as done")
	}
	p.away(false)
	servicetest.OK(t, errors.Join(<-done, <-done))
	if left := a.checkpoints.restores.Load(); left != 0 {
		t.Errorf("%d restores are still to end", left)
	}
	a.repairContents(t.Context(), size)
	if number(sizes) != before || number(wrong) != 0 {
		t.Errorf("%d of %d checkpoints, %d rows changed", number(sizes), before, number(wrong))
	}
	holds(t, n, dsn)
}
