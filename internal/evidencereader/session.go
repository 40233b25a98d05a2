package evidencereader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// sessionPicker picks the rows of one session while a shard is verified: rows with a text, and
// rows with columns, that name the session. It also picks the expiry records.
type sessionPicker struct {
	key      events.SessionID
	expiry   string // subject of the expiry records
	rows     []evidence.Row
	expiries []evidence.Row
}

func (p *sessionPicker) ofSession(r *evidence.Row, x *verify.Examined) bool {
	return x.Key() == p.key || (events.SessionID{Tenant: r.Tenant, Session: r.Session}) == p.key
}

func (p *sessionPicker) wantsRow(r *evidence.Row, x *verify.Examined) bool {
	return r.Subject == p.expiry || p.ofSession(r, x)
}

func (p *sessionPicker) addRow(_ context.Context, r *evidence.Row, x *verify.Examined) error {
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

// ShardsNamed lists the incarnations of the log that have evidence or that a published checkpoint
// names, oldest first; only the named one, unless it is "". The checkpoints' signatures are not checked: a
// shard that a forged one names is verified, and fails.
func (rd Reader) ShardsNamed(ctx context.Context, only string, published []verify.Published) ([]string, error) {
	if only != "" {
		return []string{only}, nil
	}
	shards, err := rd.Shards(ctx)
	if err != nil && !errors.Is(err, ErrNoEvidence) {
		return nil, err
	}
	for _, p := range published {
		if c, err := tree.PeekCheckpoint(p.Text); err == nil && !slices.Contains(shards, c.Shard) {
			shards = append(shards, c.Shard)
		}
	}
	slices.Sort(shards)
	if len(shards) > 0 {
		err = nil
	}
	return shards, err
}

// ProvedSession is a session's evidence in one shard, with the verification of the whole shard
// from which its rows were picked. With an empty Whole nothing is proved: the rows are from the index.
type ProvedSession struct {
	Session
	Whole verify.Report
	Why   *ExpiryReasons // why records have no text, from the expiry records that were read with it
}

// AddFindings adds to a session's report what the verification of its shard found about its records and the
// session's own did not: keys and their retirements are read a second time for it, and the database may
// answer otherwise then. If the shard has more findings than are listed, that is a finding. Without a whole
// shard CheckCompleteness says so.
func (s ProvedSession) AddFindings(rep *verify.Report) {
	if _, hides := s.Whole.FirstIncompleteness(); hides {
		return
	}
	rows := map[uint64]bool{}
	for _, r := range s.Rows {
		rows[r.Seq] = true
	}
	for _, f := range s.Whole.Findings {
		if rows[f.Seq] && !slices.ContainsFunc(rep.Findings, func(have verify.Finding) bool { return have.Code == f.Code && have.Seq == f.Seq }) {
			rep.AddFindings(f)
		}
	}
	if n := s.Whole.Total - len(s.Whole.Findings); n > 0 {
		rep.AddFindings(verify.Finding{Code: verify.CodeIncomplete,
			Detail: fmt.Sprintf("the shard has %d problems, and which records %d of them are about is not known: some may be of this session", s.Whole.Total, n)})
	}
}

// sessionFindings is how many findings of a shard are kept to pick a session's from.
const sessionFindings = 100_000

// ReadProvedSession reads all evidence of the log and picks a session's records by their texts:
// no index or column decides which records belong to it, and the newest checkpoint covers each of
// them. There is one part for every shard with such records; whole has the verification of every
// shard; of shard alone, unless it is "". o must have the keys. ErrNoSession means that no shard has a signed record of the
// session; whole then shows whether that is proved.
func (rd Reader) ReadProvedSession(ctx context.Context, tenant, session, shard string, o VerifyOptions) (parts []ProvedSession, whole []verify.Report, err error) {
	shards, err := rd.ShardsNamed(ctx, shard, o.Published)
	if err != nil {
		return nil, nil, err
	}
	o.maxFindings = cmp.Or(o.maxFindings, sessionFindings)
	for _, shard := range shards {
		p := &sessionPicker{key: events.SessionID{Tenant: tenant, Session: session}, expiry: rd.expirySubject()}
		o.sink = p
		rep, err := rd.Verify(ctx, shard, o)
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

// ErrUnproved reports that an answer cannot be proved.
var ErrUnproved = errors.New("not proved")

// CheckProved returns ErrUnproved if a shard has a finding that makes the completeness of picked
// records unproved.
func CheckProved(whole []verify.Report) error {
	for _, rep := range whole {
		if p, hides := rep.FirstIncompleteness(); hides {
			return fmt.Errorf("%w: shard %s: %s; run countersign verify", ErrUnproved, rep.Shard, p)
		}
	}
	return nil
}
