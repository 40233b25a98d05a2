package correlate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
)

// pastEvidence reads one incarnation of the log from its evidence. Bodies there are redacted and
// in canonical form.
type pastEvidence struct {
	db     *read.Reader
	part   evidencereader.Session
	tenant string
	hidden map[uint64]bool
}

// whole refuses a session that lacks texts: replaying the rest would not show what happened.
func whole(ctx context.Context, l evidencereader.Reader, part evidencereader.Session) error {
	gone, err := proof.WhyExpired(ctx, l.NewExpiryReasons(), part.Rows)
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, r := range part.Rows {
		if why := gone[r.Seq]; why != "" {
			return fmt.Errorf("the session cannot be replayed from the evidence: %d of its %d records have no text; of sequence %d it says: %s. If the log still has them, leave out --from clickhouse", len(gone), len(part.Rows), r.Seq, why)
		}
	}
	return nil
}

func (p *pastEvidence) session(ctx context.Context) (*recording, error) {
	p.hidden = map[uint64]bool{}
	rec := &recording{Shard: p.part.Shard, hidden: p.hidden}
	var err error
	if rec.last, _, err = p.db.Position(ctx, p.part.Shard); err != nil {
		return nil, err
	}
	rec.consumed = rec.last // evidence of a message's outputs comes after that of the message
	for _, r := range p.part.Rows {
		p.take(rec, r.Seq, r.Kind, r.Record)
	}
	add := func(r storage.EvidenceRow) error {
		p.take(rec, r.Seq, r.Kind, r.Record)
		return nil
	}
	if err := p.db.ControlRecords(ctx, p.part.Shard, rec.last, add); err != nil {
		return nil, err
	}
	for _, row := range protocol.Rows {
		for _, aside := range row.SessionlessEvents {
			if err := p.db.EventsOf(ctx, p.part.Shard, p.tenant, aside.Type, rec.last, add); err != nil {
				return nil, err
			}
		}
	}
	rec.inputs = inOrder(rec.inputs)
	last, err := p.consumed(ctx)
	if err == nil {
		rec.consumed = last
	}
	return rec, err
}

// consumed is the position in the newest cursor.
func (p *pastEvidence) consumed(ctx context.Context) (consumed uint64, err error) {
	err = p.db.LastCursor(ctx, p.part.Shard, func(r storage.EvidenceRow) error {
		if _, c, err := evidencereader.DecodeRow[events.Cursor](r); err == nil {
			consumed = c.Consumed
		}
		return nil
	})
	return consumed, err
}

// take adds a row to the inputs or to the correlator's outputs.
func (p *pastEvidence) take(rec *recording, seq uint64, kind, text string) {
	m, redacted := p.message(seq, text)
	if kind != evidence.KindCall && kind != evidence.KindFinding {
		rec.inputs = append(rec.inputs, m)
		return
	}
	if o, ours := outputOf(m); ours {
		o.hidden = redacted
		rec.recorded = append(rec.recorded, o)
	}
}

// message rebuilds the log's message from its record, as far as the record holds it.
func (p *pastEvidence) message(seq uint64, text string) (m events.LogMessage, redacted bool) {
	r, err := evidence.ParseRecord([]byte(text))
	if err != nil {
		p.hidden[seq] = true
		return events.LogMessage{Seq: seq}, true
	}
	for _, x := range r.Redactions {
		redacted = redacted || strings.HasPrefix(x.Path, "/body")
	}
	redacted = redacted || r.Reason != ""
	if redacted {
		p.hidden[seq] = true
	}
	return events.LogMessage{Seq: seq, Subject: r.Subject, Time: r.BrokerTime.Time, Header: r.Headers, Body: r.Body}, redacted
}

func (p *pastEvidence) firstInput(ctx context.Context, after, to uint64, at time.Time) (uint64, time.Time, error) {
	seq, stored, err := p.db.FirstInput(ctx, p.part.Shard, after, at)
	if seq > to {
		seq = 0
	}
	return seq, stored, err
}

func (p *pastEvidence) everything(ctx context.Context, to uint64, fn func(events.LogMessage) error) error {
	return p.db.Scan(ctx, p.part.Shard, 1, to, func(r storage.EvidenceRow) error {
		m, _ := p.message(r.Seq, r.Record)
		return fn(m)
	})
}
