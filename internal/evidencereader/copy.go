package evidencereader

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/write"
)

// CopyFilter selects the proved records that a copy holds.
type CopyFilter struct {
	Tenant string // its records, and the control records, which have no tenant
	// Others adds the rows of other tenants without their texts, or with them if Texts is set.
	Others, Texts bool
}

// rowCopier inserts proved rows into the caller's own database.
type rowCopier struct {
	CopyFilter
	db   *write.Writer
	rows []storage.EvidenceRow
	size int
}

// Bounds of one insert.
const (
	copiedRows  = 1 << 14
	copiedBytes = 32 << 20
)

func (c *rowCopier) wantsRow(r *evidence.Row, _ *verify.Examined) bool {
	return c.Others || r.Tenant == c.Tenant || r.Tenant == ""
}

func (c *rowCopier) addRow(ctx context.Context, r *evidence.Row, x *verify.Examined) error {
	row := storage.EvidenceRow{Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject, BrokerTime: r.BrokerTime,
		BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, Expiry: x.Expiry(), SessionIndex: x.SessionIndex()}
	if r.Tenant != c.Tenant && r.Tenant != "" && !c.Texts {
		row.Record = ""
	}
	c.rows = append(c.rows, row)
	if c.size += len(row.Record); len(c.rows) < copiedRows && c.size < copiedBytes {
		return nil
	}
	return c.flush(ctx)
}

func (c *rowCopier) flush(ctx context.Context) error {
	if len(c.rows) == 0 {
		return nil
	}
	err := c.db.InsertCopy(ctx, c.rows)
	c.rows, c.size = c.rows[:0], 0
	return err
}

// CopyProved verifies a shard, or all if shard is "", and inserts the wanted records that its
// newest checkpoint covers into the caller's own database, with that checkpoint. Queries there
// then use exactly the bytes that were proved. ErrUnproved means that the evidence is not valid;
// the copy must not be used then.
func (rd Reader) CopyProved(ctx context.Context, into *write.Writer, want CopyFilter, shard string, o VerifyOptions) (whole []verify.Report, err error) {
	shards, err := rd.ShardsNamed(ctx, shard, o.Published)
	if err != nil {
		return nil, err
	}
	c := &rowCopier{CopyFilter: want, db: into}
	o.sink = c
	for _, s := range shards {
		rep, err := rd.Verify(ctx, s, o)
		if err == nil {
			whole = append(whole, rep)
			err = CheckProved(whole)
		}
		if err == nil {
			err = c.flush(ctx)
		}
		if err == nil {
			err = rd.copyCheckpoint(ctx, into, s, rep, o)
		}
		if err != nil {
			return nil, err
		}
	}
	return whole, into.FinishCopy(ctx)
}

// copyCheckpoint inserts the checkpoint under which the copied rows were proved.
func (rd Reader) copyCheckpoint(ctx context.Context, into *write.Writer, shard string, rep verify.Report, o VerifyOptions) error {
	list, _, err := rd.gatherCheckpoints(ctx, shard, o)
	if err != nil {
		return err
	}
	for _, p := range list {
		c, err := tree.OpenCheckpoint(p.Text, note.VerifierList(o.Keys...))
		if err != nil || c.Shard != shard || c.Size != rep.Signed {
			continue
		}
		return into.InsertCheckpoint(ctx, storage.Checkpoint{Shard: shard, Size: uint64(c.Size), Root: c.Root, Note: p.Text, Created: time.Now()})
	}
	return fmt.Errorf("%w: shard %s: the checkpoint of size %d is gone meanwhile", ErrUnproved, shard, rep.Signed)
}
