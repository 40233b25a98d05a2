package read

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage/conn"
)

// codeIllegalPrewhere is ClickHouse's ILLEGAL_PREWHERE: the query reads a view.
const codeIllegalPrewhere = 182

// fetchTiles reads tiles, all of level 0 or all of higher levels, in one query. The numbers are
// in the statement and the conditions in PREWHERE: an external table, a parameter or a
// condition that the server has to move costs more than the reading. An auditor of one
// tenant has views instead of the tables. Views have no PREWHERE, and the view leaf_hashes
// has the hashes of all tenants' records.
func (r *Reader) fetchTiles(ctx context.Context, shard string, list []tileAt, tiles tileSet) error {
	columns, from, view, where := "seq, record_hash", "evidence", "leaf_hashes", "intDiv(seq - 1, "+strconv.Itoa(tileWidth)+") IN ("
	if list[0].level > 0 {
		columns, from, view, where = "level, n, hash", "tree_hashes", "tree_hashes", "(level, tile) IN ("
	}
	var b strings.Builder
	b.WriteString(where)
	for i, at := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		if at.level > 0 {
			fmt.Fprintf(&b, "(%d,%d)", at.level, at.n)
		} else {
			b.WriteString(strconv.FormatUint(at.n, 10))
		}
	}
	condition := " shard = " + conn.QuoteString(shard) + " AND " + b.String() + ")"
	if !r.hasViews.Load() {
		err := r.hashRows(ctx, "SELECT "+columns+" FROM "+from+" PREWHERE"+condition, list[0].level > 0, tiles)
		if ex := (*clickhouse.Exception)(nil); !errors.As(err, &ex) || ex.Code != codeIllegalPrewhere {
			return err
		}
		r.hasViews.Store(true)
	}
	return r.hashRows(ctx, "SELECT "+columns+" FROM "+view+" WHERE"+condition, list[0].level > 0, tiles)
}

// hashRows runs a query of fetchTiles.
func (r *Reader) hashRows(ctx context.Context, query string, stored bool, tiles tileSet) error {
	return r.pool.EachRow(ctx, query, func(row driver.Rows) error {
		var level uint8
		var n uint64
		var text string
		into := []any{&n, &text}
		if stored {
			into = []any{&level, &n, &text}
		}
		if err := row.Scan(into...); err != nil {
			return err
		}
		if !stored {
			n-- // leaf n is the record of sequence n+1
		}
		var hash [32]byte
		copy(hash[:], text)
		tiles.addHash(int(level), n, hash)
		return nil
	})
}
