package correlate

import (
	"context"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/recorded"
)

// rerun runs a session through a core. Messages of other sessions are left out, but not the time
// that they advance: if a deadline was reached between two messages, a tick replaces the first
// message after it.
type rerun struct {
	core            *correlation.Correlator
	past            past
	space           subject.Space
	shard           string
	tenant, session string // as tokens
	last            uint64
	seq             uint64 // applied last
	applied         int
	outputs         []output
}

func (r *rerun) run(ctx context.Context, inputs []events.LogMessage) error {
	for i := range inputs {
		if err := r.pass(ctx, &inputs[i]); err != nil {
			return err
		}
		r.apply(inputs[i])
	}
	return r.pass(ctx, nil)
}

// pass advances time up to a message, or to the end of the log if next is nil. No deadline passes
// before a message that was stored before it, unless the broker's clock went back in between:
// then the deadline may have been reached already.
func (r *rerun) pass(ctx context.Context, next *events.LogMessage) error {
	for {
		due, found := r.due()
		if !found || next != nil && next.Time.Before(due.Add(-recorded.ClockBack)) {
			return nil
		}
		to := r.last
		if next != nil {
			to = next.Seq - 1
		}
		seq, stored, err := r.past.firstInput(ctx, r.seq, to, due)
		if err != nil {
			return err
		}
		if seq == 0 {
			return nil // the next message reaches the deadline, or no message has yet
		}
		r.apply(events.LogMessage{Seq: seq, Time: stored, Subject: r.space.Control(r.shard, events.ControlTick), Body: []byte("{}")})
		r.applied--
	}
}

// due is the next time at which a timer fires.
func (r *rerun) due() (at time.Time, found bool) {
	at, found = r.core.NextDeadline()
	if idle, too := r.core.NextIdle(); too && (!found || idle.Before(at)) {
		at, found = idle, true
	}
	return at, found
}

func (r *rerun) apply(m events.LogMessage) {
	r.seq = m.Seq
	r.applied++
	for _, o := range r.core.Apply(m) {
		if r.ours(o.Subject) {
			r.outputs = append(r.outputs, output{seq: m.Seq, call: o.Type == events.TypeCall, id: o.ID, body: o.Body})
		}
	}
}

// ours reports whether an output belongs to the session.
func (r *rerun) ours(subj string) bool {
	tokens := strings.Split(subj, ".")
	n := len(tokens)
	return n >= 4 && tokens[n-1] == r.session && tokens[n-3] == r.tenant
}
