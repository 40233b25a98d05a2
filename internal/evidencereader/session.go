package evidencereader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/evidence"
)

// sessionPicker takes the rows of one session while a shard is verified: those whose text
// says so, and those whose columns do. Beside them it takes the expiry records.
type sessionPicker struct {
	key      evidence.SessionID
	expiry   string // subject of the expiry records
	rows     []evidence.Row
	expiries []evidence.Row
}

func (p *sessionPicker) ofSession(r *evidence.Row, x *evidence.Examined) bool {
	return x.Key() == p.key || (evidence.SessionID{Tenant: r.Tenant, Session: r.Session}) == p.key
}

func (p *sessionPicker) wantsRow(r *evidence.Row, x *evidence.Examined) bool {
	return r.Subject == p.expiry || p.ofSession(r, x)
}

func (p *sessionPicker) addRow(_ context.Context, r *evidence.Row, x *evidence.Examined) error {
	if r.Expired() {
		r.Expiry = x.Expiry()
	}
	if p.ofSession(r, x) {
		p.rows = append(p.rows, *r)
	} else {
		p.expiries = append(p.expiries, *r)
	}
	return nil
}

// shardsToProve lists the incarnations of the log: those that there is evidence of,
// and those that a published checkpoint speaks of.
func (l Reader) shardsToProve(ctx context.Context, o VerifyOptions) ([]string, error) {
	shards, err := l.Shards(ctx)
	if err != nil && !errors.Is(err, ErrNoEvidence) {
		return nil, err
	}
	for _, p := range o.Published {
		if c, err := evidence.PeekCheckpoint(p.Text); err == nil && !slices.Contains(shards, c.Shard) {
			shards = append(shards, c.Shard)
		}
	}
	slices.Sort(shards)
	if len(shards) > 0 {
		err = nil
	}
	return shards, err
}

// ProvedSession is a session's evidence in one shard, and the verification of the
// whole shard that its rows were picked out of.
type ProvedSession struct {
	Session
	Whole evidence.Report
	Why   *ExpiryReasons // of its records without a text, by the expiry records that were read with it
}

// PickSession reads all of the log's evidence and picks a session's records out of
// it by their texts: no index and no column decides what is among them, and each is
// covered by the newest checkpoint. There is a part for every shard that has some;
// whole has the verification of each shard, also of those without a part. o says
// what to verify against; it must have the keys. ErrNoSession says that no shard has
// a signed record of the session, and whole then tells whether that is proved.
func (l Reader) PickSession(ctx context.Context, tenant, session string, o VerifyOptions) (parts []ProvedSession, whole []evidence.Report, err error) {
	shards, err := l.shardsToProve(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	for _, shard := range shards {
		p := &sessionPicker{key: evidence.SessionID{Tenant: tenant, Session: session}, expiry: l.expirySubject()}
		o.sink = p
		rep, err := l.Verify(ctx, shard, o)
		if err != nil {
			return nil, nil, err
		}
		whole = append(whole, rep)
		if len(p.rows) > 0 {
			s := Session{Shard: shard, Tenant: tenant, Session: session, Rows: p.rows}
			parts = append(parts, ProvedSession{s, rep, reasonsIn(p.expiries)})
		}
	}
	if len(parts) == 0 {
		return nil, whole, fmt.Errorf("%w: tenant %q, session %q", ErrNoSession, tenant, session)
	}
	return parts, whole, nil
}

// ErrUnproved says that an answer cannot be proved.
var ErrUnproved = errors.New("not proved")

// CheckProved is ErrUnproved if something was found in a shard after which nothing that
// is picked out of it is proved to be all there is.
func CheckProved(whole []evidence.Report) error {
	for _, rep := range whole {
		if p, hides := rep.FirstIncompleteness(); hides {
			return fmt.Errorf("%w: shard %s: %s; run countersign verify", ErrUnproved, rep.Shard, p)
		}
	}
	return nil
}
