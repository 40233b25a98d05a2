package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/evidence"
)

// picker collects the rows of one session while a shard is verified: those whose
// text says so, and those whose columns do. Its methods are for several goroutines;
// a nil picker collects nothing.
type picker struct {
	key  evidence.SessionKey
	mu   sync.Mutex
	rows []evidence.Row
}

func (p *picker) row(r evidence.Row, x *evidence.Examined) {
	if p == nil || x.Key() != p.key && (evidence.SessionKey{Tenant: r.Tenant, Session: r.Session}) != p.key {
		return
	}
	r.Subject, r.BodyDigest, r.Record = strings.Clone(r.Subject), strings.Clone(r.BodyDigest), strings.Clone(r.Record)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows = append(p.rows, r)
}

// ProvedSession is a session's evidence in one shard, and the verification of the
// whole shard that its rows were picked out of.
type ProvedSession struct {
	Session
	Whole evidence.Report
}

// PickSession reads all of the log's evidence and picks a session's records out of
// it by their texts: no index and no column decides what is among them. There is a
// part for every shard that has some; whole has the verification of each shard, also
// of those without a part. o says what to verify against; it must have the keys.
// ErrNoSession says that no shard has a record of the session, and whole then tells
// whether that is proved.
func (l Ledger) PickSession(ctx context.Context, tenant, session string, o VerifyOptions) (parts []ProvedSession, whole []evidence.Report, err error) {
	shards, err := l.Shards(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, shard := range shards {
		o.pick = &picker{key: evidence.SessionKey{Tenant: tenant, Session: session}}
		rep, err := l.Verify(ctx, shard, o)
		if err != nil {
			return nil, nil, err
		}
		whole = append(whole, rep)
		if len(o.pick.rows) == 0 {
			continue
		}
		slices.SortFunc(o.pick.rows, func(a, b evidence.Row) int { return cmp.Compare(a.Seq, b.Seq) })
		parts = append(parts, ProvedSession{Session{Shard: shard, Tenant: tenant, Session: session, Rows: o.pick.rows}, rep})
	}
	if len(parts) == 0 {
		return nil, whole, fmt.Errorf("%w: tenant %q, session %q", ErrNoSession, tenant, session)
	}
	return parts, whole, nil
}

// ErrUnproved says that an answer cannot be proved.
var ErrUnproved = errors.New("not proved")

// Unproved is ErrUnproved if something was found in a shard after which nothing that
// is picked out of it is proved to be all there is.
func Unproved(whole []evidence.Report) error {
	for _, rep := range whole {
		if p, hides := rep.Hides(); hides {
			return fmt.Errorf("%w: shard %s: %s; run countersign verify", ErrUnproved, rep.Shard, p)
		}
	}
	return nil
}
