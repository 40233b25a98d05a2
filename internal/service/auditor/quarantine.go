package auditor

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/streams"
)

// Headers of a quarantined message.
const (
	headerQuarantineShard  = "Countersign-Shard"  // the log's shard name and incarnation
	headerQuarantineSeq    = "Countersign-Seq"    // its sequence in the log
	headerQuarantineReason = "Countersign-Reason" // why it is quarantined
	headerQuarantinePart   = "Countersign-Part"   // "1/2": one of several messages that make up the body
)

// quarantineHeaderBytes is what is left of the server's max_payload for headers.
const quarantineHeaderBytes = 2048

// quarantine keeps the bytes of messages that could not be parsed, apart from the evidence, for
// the few users that may read them.
type quarantine struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	space     subject.Space
	shard     string
	last      uint64 // log sequence of the newest message in quarantine
	ambiguous bool   // last may be too low
}

// newQuarantine reads what the quarantine already holds.
func newQuarantine(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, space subject.Space, shard string) (*quarantine, error) {
	q := &quarantine{nc: nc, js: js, space: space, shard: shard}
	return q, q.readNewest(ctx)
}

// readNewest reads the newest message in quarantine. An incomplete one does not count: it is
// stored again as a whole.
func (q *quarantine) readNewest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, q.js, streams.StreamQuarantine, q.space.All(subject.Quarantine))
	if err != nil {
		return fmt.Errorf("reading the quarantine: %w", err)
	}
	q.ambiguous = false
	if m == nil || m.HeaderValue(headerQuarantineShard) != q.shard {
		return nil
	}
	seq, err := strconv.ParseUint(m.HeaderValue(headerQuarantineSeq), 10, 64)
	if err != nil {
		return nil
	}
	if part := m.HeaderValue(headerQuarantinePart); part != "" && !lastPart(part) {
		seq--
	}
	q.last = max(q.last, seq)
	return nil
}

func lastPart(text string) bool {
	var i, n int
	_, err := fmt.Sscanf(text, "%d/%d", &i, &n)
	return err == nil && i == n
}

// storeBodies stores the bytes of messages with a record that has none, before the evidence is stored.
// It skips messages that it sees again after a crash or a lost acknowledgement, unless another shard
// of the server has written to the quarantine since: those are stored twice.
func (q *quarantine) storeBodies(ctx context.Context, msgs []events.LogMessage, built []build.Built) error {
	if q.ambiguous {
		if err := q.readNewest(ctx); err != nil {
			return err
		}
	}
	var out []streams.Msg
	newest := q.last
	for i, b := range built {
		if b.Quarantine && msgs[i].Seq > q.last {
			newest = msgs[i].Seq
			out = append(out, q.splitMessage(b, msgs[i])...)
		}
	}
	if len(out) == 0 {
		return nil
	}
	if err := streams.StoreAll(ctx, q.nc, out); err != nil {
		q.ambiguous = true
		return fmt.Errorf("storing %d messages in quarantine: %w", len(out), err)
	}
	q.last = newest
	return nil
}

// splitMessage returns the copies of one message: several if the body is so large that the
// headers do not fit.
func (q *quarantine) splitMessage(b build.Built, m events.LogMessage) (out []streams.Msg) {
	most := max(1, int(q.nc.MaxPayload())-quarantineHeaderBytes)
	parts := max(1, (len(m.Body)+most-1)/most)
	for i := range parts {
		h := map[string][]string{
			headerQuarantineShard:  {q.shard},
			headerQuarantineSeq:    {strconv.FormatUint(m.Seq, 10)},
			headerQuarantineReason: {b.Record.Reason},
		}
		if parts > 1 {
			h[headerQuarantinePart] = []string{fmt.Sprintf("%d/%d", i+1, parts)}
		}
		out = append(out, streams.Msg{
			Subject: q.space.Quarantine(b.Record.Tenant), Header: h, Body: m.Body[i*most : min((i+1)*most, len(m.Body))],
		})
	}
	return out
}
