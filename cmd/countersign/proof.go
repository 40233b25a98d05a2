package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/ledger"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/evidence"
)

// Evidence is proved: every record is hashed into a signed tree. The tables that
// records are looked up in are not, and neither are the columns beside a record's
// text. So every answer says what it rests on: on a verification of the whole log
// that was made for it, or on the index.

// proveFlags are those of commands that answer from the index unless they are told
// to prove the answer first.
type proveFlags struct {
	Proved bool   `help:"Verify all of the evidence and of the indexes first, and fail if they do not hold. Without it the answer comes from the index, and says so."`
	Key    string `help:"With --proved: the public checkpoint key, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
}

// scanFlags are those of commands that prove what they give unless they are told
// not to.
type scanFlags struct {
	SkipScan bool `help:"Take the records from the index, without reading all of the log to prove that none is missing or another's. What comes of it is marked as not proved."`
}

// What answers rest on, for people.
const (
	restsOnProof = "rests on: a verification of all records, made for this answer: nothing is missing, changed or another's"
	restsOnIndex = "rests on: the index, which is not proved: records may be missing or another's"
	proveIt      = "; --proved verifies first"
	provesSome   = "rests on: the records shown, each in the signed tree; NOT proved: that they are all"
)

// prover verifies the evidence that an answer is to rest on.
type prover struct {
	l       ledger.Ledger
	options ledger.VerifyOptions
}

// errOneTenant says that the database does not show all that a proof takes.
var errOneTenant = errors.New("this database shows one tenant's records: that none is missing can be proved by a user who may read all of them")

// newProver reads the key to verify against, and the published checkpoints if there
// is a server to ask. errOneTenant says that nothing can be proved to be complete.
func newProver(ctx context.Context, io stdio, l ledger.Ledger, t *target.Target, key string) (*prover, error) {
	public, err := checkpointKey(key, t)
	if err != nil {
		return nil, err
	}
	keys, err := verifiers(public)
	if err != nil {
		return nil, err
	}
	switch one, err := l.DB.OneTenant(ctx); {
	case err != nil:
		return nil, err
	case one:
		return nil, errOneTenant
	}
	p := &prover{l: l, options: ledger.VerifyOptions{Keys: keys, Progress: countProgress(io, "proving")}}
	log, err := connectLog(ctx, t)
	switch {
	case errors.Is(err, target.ErrNoServer):
		fmt.Fprintln(io.err, "note: no NATS server named, so records after the newest stored checkpoint could be missing")
	case err != nil:
		return nil, err
	default:
		defer log.close()
		p.options.Published, p.options.Cosigners = log.published, log.cosigners()
	}
	return p, nil
}

// session picks a session out of all records.
func (p *prover) session(ctx context.Context, tenant, session string, derived bool) ([]ledger.Session, error) {
	o := p.options
	o.Derived = derived
	defer fewerCollections()()
	picked, whole, err := p.l.PickSession(ctx, tenant, session, o)
	if err != nil && !errors.Is(err, ledger.ErrNoSession) {
		return nil, err
	}
	if wrong := unproved(whole); wrong != nil {
		return nil, wrong
	}
	var parts []ledger.Session
	for _, s := range picked {
		parts = append(parts, s.Session)
	}
	return parts, err
}

// shards verifies one shard, or all with an empty name, and the indexes, so that
// what is looked up in them afterwards is proved.
func (p *prover) shards(ctx context.Context, shard string) error {
	list := []string{shard}
	if shard == "" {
		var err error
		if list, err = p.l.Shards(ctx); err != nil {
			return err
		}
	}
	o := p.options
	o.Derived = true
	defer fewerCollections()()
	var whole []evidence.Report
	for _, s := range list {
		rep, err := p.l.Verify(ctx, s, o)
		if err != nil {
			return err
		}
		whole = append(whole, rep)
	}
	stray, err := p.l.StrayDerived(ctx)
	if err != nil {
		return err
	}
	whole[len(whole)-1].Add(stray...)
	return unproved(whole)
}

// unproved is the error for an answer that the records or the indexes do not prove.
func unproved(whole []evidence.Report) error {
	if err := ledger.Unproved(whole); err != nil {
		return err
	}
	for _, rep := range whole {
		for _, p := range rep.Problems {
			if p.Code == evidence.CodeDerived {
				return fmt.Errorf("%w: shard %s: %s; run countersign verify", ledger.ErrUnproved, rep.Shard, p)
			}
		}
		if rep.ByCode[evidence.CodeDerived] > 0 {
			return fmt.Errorf("%w: shard %s: the indexes are not what the records give; run countersign verify", ledger.ErrUnproved, rep.Shard)
		}
	}
	return nil
}

// prove verifies everything if that was asked for. It gives what the answer rests
// on, for people.
func (f proveFlags) prove(ctx context.Context, io stdio, l ledger.Ledger, t *target.Target) (restsOn string, err error) {
	if !f.Proved {
		return restsOnIndex + proveIt, nil
	}
	p, err := newProver(ctx, io, l, t, f.Key)
	if err == nil {
		err = p.shards(ctx, "")
	}
	return restsOnProof, err
}

// session gives a session's records: proved to be all, if that was asked for.
func (f proveFlags) session(ctx context.Context, io stdio, l ledger.Ledger, t *target.Target, session string) (parts []ledger.Session, restsOn string, err error) {
	if !f.Proved {
		parts, err = l.Session(ctx, t.Tenant, session)
		return parts, restsOnIndex + proveIt, err
	}
	p, err := newProver(ctx, io, l, t, f.Key)
	if err != nil {
		return nil, "", err
	}
	parts, err = p.session(ctx, t.Tenant, session, true)
	return parts, restsOnProof, err
}

// session gives a session's records, proved to be all unless the scan was left out
// or the database shows one tenant only.
func (f scanFlags) session(ctx context.Context, io stdio, l ledger.Ledger, t *target.Target, key, session string) (parts []ledger.Session, restsOn string, err error) {
	if !f.SkipScan {
		p, err := newProver(ctx, io, l, t, key)
		if err == nil {
			parts, err = p.session(ctx, t.Tenant, session, false)
			return parts, restsOnProof, err
		}
		if !errors.Is(err, errOneTenant) {
			return nil, "", orSkip(err)
		}
	}
	parts, err = l.Session(ctx, t.Tenant, session)
	return parts, provesSome, err
}

// shard proves that what is looked up in one shard, or in all with an empty name, is
// all there is, in the same cases.
func (f scanFlags) shard(ctx context.Context, io stdio, l ledger.Ledger, t *target.Target, key, shard string) (restsOn string, err error) {
	if f.SkipScan {
		return provesSome, nil
	}
	p, err := newProver(ctx, io, l, t, key)
	switch {
	case errors.Is(err, errOneTenant):
		return provesSome, nil
	case err != nil:
		return "", orSkip(err)
	}
	return restsOnProof, p.shards(ctx, shard)
}

// orSkip says how to go on without a key.
func orSkip(err error) error {
	if usage := (usageError{}); errors.As(err, &usage) {
		return usageError{fmt.Errorf("%w (or --skip-scan, and what comes of it is not proved)", usage.error)}
	}
	return err
}

// printBasis says below an answer for people what it rests on; a list for programs
// says it in every line, so it is said beside one that has no line.
func printBasis(io stdio, json bool, lines int, restsOn string) {
	switch {
	case !json:
		p := newPrinter(io.out)
		p.printf("%s\n", p.paint(faint, restsOn))
	case lines == 0:
		fmt.Fprintf(io.err, "note: %s\n", restsOn)
	}
}
