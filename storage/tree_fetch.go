package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/mod/sumdb/tlog"
)

// codeIllegalPrewhere is ClickHouse's ILLEGAL_PREWHERE: what was asked is a view.
const codeIllegalPrewhere = 182

// fetchTiles reads tiles, all of level 0 or all of higher ones, in one query. The
// numbers stand in the statement, and conditions in PREWHERE: a table sent along, a
// parameter or a condition that the server has to move costs more than the reading
// does. One tenant's auditor has views instead of the tables, which have no
// PREWHERE, and the hashes of other tenants' records in one of their own.
func (db *DB) fetchTiles(ctx context.Context, shard string, list []tileAt, tiles tileSet) error {
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
	condition := " shard = " + sqlString(shard) + " AND " + b.String() + ")"
	if !db.hasViews.Load() {
		err := db.hashRows(ctx, "SELECT "+columns+" FROM "+from+" PREWHERE"+condition, list[0].level > 0, tiles)
		if ex := (*clickhouse.Exception)(nil); !errors.As(err, &ex) || ex.Code != codeIllegalPrewhere {
			return err
		}
		db.hasViews.Store(true)
	}
	return db.hashRows(ctx, "SELECT "+columns+" FROM "+view+" WHERE"+condition, list[0].level > 0, tiles)
}

// hashColumns are the columns of fetchTiles.
type hashColumns struct {
	level proto.ColUInt8
	n     proto.ColUInt64
	hash  proto.ColFixedStr
}

// hashRows runs a query of fetchTiles, by the short way if there is one.
func (db *DB) hashRows(ctx context.Context, query string, stored bool, tiles tileSet) error {
	c := hashColumns{hash: proto.ColFixedStr{Size: len(tile{}.hashes[0])}}
	into := proto.Results{{Name: "seq", Data: &c.n}, {Name: "record_hash", Data: &c.hash}}
	if stored {
		into = proto.Results{{Name: "level", Data: &c.level}, {Name: "n", Data: &c.n}, {Name: "hash", Data: &c.hash}}
	}
	err := db.queryNative(ctx, query, into, func(rows int) error {
		for i := range rows {
			level, n := 0, c.n.Row(i)-1 // leaf n is the record of sequence n+1
			if stored {
				level, n = int(c.level.Row(i)), c.n.Row(i)
			}
			tiles.addHash(level, n, [32]byte(c.hash.Row(i)))
		}
		return nil
	})
	if !errors.Is(err, errNative) {
		return err
	}
	return db.eachRow(ctx, query, func(r driver.Rows) error {
		var level uint8
		var n uint64
		var text string
		into := []any{&n, &text}
		if stored {
			into = []any{&level, &n, &text}
		}
		if err := r.Scan(into...); err != nil {
			return err
		}
		if !stored {
			n--
		}
		var hash [32]byte
		copy(hash[:], text)
		tiles.addHash(int(level), n, hash)
		return nil
	})
}

// fetchTreeNodes reads hashes by their tlog index, as they were stored before.
func (db *DB) fetchTreeNodes(ctx context.Context, shard string, indexes []uint64, tiles tileSet) error {
	return db.eachRow(ctx, "SELECT idx, hash FROM tree_nodes WHERE shard = {shard:String} AND idx IN ("+numberList(indexes)+")", func(r driver.Rows) error {
		var index uint64
		var text string
		if err := r.Scan(&index, &text); err != nil {
			return err
		}
		var hash [32]byte
		copy(hash[:], text)
		level, n := tlog.SplitStoredHashIndex(int64(index))
		tiles.addHash(level, uint64(n), hash)
		return nil
	}, queryParam("shard", shard))
}

// numberList is a list for IN; there is no sequence and no index of the last number.
func numberList(list []uint64) string {
	var b strings.Builder
	for _, n := range list {
		b.WriteString(strconv.FormatUint(n, 10))
		b.WriteByte(',')
	}
	b.WriteString(strconv.FormatUint(math.MaxUint64, 10))
	return b.String()
}
