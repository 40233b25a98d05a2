package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/questions"
	"github.com/countersign-dev/countersign/storage/write"
)

// scaleShard holds the copies of the evidence.
const scaleShard = "GOV@20261120T000000.000000000Z"

// copyStep is the distance in time between two copies.
const copyStep = 10 * time.Minute

// scale copies the evidence until there are so many rows, and measures look-ups among them.
func (c *Cmd) scale(ctx context.Context, io ui.Stdio, b *auditBench) error {
	_, copies, err := b.counted(ctx)
	if err != nil {
		return err
	}
	begun, had := time.Now(), copies
	show := ui.CountProgress(io, "copying")
	for ; copies*b.messages < c.Rows; copies++ {
		show(uint64(copies*b.messages), uint64(c.Rows))
		if err := b.copy(ctx, copies); err != nil {
			return err
		}
	}
	s := scaled{b: b, copies: copies}
	if err := s.tree(ctx, ui.CountProgress(io, "the tree")); err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(io.Out, "\n%d rows more, %d of them new (%s to write)\n\n", copies*b.messages, (copies-had)*b.messages, time.Since(begun).Round(time.Second))
	}
	steps := []func(context.Context) (measure.Result, error){b.size, b.treeSize, s.repair, s.chain, s.proof, s.nextProof}
	for _, q := range questions.All() {
		steps = append(steps, func(ctx context.Context) (measure.Result, error) { return s.ask(ctx, q) })
	}
	for _, step := range steps {
		r, err := step(ctx)
		if err == nil {
			err = measure.Print(io, c.JSON, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy adds the evidence once more, with ids, sessions and times of its own. One copy in five
// belongs to another tenant.
func (b *auditBench) copy(ctx context.Context, k int) error {
	tenant := b.t.Tenant
	if k%5 == 4 {
		tenant = "globex"
	}
	text := "record"
	for _, prefix := range []string{"bench-session-", "9d0b-", "c-", "call-"} {
		zeros := "0000"
		if prefix == "call-" {
			zeros = "000"
		}
		text = fmt.Sprintf("replaceAll(%s, '%s%s', '%s%0*d')", text, prefix, zeros, prefix, len(zeros), k)
	}
	return b.conn.Exec(ctx, fmt.Sprintf(`INSERT INTO evidence (shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash)
		SELECT '%s', seq + %d, if(tenant = '', '', '%s'), replaceAll(session, 'bench-session-0000', 'bench-session-%04d'), session_index, kind,
			replaceAll(subject, 'bench-session-0000', 'bench-session-%04[4]d'), toDateTime64('2026-11-20 00:00:00', 9, 'UTC') + toIntervalSecond(%d) + toIntervalMillisecond(seq), body_digest,
			%s AS text, SHA256(concat(text, toString(seq)))
		FROM evidence WHERE shard NOT IN ('%[1]s') SETTINGS async_insert = 0`,
		scaleShard, k*b.messages, tenant, k, k*int(copyStep.Seconds()), text))
}

// scaled is the evidence after copying.
type scaled struct {
	b      *auditBench
	copies int
}

// size is the number of copied records.
func (s scaled) size() int64 { return int64(s.copies * s.b.messages) }

// nodesAtOnce bounds the nodes that tree holds in memory.
const nodesAtOnce = 200_000

// tree stores the tree over the copies, unless it exists.
func (s scaled) tree(ctx context.Context, show func(done, total uint64)) error {
	edge := tree.FrontierIndexes(s.size())
	ask := make([]uint64, len(edge))
	for i, n := range edge {
		ask[i] = uint64(n)
	}
	if _, err := s.b.db.TreeNodes(ctx, scaleShard, ask); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	merkle, err := tree.New(0, nil)
	if err != nil {
		return err
	}
	var nodes []storage.TreeNode
	err = s.b.db.RecordHashes(ctx, scaleShard, 1, storage.AllSequences, func(seq uint64, hash [32]byte) error {
		for _, n := range merkle.Append(hash) {
			nodes = append(nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
		if len(nodes) < nodesAtOnce {
			return nil
		}
		show(seq, uint64(s.size()))
		batch := nodes
		nodes = nodes[:0]
		return write.New(s.b.db.Pool()).InsertTreeNodes(ctx, scaleShard, batch)
	})
	if err != nil {
		return err
	}
	return write.New(s.b.db.Pool()).InsertTreeNodes(ctx, scaleShard, nodes)
}

// treeSize measures the tree's hashes on disk.
func (b *auditBench) treeSize(ctx context.Context) (measure.Result, error) {
	var disk, rows uint64
	err := b.conn.QueryRow(ctx, `SELECT sum(bytes_on_disk), sum(rows) FROM system.parts
		WHERE active AND database = currentDatabase() AND table = 'tree_hashes'`).Scan(&disk, &rows)
	if err != nil {
		return measure.Result{}, err
	}
	base, copies, err := b.counted(ctx)
	return measure.Result{What: "of that the hashes of the tree", Count: int(rows), Bytes: float64(disk) / float64(max(1, base*(copies+1)))}, err
}

// own returns the number of a random copy of the tenant.
func (s scaled) own() int {
	for {
		if k := rand.IntN(s.copies); k%5 != 4 {
			return k
		}
	}
}

// session returns a session of copy k.
func (s scaled) session(k int) string {
	return sampleSession(k*10_000 + rand.IntN(s.b.messages/messagesPerCall/callsPerSession))
}

// repair compares the derived tables with the evidence, as an auditor does at its start.
func (s scaled) repair(ctx context.Context) (measure.Result, error) {
	writer := write.New(s.b.db.Pool())
	return s.b.timed(3, "comparing the derived tables, once at every start", func() error {
		added, err := writer.Repair(ctx, scaleShard)
		if err == nil && added > 0 {
			err = fmt.Errorf("%d rows were missing", added)
		}
		return err
	})
}

func (s scaled) chain(ctx context.Context) (measure.Result, error) {
	return s.b.chainsOf(ctx, func() string { return s.session(s.own()) })
}

func (s scaled) proof(ctx context.Context) (measure.Result, error) {
	return s.b.proofsOf(ctx, scaleShard, s.size())
}

// proofsOfSession is how many records are proved at once.
const proofsOfSession = 70

// nextProof proves adjacent records, as those of a session are.
func (s scaled) nextProof(ctx context.Context) (measure.Result, error) {
	l := evidencereader.Reader{DB: s.b.db}
	return s.b.timed(lookups/3, fmt.Sprintf("%d inclusion proofs at once, of records side by side", proofsOfSession), func() error {
		first := 1 + rand.Uint64N(uint64(s.size())-proofsOfSession)
		seqs := make([]uint64, proofsOfSession)
		for i := range seqs {
			seqs[i] = first + uint64(i)
		}
		_, err := l.InclusionProofs(ctx, scaleShard, s.size(), seqs)
		return err
	})
}

// asks is how many times a question is measured.
const asks = 20

// ask measures one question with different parameters each time. A time range is that of one
// copy.
func (s scaled) ask(ctx context.Context, q questions.Question) (measure.Result, error) {
	rows := 0
	r, err := s.b.timed(asks, "question: "+q.Asks, func() error {
		k := s.own()
		if q.Name == "undecided" {
			k = s.copies - 1 // open calls are recent
		}
		from := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).Add(time.Duration(k) * copyStep)
		t := questions.Params{Tenant: s.b.t.Tenant, Agent: "mail-agent", Since: from, Until: from.Add(copyStep), Session: s.session(k),
			ID: fmt.Sprintf("01997d40-7a44-7a8e-9d0b-%04d%08d", k, rand.IntN(s.b.messages/messagesPerCall))}
		a, err := questions.Ask(ctx, s.b.db.Pool(), q, t)
		rows = len(a.Rows)
		return err
	})
	r.Count = rows // of the last answer
	return r, err
}
