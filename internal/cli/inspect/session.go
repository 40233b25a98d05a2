package inspect

import (
	"context"
	"encoding/json"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// SessionCmd is `countersign session`.
type SessionCmd struct {
	target.Flags
	proof.ProveFlags
	JSON    bool   `name:"json" help:"Print JSON Lines: every record with its place, and what lies between it and the one before."`
	Session string `arg:"" help:"The session." type:"session"`
}

// Run prints a session's timeline from its evidence: redacted, in the order of
// the log.
func (c *SessionCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, own, restsOn, done, err := c.FindEvidence(ctx, io, c.Flags, false)
	if err != nil {
		return err
	}
	defer done()
	parts, err := own.Session(ctx, t.Tenant, c.Session)
	if err != nil {
		return system.SuggestSession(ctx, own.DB, t.Tenant, c.Session, err)
	}
	p := ui.NewPrinter(io.Out)
	for _, part := range parts {
		gone, err := proof.WhyExpired(ctx, own.NewExpiryReasons(), part.Rows)
		if err != nil {
			return err
		}
		steps := stepsOf(part, own.Space, gone)
		for i := range steps {
			steps[i].Proved = restsOn.Proved
		}
		if c.JSON {
			err = printSteps(io, steps)
		} else {
			var tree *sessionTree
			if tree, err = findSessionTree(ctx, own.DB, t.Tenant, part); err == nil {
				printSession(p, part, steps, tree)
			}
		}
		if err != nil {
			return err
		}
	}
	proof.PrintBasis(io, c.JSON, len(parts), restsOn)
	return nil
}

// step is one record of a session with the distance to the record before it.
type step struct {
	Shard string      `json:"shard"`
	Seq   uint64      `json:"seq"`
	At    events.Time `json:"at"` // broker time
	Kind  string      `json:"kind"`
	// Publisher and Protocol are those of an event, as the broker authenticated them.
	Publisher string  `json:"publisher,omitempty"`
	Protocol  string  `json:"protocol,omitempty"`
	Index     uint64  `json:"session_index,omitempty"`
	Others    uint64  `json:"messages_between"` // messages of other sessions since the record before
	Pause     float64 `json:"seconds_between"`
	Missing   uint64  `json:"records_missing,omitempty"` // of this session, before this one
	Problem   string  `json:"problem,omitempty"`         // why there is no record
	Expired   string  `json:"expired,omitempty"`         // why its text is gone; its kind and time are then not provable
	Proved    bool    `json:"proved"`                    // all records of the session are proved present and unchanged

	Redactions []evidence.Redaction `json:"redactions,omitempty"`
	Reason     string               `json:"reason,omitempty"` // why there is no body
	Body       json.RawMessage      `json:"body,omitempty"`   // redacted

	subject string
}

// stepsOf reads the records of a session. Invalid, missing and expired (gone) records are marked
// as such.
func stepsOf(s evidencereader.Session, space subject.Space, gone map[uint64]string) []step {
	steps := make([]step, 0, len(s.Rows))
	var last uint64 // session index
	for i, r := range s.Rows {
		st := step{Shard: r.Shard, Seq: r.Seq, At: events.At(r.BrokerTime), Kind: r.Kind, subject: r.Subject}
		if at, err := space.Parse(r.Subject); err == nil && at.Class == subject.Events {
			st.Publisher, st.Protocol = at.Publisher, at.Protocol
		}
		if i > 0 {
			before := s.Rows[i-1]
			if r.Seq > before.Seq {
				st.Others = r.Seq - before.Seq - 1
			}
			st.Pause = r.BrokerTime.Sub(before.BrokerTime).Seconds()
		}
		rec, err := evidence.ParseRecord([]byte(r.Record))
		switch {
		case r.Expired():
			st.Expired, last = gone[r.Seq], last+1
			st.Index = last
		case err != nil:
			st.Problem, last = "not a record", last+1
		case rec.SessionIndex != nil:
			st.Index = *rec.SessionIndex
			if st.Index > last+1 {
				st.Missing = st.Index - last - 1
			}
			last = st.Index
		}
		if err == nil {
			st.Redactions, st.Reason, st.Body = rec.Redactions, rec.Reason, rec.Body
		}
		steps = append(steps, st)
	}
	return steps
}

func printSteps(io ui.Stdio, steps []step) error {
	for _, s := range steps {
		if err := ui.WriteJSON(io, s); err != nil {
			return err
		}
	}
	return nil
}

// pauseShown is the shortest pause that is printed.
const pauseShown = 10 * time.Second
