package correlate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/streams"
)

// pastLog reads single messages of the log, the only access that an operator has.
type pastLog struct {
	log          recorded.Log
	tenant, name string
	erased       *erasures.Log
}

// controlInputs are the control records that a correlator uses.
var controlInputs = []string{events.ControlTick, events.ControlKey, events.ControlKeyRetired, events.ControlRules, events.ControlMandate, events.ControlPublisher}

// subjects returns the subjects of a session's messages.
func (p *pastLog) subjects() (inputs, outputs []string) {
	of := func(class subject.Class, rest ...string) string {
		return strings.TrimSuffix(p.log.Space.All(class), ">") + subject.Escape(p.tenant) + "." + strings.Join(rest, ".")
	}
	session := subject.Token(p.name)
	inputs = []string{of(subject.Events, "*", "*", session, ">"), of(subject.Decisions, "*", session)}
	for token, row := range protocol.Rows {
		for _, aside := range row.SessionlessEvents {
			inputs = append(inputs, of(subject.Events, "*", token, "*", aside.Type))
		}
	}
	return inputs, []string{of(subject.Calls, "*", session), of(subject.Findings, "*", session)}
}

func (p *pastLog) session(ctx context.Context) (*recording, error) {
	st, err := streams.StreamState(ctx, p.log.JS, p.log.Stream)
	if err != nil {
		return nil, err
	}
	rec := &recording{Shard: streams.IncarnationName(p.log.Stream, st.Created), last: st.LastSeq}
	if rec.consumed, err = p.consumed(ctx); err != nil {
		return nil, err
	}
	inputs, outputs := p.subjects()
	messages, err := p.read(ctx, inputs, st.LastSeq)
	if err != nil {
		return nil, err
	}
	written, err := p.read(ctx, outputs, st.LastSeq)
	if err != nil {
		return nil, err
	}
	var workflows []string
	own := 0
	for _, m := range messages {
		at, _ := p.log.Space.Parse(m.Subject)
		if subject.Token(at.Session) == subject.Token(p.name) {
			own++
		}
		if d, err := events.DecodeRecord[events.Decision](m.Body); at.Class == subject.Decisions && err == nil && d.Approval != nil {
			workflows = append(workflows, d.Approval.WorkflowID)
		}
	}
	if err := p.notErased(ctx); err != nil {
		return nil, err
	}
	if own == 0 && len(written) == 0 {
		return nil, fmt.Errorf("%w in the log of stream %s: tenant %q, session %.100q", evidencereader.ErrNoSession, p.log.Stream, p.tenant, p.name)
	}
	slices.Sort(workflows)
	others, err := p.readOthers(ctx, slices.Compact(workflows), st.LastSeq)
	if err != nil {
		return nil, err
	}
	rec.inputs = inOrder(append(messages, others...))
	for _, m := range inOrder(written) {
		if o, ours := outputOf(m); ours {
			rec.recorded = append(rec.recorded, o)
		}
	}
	return rec, nil
}

// notErased returns an error if messages of the session were erased: the rest cannot be
// correlated again.
func (p *pastLog) notErased(ctx context.Context) error {
	if err := p.erased.Load(ctx); err != nil {
		return err
	}
	for _, e := range p.erased.Records() {
		if e.State == events.ErasureBegun && e.Tenant == p.tenant && slices.Contains(e.Sessions, p.name) {
			return fmt.Errorf("%w: session %.100q of tenant %q, by %s at %s (%s): %.200s. Its evidence is whole: replay --from clickhouse, chain, verify",
				errLogErased, p.name, p.tenant, ui.Clean(e.OrderedBy, 60), e.At, e.ErasureID, ui.Clean(e.Reason, 200))
		}
	}
	return nil
}

// errLogErased reports that there is nothing to replay.
var errLogErased = errors.New("the log of this session was erased")

// consumed is the last message for which the log has all outputs.
func (p *pastLog) consumed(ctx context.Context) (uint64, error) {
	m, err := streams.LastBySubject(ctx, p.log.JS, p.log.Stream, p.log.Space.Control(p.log.Stream, events.ControlCursor))
	if err != nil || m == nil {
		return 0, err
	}
	c, err := events.DecodeRecord[events.Cursor](m.Body)
	return c.Consumed, err
}

// subjectReaders is how many subjects are read concurrently.
const subjectReaders = 16

// read returns the messages of some subjects up to a sequence, unordered. It asks for nothing behind the last one of
// a subject: on a log with many sessions the server would search for it up to the end.
func (p *pastLog) read(ctx context.Context, subjects []string, to uint64) (list []events.LogMessage, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(subjectReaders)
	for _, subj := range subjects {
		g.Go(func() error {
			last, err := streams.LastBySubject(ctx, p.log.JS, p.log.Stream, subj)
			if err != nil || last == nil {
				return err
			}
			for m, err := range streams.EachBySubject(ctx, p.log.JS, p.log.Stream, subj, 1) {
				if err != nil {
					return err
				}
				if m.Seq <= to {
					mu.Lock()
					list = append(list, *m)
					mu.Unlock()
				}
				if m.Seq >= min(to, last.Seq) {
					return nil
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return list, err
}

// readOthers returns what a correlator uses beside a session's own messages: control records, and the approval
// workflows of its decisions.
func (p *pastLog) readOthers(ctx context.Context, workflows []string, to uint64) (list []events.LogMessage, err error) {
	for _, kind := range controlInputs {
		for m, err := range p.log.EachControl(ctx, kind) {
			if err != nil {
				return nil, fmt.Errorf("reading the control records of %s: %w", kind, err)
			}
			list = append(list, *m)
		}
	}
	for _, workflow := range workflows {
		records, err := p.log.Approvals(ctx, p.tenant, workflow)
		if err != nil {
			return nil, err
		}
		list = append(list, records...)
	}
	return slices.DeleteFunc(list, func(m events.LogMessage) bool { return m.Seq > to }), nil
}

func inOrder(list []events.LogMessage) []events.LogMessage {
	slices.SortFunc(list, func(a, b events.LogMessage) int {
		switch {
		case a.Seq < b.Seq:
			return -1
		case a.Seq > b.Seq:
			return 1
		}
		return 0
	})
	return slices.CompactFunc(list, func(a, b events.LogMessage) bool { return a.Seq == b.Seq })
}

// outputOf decodes a correlator's output; other services write findings, too.
func outputOf(m events.LogMessage) (o output, ours bool) {
	if !strings.HasSuffix(header(m.Header, "ce-source"), "/correlator") {
		return o, false
	}
	return output{seq: m.Seq, call: header(m.Header, "ce-type") == events.TypeCall, id: header(m.Header, "ce-id"), body: m.Body}, true
}

func header(h map[string][]string, name string) string {
	for k, v := range h {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

func (p *pastLog) firstInput(ctx context.Context, after, to uint64, at time.Time) (uint64, time.Time, error) {
	if to <= after {
		return 0, time.Time{}, nil
	}
	seq, err := p.log.SeqAt(ctx, streams.State{FirstSeq: after + 1, LastSeq: to}, at)
	for ; err == nil && seq <= to; seq++ { // it may be the correlator's own, or from before a clock went back
		m, err := streams.MessageAt(ctx, p.log.JS, p.log.Stream, seq)
		if err != nil {
			return 0, time.Time{}, err
		}
		if m != nil && letsTimePass(p.log.Space, m.Subject) && !m.Time.Before(at) {
			return seq, m.Time, nil
		}
	}
	return 0, time.Time{}, err
}

// letsTimePass distinguishes the correlator's inputs from its own records.
func letsTimePass(space subject.Space, subj string) bool {
	p, _ := space.Parse(subj)
	return p.Class != subject.Calls && p.Class != subject.Findings && (p.Class != subject.Control || p.Kind != events.ControlCursor)
}

// everything passes all messages of the log up to a sequence to fn, in order.
func (p *pastLog) everything(ctx context.Context, to uint64, fn func(events.LogMessage) error) error {
	if err := p.erased.Load(ctx); err != nil {
		return err
	}
	return recorded.ScanRanges(ctx, 1, to, func(uint64) {}, fn, p.stretch)
}

func (p *pastLog) stretch(ctx context.Context, from, to uint64) (list []events.LogMessage, err error) {
	for seq := from; seq <= to; seq++ {
		m, err := streams.MessageAt(ctx, p.log.JS, p.log.Stream, seq)
		if err != nil {
			return nil, err
		}
		if m == nil && p.erased.Covers(seq) {
			continue
		}
		if m == nil {
			return nil, fmt.Errorf("the log has no message %d, and no erasure record says why; run countersign doctor", seq)
		}
		list = append(list, *m)
	}
	return list, nil
}
