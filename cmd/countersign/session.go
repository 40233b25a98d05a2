package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

type sessionCmd struct {
	target.Flags
	proveFlags
	JSON    bool   `name:"json" help:"Print JSON Lines: every record with its place, and what lies between it and the one before."`
	Session string `arg:"" help:"The session." type:"session"`
}

// Run prints a session's timeline from its evidence: redacted, in the order of
// the log.
func (c *sessionCmd) Run(ctx context.Context, io stdio) error {
	t, l, err := evidenceOf(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	own, restsOn, done, err := c.proved(ctx, io, l, t, evidencereader.CopyFilter{Tenant: t.Tenant})
	if err != nil {
		return err
	}
	defer done()
	parts, err := own.Session(ctx, t.Tenant, c.Session)
	if err != nil {
		return likeSession(ctx, own.DB, t.Tenant, c.Session, err)
	}
	p := newPrinter(io.out)
	for _, part := range parts {
		gone, err := whyGone(ctx, own.Reasons(), part.Rows)
		if err != nil {
			return err
		}
		steps := stepsOf(part, gone)
		for i := range steps {
			steps[i].Proved = c.Proved
		}
		if c.JSON {
			err = printSteps(io, steps)
		} else {
			var kin *family
			if kin, err = familyOf(ctx, own.DB, t.Tenant, part); err == nil {
				printSession(p, part, steps, kin)
			}
		}
		if err != nil {
			return err
		}
	}
	printBasis(io, c.JSON, len(parts), restsOn)
	return nil
}

// step is one record of a session with what lies before it.
type step struct {
	Shard string      `json:"shard"`
	Seq   uint64      `json:"seq"`
	At    events.Time `json:"at"` // broker time
	Kind  string      `json:"kind"`
	// Publisher sent the event, as the broker authenticated it, in this protocol.
	Publisher string  `json:"publisher,omitempty"`
	Protocol  string  `json:"protocol,omitempty"`
	Index     uint64  `json:"session_index,omitempty"`
	Others    uint64  `json:"messages_between"` // of other sessions, since the record before
	Pause     float64 `json:"seconds_between"`
	Missing   uint64  `json:"records_missing,omitempty"` // of this session, before this one
	Problem   string  `json:"problem,omitempty"`         // why there is no record
	Expired   string  `json:"expired,omitempty"`         // why its text is gone; nothing proves its kind and time then
	Proved    bool    `json:"proved"`                    // all records of the session were shown to be here, unchanged

	Redactions []evidence.Redaction `json:"redactions,omitempty"`
	Reason     string               `json:"reason,omitempty"` // why there is no body
	Body       json.RawMessage      `json:"body,omitempty"`   // redacted

	subject string
}

// stepsOf reads the records of a session. One that is none, or is missing, is
// said to be so, and so is one that expired (gone).
func stepsOf(s evidencereader.Session, gone map[uint64]string) []step {
	steps := make([]step, 0, len(s.Rows))
	var last uint64 // session index
	for i, r := range s.Rows {
		st := step{Shard: r.Shard, Seq: r.Seq, At: events.At(r.BrokerTime), Kind: r.Kind, subject: r.Subject}
		prefix, _, _ := strings.Cut(r.Subject, ".")
		if at, err := (subject.Space{Prefix: prefix}).Parse(r.Subject); err == nil && at.Class == subject.Events {
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

func printSteps(io stdio, steps []step) error {
	for _, s := range steps {
		if err := compactJSON(io, s); err != nil {
			return err
		}
	}
	return nil
}

// sessionName reads the name of a session and gives the one under which records
// have it: subjects hold no long ones.
type sessionName struct{}

func (sessionName) Decode(ctx *kong.DecodeContext, to reflect.Value) error {
	var name string
	if err := ctx.Scan.PopValueInto("session", &name); err != nil {
		return err
	}
	to.SetString(subject.TokenValue(name))
	return nil
}

// knownSession is the error for a session that has no evidence, with names that
// look like it; nil if it has some.
func knownSession(ctx context.Context, db *storage.DB, tenant, session string) error {
	like, err := db.SessionsWithPrefix(ctx, tenant, session, 6)
	if err != nil {
		return err
	}
	for _, name := range like {
		if name == session {
			return nil
		}
	}
	for n := len([]rune(session)) / 2; len(like) == 0 && n >= 2; n /= 2 {
		if like, err = db.SessionsWithPrefix(ctx, tenant, string([]rune(session)[:n]), 6); err != nil {
			return err
		}
	}
	hint := "evidence is there a moment after the log; countersign doctor says how far it is behind"
	if len(like) > 0 {
		hint = "did you mean " + strings.Join(quotedAll(like), ", ") + "?"
	}
	return fmt.Errorf("%w: tenant %q, session %.100q (%s)", evidencereader.ErrNoSession, tenant, session, hint)
}

// likeSession is an error of reading a session, with names that look like it if it
// has no evidence.
func likeSession(ctx context.Context, db *storage.DB, tenant, session string, err error) error {
	if errors.Is(err, evidencereader.ErrNoSession) {
		return cmp.Or(knownSession(ctx, db, tenant, session), err)
	}
	return err
}

func quotedAll(names []string) []string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = fmt.Sprintf("%.80q", n)
	}
	return list
}

// pauseShown is how long nothing must have happened for it to be said.
const pauseShown = 10 * time.Second
