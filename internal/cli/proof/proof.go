// Package proof determines what an answer from the evidence rests on: a verification of the whole
// log made for the answer, or the index, which is not proved. It also reports expired records.
// Every command that reads evidence uses it, through ProveFlags (index unless --proved) or
// ScanFlags (proof unless --skip-scan).
package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
)

// Evidence is proved: every record is hashed into a signed tree. The tables for looking up
// records are not proved, and neither are the columns beside a record's text. So every answer
// states what it rests on: a verification of the whole log made for it, or the index. The
// evidence server could answer two queries differently, so a proved answer is made only from the
// bytes that the verification read; the server is not asked again.

// ProveFlags are the flags of commands that answer from the index unless they are told to prove
// the answer first.
type ProveFlags struct {
	Proved bool `help:"Verify all of the evidence first and answer from what was proved (default: from the index)."`
	EngineFlags
	Key string `help:"With --proved: the public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
}

// EngineFlags are the flags of commands that answer with a database engine of their own.
type EngineFlags struct {
	CacheDir string `help:"Where the engine is kept that makes a proved answer (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
}

// ScanFlags are the flags of commands that prove their output unless they are told not to.
type ScanFlags struct {
	SkipScan bool `help:"Take the records from the index, without a proof that none is missing. The output is marked as not proved."`
}

// Basis describes what an answer rests on, for display.
type Basis struct {
	Text   string
	Proved bool // a verification of everything was made for the answer, and found nothing
	// note is for programs that read a list of records; it is printed beside the list.
	note string
}

// The basis of answers without a verification.
var (
	OnIndex        = Basis{Text: "rests on: the index, which is not proved: records may be missing or another's; --proved verifies first"}
	OnRecordsShown = Basis{Text: "rests on: the records shown, each in the signed tree; NOT proved: that they are all, and that no key behind them was retired"}
)

// Prover verifies the evidence for an answer.
type Prover struct {
	l       evidencereader.Reader
	options evidencereader.VerifyOptions
	log     *system.EvidenceLog // nil without a server; closed after the verification
	shard   string              // the current incarnation of the log; "" without a server
	last    uint64              // its last sequence
}

// errOneTenant reports that the database does not show everything that a proof needs.
var errOneTenant = errors.New("this database shows one tenant's records: that none is missing can be proved by a user that may read all of them")

// NewProver reads the key to verify against, and the published checkpoints if there is a server. The
// prover makes one verification, which compares with the log what only the log shows. errOneTenant means that completeness cannot be proved.
func NewProver(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, key string) (*Prover, error) {
	keys, err := system.TrustedKeys(key, t)
	if err != nil {
		return nil, err
	}
	switch one, err := l.DB.IsTenantView(ctx); {
	case err != nil:
		return nil, err
	case one:
		return nil, errOneTenant
	}
	p := &Prover{l: l, options: evidencereader.VerifyOptions{Keys: keys, Progress: ui.CountProgress(io, "proving")}}
	log, err := system.ConnectEvidenceLog(ctx, t)
	switch {
	case errors.Is(err, target.ErrNoServer):
	case err != nil:
		return nil, err
	default:
		p.log, p.shard, p.last = log, log.Shard, log.Last
		p.options.Log, p.options.LogOf, p.options.SignaturesOnly = log.Message, log.Shard, true
		p.options.Published, p.options.Cosigners = log.Published, log.Cosigners()
	}
	return p, nil
}

// Session picks a session from all records.
func (p *Prover) Session(ctx context.Context, tenant, session string) ([]evidencereader.ProvedSession, Basis, error) {
	defer p.log.Close()
	defer FewerCollections()()
	picked, whole, err := p.l.ReadProvedSession(ctx, tenant, session, "", p.options)
	if err != nil && !errors.Is(err, evidencereader.ErrNoSession) {
		return nil, Basis{}, err
	}
	if wrong := evidencereader.CheckProved(whole); wrong != nil {
		return nil, Basis{}, wrong
	}
	b := p.basis(whole)
	if err != nil && b.note != "" {
		err = fmt.Errorf("%w (%s)", err, b.note)
	}
	return picked, b, err
}

// copy verifies one shard, or all if shard is "", and copies the wanted records into an engine of
// the command's own; own reads it and contains only proved records. The caller calls done.
func (p *Prover) copy(ctx context.Context, cacheDir, shard string, want evidencereader.CopyFilter) (own evidencereader.Reader, b Basis, done func(), err error) {
	defer p.log.Close()
	db, done, err := ownEngine(ctx, cacheDir)
	if err != nil {
		return own, b, nil, err
	}
	defer FewerCollections()()
	whole, err := p.l.CopyProved(ctx, write.New(db.Pool()), want, shard, p.options)
	if err != nil {
		done()
		return own, b, nil, err
	}
	return evidencereader.Reader{DB: db, Tree: p.l.DB, Stream: p.l.Stream, Space: p.l.Space}, p.basis(whole), done, nil
}

// ownEngine starts an engine with empty tables in a temporary directory. done kills it and removes
// the directory: its tables are not read again, so the engine need not close them.
func ownEngine(ctx context.Context, cacheDir string) (db *read.Reader, done func(), err error) {
	dir, err := os.MkdirTemp("", "countersign-proved-*")
	if err != nil {
		return nil, nil, fmt.Errorf("making the directory of the engine that answers: %w", err)
	}
	// If the reader of the output goes away, the write must fail instead of ending this process
	// before the directory is removed.
	piped := make(chan os.Signal, 1)
	signal.Notify(piped, syscall.SIGPIPE)
	ended, end := context.WithCancel(context.Background()) // Stop kills an engine when its context has ended
	end()
	var started *engine.Engine
	done = func() {
		signal.Stop(piped)
		if db != nil {
			_ = db.Close()
		}
		if started != nil {
			_ = started.Stop(ended)
		}
		_ = os.RemoveAll(dir)
	}
	if started, err = engine.Start(ctx, engine.Options{DataDir: dir, CacheDir: cacheDir, NoFetch: true}); err != nil {
		done()
		return nil, nil, fmt.Errorf("a proved answer is made by an engine of its own: %w", err)
	}
	if db, err = read.Open(ctx, started.DSN()); err == nil {
		err = schema.Migrate(ctx, db.Pool())
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return db, done, nil
}

// basis describes what an answer rests on after shards were verified.
func (p *Prover) basis(whole []verify.Report) Basis {
	var unsigned uint64
	older := false
	for _, rep := range whole {
		n := uint64(rep.AfterCheckpoint)
		older = older || rep.Shard != p.shard
		if rep.Shard == p.shard && p.last > uint64(rep.Signed) { // the log may be longer than the stored evidence
			n = max(n, p.last-uint64(rep.Signed))
		}
		unsigned += n
	}
	text := "rests on: a verification of all records, made for this answer: nothing is missing, changed or another's"
	if unsigned > 0 || older {
		text = "rests on: a verification of all signed records, made for this answer: none of them is missing, changed or another's"
	}
	note := ""
	if unsigned > 0 {
		note = ui.Plural(int(unsigned), "record") + " not signed yet and not in this answer: ask again in a moment"
	}
	if older {
		if note != "" {
			note += "; "
		}
		if p.shard == "" {
			note += fmt.Sprintf("no NATS server named: records after the newest stored checkpoint (size %d) could be missing", whole[len(whole)-1].Signed)
		} else {
			note += fmt.Sprintf("the NATS server has only the log of shard %s: records of an older one after its newest stored checkpoint could be missing", ui.Clean(p.shard, 80))
		}
	}
	wrong := findingsText(whole)
	if wrong != "" && note != "" {
		note += "; "
	}
	if note += wrong; note != "" {
		text += "; " + note
	}
	return Basis{Text: text, Proved: wrong == "", note: note}
}

// findingsText says what a verification found, other than what ends it (evidencereader.CheckProved);
// "" for nothing, or that it could not check a signature. Such records are on the log as they are in the
// answer, and may be forged there.
func findingsText(whole []verify.Report) string {
	total, unchecked, first := 0, 0, ""
	for _, rep := range whole {
		unchecked += rep.SignaturesUnchecked
		if total += rep.Total; first == "" && len(rep.Findings) > 0 {
			f := rep.Findings[0]
			first = fmt.Sprintf("%s at sequence %d of shard %s", f.Code, f.Seq, rep.Shard)
		}
	}
	switch {
	case total == 0 && unchecked == 0:
		return ""
	case total == 0:
		return fmt.Sprintf("NOT proved: %s not checked: a credential was taken out of a name that each covers, and the log with their messages is not here", ui.Plural(unchecked, "signature"))
	}
	return fmt.Sprintf("NOT proved: %s in the verified records, the first %s: run countersign verify", ui.Plural(total, "problem"), first)
}

// FindEvidence finds the running system and returns the reader to answer from: with --proved, that of
// the tenant's proved records and, without their texts, of other tenants' if others is set. The caller
// calls done.
func (f ProveFlags) FindEvidence(ctx context.Context, io ui.Stdio, flags target.Flags, others bool) (t *target.Target, own evidencereader.Reader, b Basis, done func(), err error) {
	t, l, err := system.FindEvidence(ctx, flags)
	if err != nil {
		return nil, own, b, nil, err
	}
	closeFound := func() { _ = l.DB.Close() }
	if !f.Proved {
		return t, l, OnIndex, closeFound, nil
	}
	p, err := NewProver(ctx, io, l, t, f.Key)
	var endCopy func()
	if err == nil {
		own, b, endCopy, err = p.copy(ctx, f.CacheDir, "", evidencereader.CopyFilter{Tenant: t.Tenant, Others: others})
	}
	if err != nil {
		closeFound()
		return nil, own, b, nil, err
	}
	return t, own, b, func() { endCopy(); closeFound() }, nil
}

// ProveShard returns the reader to read from: that of the proved records of one shard, or of all
// if shard is "". With --skip-scan, or if the database shows one tenant only, it returns l. The
// caller calls done.
func (f ScanFlags) ProveShard(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, key, cacheDir, shard string, want evidencereader.CopyFilter) (own evidencereader.Reader, b Basis, done func(), err error) {
	if f.SkipScan {
		return l, OnRecordsShown, func() {}, nil
	}
	p, err := NewProver(ctx, io, l, t, key)
	switch {
	case errors.Is(err, errOneTenant):
		return l, OnRecordsShown, func() {}, nil
	case err != nil:
		return own, b, nil, orSkip(err)
	}
	return p.copy(ctx, cacheDir, shard, want)
}

// ProveSession returns a session's records, proved complete unless --skip-scan is given or the
// database shows one tenant only.
func (f ScanFlags) ProveSession(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, key, session string) (parts []evidencereader.ProvedSession, b Basis, err error) {
	if !f.SkipScan {
		p, err := NewProver(ctx, io, l, t, key)
		if err == nil {
			return p.Session(ctx, t.Tenant, session)
		}
		if !errors.Is(err, errOneTenant) {
			return nil, b, orSkip(err)
		}
	}
	parts, err = UnprovedSession(ctx, l, t.Tenant, session)
	return parts, OnRecordsShown, err
}

// UnprovedSession reads a session from the index.
func UnprovedSession(ctx context.Context, l evidencereader.Reader, tenant, session string) (list []evidencereader.ProvedSession, err error) {
	parts, err := l.Session(ctx, tenant, session)
	for _, s := range parts {
		list = append(list, evidencereader.ProvedSession{Session: s, Why: l.NewExpiryReasons()})
	}
	return list, err
}

// orSkip adds to an error how to continue without a key.
func orSkip(err error) error {
	if usage := (ui.UsageError{}); errors.As(err, &usage) {
		return ui.UsageError{Err: fmt.Errorf("%w (or --skip-scan, and what comes of it is not proved)", usage)}
	}
	return err
}

// PrintBasis prints what an answer rests on: below an answer for display, or on standard error
// beside JSON output that has no line, or that may be incomplete. JSON lines state it themselves.
func PrintBasis(io ui.Stdio, json bool, lines int, b Basis) {
	switch {
	case !json:
		p := ui.NewPrinter(io.Out)
		p.Printf("%s\n", p.Paint(ui.Faint, b.Text))
	case lines == 0:
		fmt.Fprintf(io.Err, "note: %s\n", b.Text)
	case b.note != "":
		fmt.Fprintf(io.Err, "note: %s\n", b.note)
	}
}

// FewerCollections reduces garbage collection until restore is called: verification keeps little
// of what it reads.
func FewerCollections() (restore func()) {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}
