package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// Evidence is proved: every record is hashed into a signed tree. The tables that
// records are looked up in are not, and neither are the columns beside a record's
// text. So every answer says what it rests on: on a verification of the whole log
// that was made for it, or on the index. The server that holds the evidence may
// answer two queries in two ways, so a proved answer is made of the bytes that the
// verification read, and of nothing that is asked of the server afterwards.

// proveFlags are those of commands that answer from the index unless they are told
// to prove the answer first.
type proveFlags struct {
	Proved bool `help:"Verify all of the evidence first, fail if it does not hold, and answer from the records that were proved. Without it the answer comes from the index, and says so."`
	engineFlags
	Key string `help:"With --proved: the public checkpoint key, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
}

// engineFlags are those of commands that answer with an engine of their own.
type engineFlags struct {
	CacheDir string `help:"Where the engine is kept that makes a proved answer (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
}

// scanFlags are those of commands that prove what they give unless they are told
// not to.
type scanFlags struct {
	SkipScan bool `help:"Take the records from the index, without reading all of the log to prove that none is missing or another's. What comes of it is marked as not proved."`
}

// basis is what an answer rests on, for people.
type basis struct {
	text   string
	proved bool
	// note is what a program that reads a list of records must be told beside it.
	note string
}

// What answers rest on that no verification was made for.
var (
	restsOnIndex = basis{text: "rests on: the index, which is not proved: records may be missing or another's; --proved verifies first"}
	provesSome   = basis{text: "rests on: the records shown, each in the signed tree; NOT proved: that they are all"}
)

// prover verifies the evidence that an answer is to rest on.
type prover struct {
	l       evidencereader.Reader
	options evidencereader.VerifyOptions
	asked   bool   // the published checkpoints are among the options
	shard   string // the incarnation of the log that exists now, if there is a server to ask
	last    uint64 // how far it goes
}

// errOneTenant says that the database does not show all that a proof takes.
var errOneTenant = errors.New("this database shows one tenant's records: that none is missing can be proved by a user who may read all of them")

// newProver reads the key to verify against, and the published checkpoints if there
// is a server to ask. errOneTenant says that nothing can be proved to be complete.
func newProver(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target, key string) (*prover, error) {
	public, err := checkpointKey(key, t)
	if err != nil {
		return nil, err
	}
	keys, err := verifiers(public)
	if err != nil {
		return nil, err
	}
	switch one, err := l.DB.IsTenantView(ctx); {
	case err != nil:
		return nil, err
	case one:
		return nil, errOneTenant
	}
	p := &prover{l: l, options: evidencereader.VerifyOptions{Keys: keys, Progress: countProgress(io, "proving")}}
	log, err := connectLog(ctx, t)
	switch {
	case errors.Is(err, target.ErrNoServer):
	case err != nil:
		return nil, err
	default:
		defer log.close()
		p.asked, p.shard, p.last = true, log.shard, log.last
		p.options.Published, p.options.Cosigners = log.published, log.cosigners()
	}
	return p, nil
}

// session picks a session out of all records.
func (p *prover) session(ctx context.Context, tenant, session string) ([]evidencereader.ProvedSession, basis, error) {
	defer fewerCollections()()
	picked, whole, err := p.l.PickSession(ctx, tenant, session, p.options)
	if err != nil && !errors.Is(err, evidencereader.ErrNoSession) {
		return nil, basis{}, err
	}
	if wrong := evidencereader.CheckProved(whole); wrong != nil {
		return nil, basis{}, wrong
	}
	b := p.basis(whole)
	if err != nil && b.note != "" {
		err = fmt.Errorf("%w (%s)", err, b.note)
	}
	return picked, b, err
}

// copy verifies one shard, or all with an empty name, and gives a ledger of an
// engine of the command's own that holds what was wanted of it, and nothing that was
// not proved. The caller calls done.
func (p *prover) copy(ctx context.Context, cacheDir, shard string, want evidencereader.CopyFilter) (own evidencereader.Reader, b basis, done func(), err error) {
	db, done, err := ownEngine(ctx, cacheDir)
	if err != nil {
		return own, b, nil, err
	}
	defer fewerCollections()()
	whole, err := p.l.CopyProved(ctx, db, want, shard, p.options)
	if err != nil {
		done()
		return own, b, nil, err
	}
	return evidencereader.Reader{DB: db, Tree: p.l.DB, Stream: p.l.Stream, Space: p.l.Space}, p.basis(whole), done, nil
}

// ownEngine starts an engine with empty tables in a directory of its own. done stops
// it and removes the directory.
func ownEngine(ctx context.Context, cacheDir string) (db *storage.DB, done func(), err error) {
	dir, err := os.MkdirTemp("", "countersign-proved-*")
	if err != nil {
		return nil, nil, fmt.Errorf("making the directory of the engine that answers: %w", err)
	}
	// A reader of the answer that goes away must not end this process before the
	// directory is removed: the write fails instead.
	piped := make(chan os.Signal, 1)
	signal.Notify(piped, syscall.SIGPIPE)
	var engine *storage.Engine
	done = func() {
		signal.Stop(piped)
		if db != nil {
			_ = db.Close()
		}
		if engine != nil {
			_ = engine.Stop(context.Background())
		}
		_ = os.RemoveAll(dir)
	}
	if engine, err = storage.StartEngine(ctx, storage.EngineOptions{DataDir: dir, CacheDir: cacheDir, NoFetch: true}); err != nil {
		done()
		return nil, nil, fmt.Errorf("a proved answer is made by an engine of its own: %w", err)
	}
	if db, err = storage.Open(ctx, engine.DSN()); err == nil {
		err = db.Migrate(ctx)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return db, done, nil
}

// basis says what an answer rests on after the verification of shards that hold.
func (p *prover) basis(whole []evidence.Report) basis {
	var unsigned uint64
	for _, rep := range whole {
		n := uint64(rep.NotSigned)
		if rep.Shard == p.shard && p.last > uint64(rep.Signed) { // the log may go further than what is stored
			n = max(n, p.last-uint64(rep.Signed))
		}
		unsigned += n
	}
	text := "rests on: a verification of all records, made for this answer: nothing is missing, changed or another's"
	if unsigned > 0 || !p.asked {
		text = "rests on: a verification of all signed records, made for this answer: none of them is missing, changed or another's"
	}
	note := ""
	if unsigned > 0 {
		note = plural(int(unsigned), "record") + " not signed yet and not in this answer: ask again in a moment"
	}
	if !p.asked {
		if note != "" {
			note += "; "
		}
		note += fmt.Sprintf("no NATS server named: records after the newest stored checkpoint (size %d) could be missing", whole[len(whole)-1].Signed)
	}
	if note != "" {
		text += "; " + note
	}
	return basis{text: text, proved: true, note: note}
}

// proved gives the ledger to answer from: that of the tenant's proved records, if that
// was asked for. The caller calls done.
func (f proveFlags) proved(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target, want evidencereader.CopyFilter) (own evidencereader.Reader, b basis, done func(), err error) {
	if !f.Proved {
		return l, restsOnIndex, func() {}, nil
	}
	p, err := newProver(ctx, io, l, t, f.Key)
	if err != nil {
		return own, b, nil, err
	}
	return p.copy(ctx, f.CacheDir, "", want)
}

// shard gives the ledger to read from: that of the proved records of one shard, or of
// all with an empty name, unless the scan was left out or the database shows one
// tenant only. The caller calls done.
func (f scanFlags) shard(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target, key, cacheDir, shard string, want evidencereader.CopyFilter) (own evidencereader.Reader, b basis, done func(), err error) {
	if f.SkipScan {
		return l, provesSome, func() {}, nil
	}
	p, err := newProver(ctx, io, l, t, key)
	switch {
	case errors.Is(err, errOneTenant):
		return l, provesSome, func() {}, nil
	case err != nil:
		return own, b, nil, orSkip(err)
	}
	return p.copy(ctx, cacheDir, shard, want)
}

// session gives a session's records, proved to be all unless the scan was left out
// or the database shows one tenant only.
func (f scanFlags) session(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target, key, session string) (parts []evidencereader.ProvedSession, b basis, err error) {
	if !f.SkipScan {
		p, err := newProver(ctx, io, l, t, key)
		if err == nil {
			return p.session(ctx, t.Tenant, session)
		}
		if !errors.Is(err, errOneTenant) {
			return nil, b, orSkip(err)
		}
	}
	parts, err = unprovedSession(ctx, l, t.Tenant, session)
	return parts, provesSome, err
}

// unprovedSession reads a session out of the index.
func unprovedSession(ctx context.Context, l evidencereader.Reader, tenant, session string) (list []evidencereader.ProvedSession, err error) {
	parts, err := l.Session(ctx, tenant, session)
	for _, s := range parts {
		list = append(list, evidencereader.ProvedSession{Session: s, Why: l.Reasons()})
	}
	return list, err
}

// orSkip says how to go on without a key.
func orSkip(err error) error {
	if usage := (usageError{}); errors.As(err, &usage) {
		return usageError{fmt.Errorf("%w (or --skip-scan, and what comes of it is not proved)", usage.error)}
	}
	return err
}

// printBasis says below an answer for people what it rests on; a list for programs
// says it in every line, so it is said beside one that has no line, and beside every
// one that is not all there may be.
func printBasis(io stdio, json bool, lines int, b basis) {
	switch {
	case !json:
		p := newPrinter(io.out)
		p.printf("%s\n", p.paint(faint, b.text))
	case lines == 0:
		fmt.Fprintf(io.err, "note: %s\n", b.text)
	case b.note != "":
		fmt.Fprintf(io.err, "note: %s\n", b.note)
	}
}
