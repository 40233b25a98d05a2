package evidencereader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// A connection that breaks does not end an export; one that breaks at the same
// place again and again does, and so does a refusal, here or by the server.
func TestRangeGoesOnWhenTheDatabaseHangsUp(t *testing.T) {
	refused := errors.New("refused")
	broken := errors.New("i/o timeout")
	stopped := fmt.Errorf("querying: %w", &clickhouse.Exception{Code: 394, Message: "the query was cancelled"})
	denied := fmt.Errorf("querying: %w", &clickhouse.Exception{Code: 497, Message: "not enough privileges"})
	for _, tc := range []struct {
		name  string
		each  int    // rows before the connection breaks, 0: it never does
		stop  uint64 // the row that is refused
		want  int
		err   error
		scans int
	}{
		{"it holds", 0, 0, 10, nil, 1},
		{"it breaks after each new row", 1, 0, 10, nil, 11},
		{"the server stops", -1, 0, 0, stopped, maxFailures + 1},
		{"the server denies it", -1, 0, 0, denied, 1},
		{"the server cannot read its disk", -1, 0, 0, conn.ErrDamaged, 1},
		{"it breaks at once", -1, 0, 0, broken, maxFailures + 1},
		{"a refusal", 0, 4, 3, refused, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []uint64
				scans := 0
				scan := func(fn func(storage.EvidenceRow) error) error {
					scans++
					for seq := uint64(1); seq <= 10; seq++ {
						if tc.each < 0 {
							return tc.err
						}
						if tc.each > 0 && int(seq) > tc.each*scans {
							return broken
						}
						if err := fn(storage.EvidenceRow{Seq: seq}); err != nil {
							return err
						}
					}
					if tc.each > 0 && scans <= 10/tc.each {
						return broken
					}
					return nil
				}
				err := scanResuming(context.Background(), scan, func(r storage.EvidenceRow) error {
					if r.Seq == tc.stop {
						return refused
					}
					got = append(got, r.Seq)
					return nil
				})
				if !errors.Is(err, tc.err) || len(got) != tc.want || !slices.IsSorted(got) || scans != tc.scans {
					t.Errorf("%v after %d scans: %v", err, scans, got)
				}
			})
		})
	}
}
