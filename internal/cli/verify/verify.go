// Package verify has the commands verify (all evidence, a bundle, or a proof) and witness, an
// independent party that checks and signs a log's checkpoints. Each command is a type with a Run
// method, which the command line's parser (kong) calls. The checks themselves are in packages
// evidence and evidencereader.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// Cmd is `countersign verify`.
type Cmd struct {
	target.Flags
	proof.ScanFlags
	Session      string   `help:"Only this session: its chain, and the proof that its records are in the signed tree and are all." type:"session"`
	Since        string   `help:"Only what the broker stored at or after this time, proved as a part of the signed tree: a duration back from now such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Until        string   `help:"Only what the broker stored before this time, given in the same way." placeholder:"TIME"`
	AtLeast      int64    `help:"Fail if there are fewer records: a log cut off at its end still fits together." placeholder:"N"`
	From         []string `name:"from-checkpoint" help:"A checkpoint that you kept, or a witness signed: today's log must extend it. May be repeated." placeholder:"FILE" sep:"none"`
	Witness      []string `help:"Public key of a witness, or a file that holds it, that must have signed a checkpoint of the log, of a bundle its own. May be repeated." placeholder:"KEY" sep:"none"`
	Quorum       int      `help:"How many of the witnesses must have signed one (default: all)." placeholder:"N"`
	Unwitnessed  *int64   `help:"How many records the log may have behind the newest checkpoint that the witnesses signed (default: any number)." placeholder:"N"`
	Receipt      []string `help:"A receipt, compact, one a line: its decision must be in the log and say the same. May be repeated." placeholder:"FILE" sep:"none"`
	Bundle       string   `help:"An export bundle instead of a running system; needs no server." placeholder:"FILE"`
	Proof        string   `help:"A proof of one record instead; needs no server." placeholder:"FILE"`
	Retired      []string `help:"With --bundle: the retirement of a key (retired-*.json of the key directory). May be repeated." placeholder:"FILE" sep:"none"`
	StatementKey string   `help:"With --bundle: the public key that must have signed its statement, or a file that holds it." placeholder:"FILE"`
	Prove        uint64   `help:"Prove one record instead: writes a proof that verifies anywhere." placeholder:"SEQ"`
	Out          string   `help:"With --prove: the file to write." placeholder:"FILE"`
	Key          string   `help:"The public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	Shard        string   `help:"Only this incarnation of the log, e.g. GOV@20261120T090000.000000000Z (default: all)."`
	CompareLog   int      `help:"Compare this many of the newest decisions and approvals with the log itself, and all those whose signature only the log shows; --compare-log=-1: all." default:"1000" placeholder:"N"`
	Workers      int      `help:"How many rows are looked at side by side (default: one for each processor)." placeholder:"N"`
	JSON         bool     `name:"json" help:"Print the report as JSON."`
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) error {
	a, err := c.against()
	if err != nil {
		return err
	}
	switch {
	case c.Bundle != "":
		return c.bundle(io, a)
	case c.Proof != "":
		return c.proof(io, a)
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	if err := a.key(c.Key, t); err != nil {
		return err
	}
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	if c.Prove > 0 {
		return c.prove(ctx, io, l, a)
	}
	log, err := system.ConnectEvidenceLog(ctx, t)
	if err != nil && !errors.Is(err, target.ErrNoServer) {
		return err
	}
	defer log.Close()
	var reports []verify.Report
	if c.Session != "" {
		reports, err = c.session(ctx, io, l, t.Tenant, log, a)
	} else {
		reports, err = c.shards(ctx, io, l, log, a)
	}
	if err != nil {
		return err
	}
	c.limitUnwitnessed(reports)
	return c.report(io, reports)
}

// limitUnwitnessed adds a finding to reports with more records behind the newest witnessed checkpoint
// than --unwitnessed allows. An old signature is a good one, and says nothing of what came later.
func (c *Cmd) limitUnwitnessed(reports []verify.Report) {
	for i := range reports {
		r := &reports[i]
		if behind := r.Size - r.Witnessed; c.Unwitnessed != nil && r.Witnessed > 0 && behind > *c.Unwitnessed {
			r.AddFindings(verify.Finding{Code: verify.CodeWitnesses, Seq: uint64(r.Witnessed),
				Detail: fmt.Sprintf("the witnesses signed up to this size, and %d records come behind it; at most %d may", behind, *c.Unwitnessed)})
		}
	}
}

// session verifies one session: its records are picked from all stored ones, or read from the
// index if that is impossible or not wanted.
func (c *Cmd) session(ctx context.Context, io ui.Stdio, l evidencereader.Reader, tenant string, log *system.EvidenceLog, a against) (reports []verify.Report, err error) {
	one, err := l.DB.IsTenantView(ctx)
	if err != nil {
		return nil, err
	}
	var picked []evidencereader.ProvedSession
	var whole []verify.Report
	if scan := !one && !c.SkipScan; scan {
		picked, whole, err = c.pickSession(ctx, io, l, tenant, log, a)
	} else {
		var parts []evidencereader.Session
		parts, err = l.Session(ctx, tenant, c.Session)
		for _, s := range parts {
			if c.Shard != "" && s.Shard != c.Shard {
				continue
			}
			picked = append(picked, evidencereader.ProvedSession{Session: s})
		}
	}
	if err == nil && len(picked) == 0 {
		err = fmt.Errorf("%w in shard %s", evidencereader.ErrNoSession, ui.Clean(c.Shard, 80))
	}
	if err != nil {
		return nil, err
	}
	for i, s := range picked {
		rep, err := c.sessionPart(ctx, l, s.Session, i == len(picked)-1, log, a)
		if err != nil {
			return nil, err
		}
		rep.RestsOn = proof.OnRecordsShown.Text
		if whole != nil {
			s.AddFindings(&rep)
			rep.CheckCompleteness(s.Whole)
			rep.RestsOn = c.sessionBasis(s.Whole, log)
		}
		reports = append(reports, rep)
	}
	for _, rep := range whole { // a damaged shard without the session may hide records of it
		if _, hides := rep.FirstIncompleteness(); hides && !slices.ContainsFunc(picked, func(s evidencereader.ProvedSession) bool { return s.Shard == rep.Shard }) {
			reports[len(reports)-1].CheckCompleteness(rep)
		}
	}
	return reports, nil
}

// pickSession picks the session from all stored records.
func (c *Cmd) pickSession(ctx context.Context, io ui.Stdio, l evidencereader.Reader, tenant string, log *system.EvidenceLog, a against) ([]evidencereader.ProvedSession, []verify.Report, error) {
	o := evidencereader.VerifyOptions{Keys: a.keys, Published: slices.Clone(a.kept), Progress: ui.CountProgress(io, "verifying"), Workers: c.Workers}
	if log != nil {
		o.Published = append(o.Published, log.Published...)
		o.Log, o.LogOf = log.Message, log.Shard
	}
	defer proof.FewerCollections()()
	picked, whole, err := l.ReadProvedSession(ctx, tenant, c.Session, c.Shard, o)
	if err != nil && !errors.Is(err, evidencereader.ErrNoSession) {
		return nil, nil, err
	}
	for i := range whole {
		rep := &whole[i]
		if !log.IsOf(rep.Shard) {
			continue
		}
		if failed := log.AddMissingEnd(ctx, time.Time{}, rep); failed != nil {
			return nil, nil, failed
		}
		if err != nil && rep.NotInEvidence > 0 {
			err = fmt.Errorf("%w; the log has %d more messages, which are NOT in the evidence", err, rep.NotInEvidence)
		}
		for k := range picked {
			if picked[k].Shard == rep.Shard {
				picked[k].Whole = *rep
			}
		}
	}
	if err != nil {
		err = cmp.Or(evidencereader.CheckProved(whole), err)
	}
	return picked, whole, err
}

// sessionBasis describes what the verification of a session rests on.
func (c *Cmd) sessionBasis(whole verify.Report, log *system.EvidenceLog) string {
	text := fmt.Sprintf("rests on: all %d signed records of the shard, read and hashed into the signed tree: no other one is of this session", whole.Signed)
	if whole.AfterCheckpoint > 0 {
		text += fmt.Sprintf("; %d records of the shard are not signed yet and not in this report: ask again in a moment", whole.AfterCheckpoint)
	}
	if whole.NotInEvidence > 0 {
		text += fmt.Sprintf("; the log has %d more messages, which are NOT in the evidence", whole.NotInEvidence)
	}
	if !log.IsOf(whole.Shard) {
		text += "; NOT compared with the log: records after the newest stored checkpoint could be missing"
	}
	return text
}

// sessionPart verifies the records of a session in one shard. The additional checks apply to the
// last of the session's shards.
func (c *Cmd) sessionPart(ctx context.Context, l evidencereader.Reader, s evidencereader.Session, last bool, log *system.EvidenceLog, a against) (rep verify.Report, err error) {
	// The report lists records that cannot be proved.
	if err := l.AddProofs(ctx, &s, a.keys); err != nil && !evidencereader.IsDamaged(err) {
		return rep, err
	}
	in := verify.SessionInput{
		Shard: s.Shard, Tenant: s.Tenant, Session: s.Session, Space: l.Space, Keys: a.keys, Witnesses: a.witnesses, Quorum: c.Quorum, Cosigners: log.Cosigners(),
		Checkpoint: verify.Published{Source: "table checkpoints", Text: s.Checkpoint}, Rows: s.Rows, Proofs: s.Proofs, ReceiptKeys: s.Keys, Retired: s.Retired, Expiries: s.Expiries,
	}
	if last {
		in.MinRecords, in.Receipts = c.AtLeast, a.receipts
	}
	kept, err := cosignedOf(ctx, l, s, a, log.Cosigners())
	if err != nil {
		return rep, err
	}
	if in.Older, err = extensions(ctx, l, s, kept); err != nil {
		return rep, err
	}
	var failed error
	if log.IsOf(s.Shard) && c.CompareLog != 0 {
		in.Compare = func(r evidence.Row, x *verify.Examined) {
			m, err := log.Message(ctx, r.Seq)
			if m != nil {
				x.CompareLog(r, *m)
			}
			failed = errors.Join(failed, err)
		}
	}
	rep = verify.Session(in)
	return rep, failed
}

// cosignedOf adds to the kept checkpoints the newest stored one of a session's shard that a
// witness signed: one that must have signed, or that the system names.
func cosignedOf(ctx context.Context, l evidencereader.Reader, s evidencereader.Session, a against, cosigners []note.Verifier) ([]verify.Published, error) {
	text, err := l.CosignedCheckpoint(ctx, s.Shard, 0, a.keys, slices.Concat(a.witnesses, cosigners))
	if err != nil || text == "" {
		return a.kept, err
	}
	return append(slices.Clone(a.kept), verify.Published{Source: "table checkpoints", Text: text}), nil
}

// extensions proves that the newest checkpoint extends the kept ones of its shard. One that
// cannot be read counts for every shard.
func extensions(ctx context.Context, l evidencereader.Reader, s evidencereader.Session, kept []verify.Published) (list []verify.Extension, err error) {
	newest, err := tree.PeekCheckpoint(s.Checkpoint)
	if err != nil {
		return nil, nil // verification reports it
	}
	for _, p := range kept {
		if c, err := tree.PeekCheckpoint(p.Text); err == nil && c.Shard != s.Shard {
			continue
		}
		e, err := l.Extension(ctx, s.Shard, p, newest.Size)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func (c *Cmd) shards(ctx context.Context, io ui.Stdio, l evidencereader.Reader, log *system.EvidenceLog, a against) (reports []verify.Report, err error) {
	switch one, err := l.DB.IsTenantView(ctx); {
	case err != nil:
		return nil, err
	case one:
		return nil, ui.UsageError{Err: errors.New("this database shows one tenant's records, and a shard has every tenant's: verify a --session of it, or ask a user that may read all of it")}
	}
	published, named := slices.Clone(a.kept), map[string]bool{}
	var history iter.Seq2[verify.Published, error]
	if log == nil {
		fmt.Fprintln(io.Err, "note: no NATS server named, so neither the published checkpoints nor the log itself are compared")
	} else {
		published = append(published, log.Published...)
		history = l.NoteShards(log.Checkpoints(ctx), a.keys, named)
	}
	shards, err := l.ShardsNamed(ctx, c.Shard, published)
	if err != nil {
		return nil, err
	}
	o := evidencereader.VerifyOptions{Keys: a.keys, Published: published, Witnesses: a.witnesses, Quorum: c.Quorum, Cosigners: log.Cosigners(), Progress: ui.CountProgress(io, "verifying"),
		Workers: c.Workers, Since: a.since, Until: a.until, Compare: c.CompareLog, Derived: !c.SkipScan, History: history}
	defer proof.FewerCollections()()
	var empty []error
	add := func(shard string, o evidencereader.VerifyOptions) error {
		rep, err := c.shard(ctx, l, log, a, shard, o)
		rep.RestsOn += notCompared(log, shard, named)
		if errors.Is(err, evidencereader.ErrEmptyRange) {
			empty = append(empty, err)
			return nil
		}
		reports = append(reports, rep)
		return err
	}
	for i, shard := range shards {
		if i == len(shards)-1 { // the current incarnation
			o.MinRecords, o.Receipts = c.AtLeast, a.receipts
		}
		if err := add(shard, o); err != nil {
			return nil, err
		}
	}
	o.MinRecords, o.Receipts = 0, nil
	for _, shard := range slices.Sorted(maps.Keys(named)) {
		if c.Shard == "" && !slices.Contains(shards, shard) { // its rows are gone
			if err := add(shard, o); err != nil {
				return nil, err
			}
		}
	}
	if len(reports) == 0 && len(empty) == 1 {
		return nil, empty[0]
	}
	for _, err := range empty {
		fmt.Fprintf(io.Err, "note: %v\n", err)
	}
	if len(reports) == 0 {
		return nil, evidencereader.ErrEmptyRange
	}
	return reports, wholeDatabase(ctx, l, &reports[len(reports)-1])
}

// shard verifies one incarnation of the log.
func (c *Cmd) shard(ctx context.Context, l evidencereader.Reader, log *system.EvidenceLog, a against, shard string, o evidencereader.VerifyOptions) (rep verify.Report, err error) {
	if log.IsOf(shard) {
		o.Log = log.Message
	}
	if rep, err = l.Verify(ctx, shard, o); err != nil {
		return rep, err
	}
	if log.IsOf(shard) {
		if err = log.AddMissingEnd(ctx, a.until, &rep); err == nil {
			err = log.AddGaps(ctx, c.Prefix, a.keys, &rep)
		}
	}
	return rep, err
}

// notCompared says what a shard was not compared with: the NATS server may have another incarnation of
// the log, and no checkpoint of this one. published has the shards with a published checkpoint.
func notCompared(log *system.EvidenceLog, shard string, published map[string]bool) string {
	switch {
	case log.IsOf(shard):
		return ""
	case published[shard]:
		return "; NOT compared with the log, which is gone from the NATS server: records after the newest published checkpoint could be missing"
	}
	return "; NOT compared with the published checkpoints and the log: deleted checkpoints, and records after the newest one, could be missing"
}

// wholeDatabase adds to the last report the findings about the database as a whole.
func wholeDatabase(ctx context.Context, l evidencereader.Reader, last *verify.Report) error {
	stray, err := l.StrayDerived(ctx)
	if err != nil {
		return err
	}
	schema, policies, err := l.SchemaFindings(ctx)
	last.AddFindings(stray...)
	last.AddFindings(schema...)
	if !policies {
		last.RestsOn += "; NOT looked for: row policies, which this user of the database may not list"
	}
	return err
}
