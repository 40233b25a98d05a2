package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/filelock"
	"github.com/countersign-dev/countersign/internal/owner"
	"github.com/countersign-dev/countersign/internal/service/keys"
)

// ErrKeyLost reports that a log exists and a key that it needs does not.
var ErrKeyLost = errors.New("a key is missing")

// prepareDataDir creates the data directory, its keys and its passwords.
func (p *Pipeline) prepareDataDir(ctx context.Context) error {
	if err := os.MkdirAll(p.opt.DataDir, 0o700); err != nil {
		return fmt.Errorf("creating the data directory: %w", err)
	}
	var err error
	if p.lock, err = lockDir(p.opt.DataDir); err != nil {
		return err
	}
	if err := p.ensureKeys(); err != nil {
		return err
	}
	public, err := keys.Vouch(p.keys, time.Now())
	if err != nil {
		return err
	}
	if p.state, err = loadState(ctx, filepath.Join(p.opt.DataDir, stateFile), p.opt.Tenant); err != nil {
		return err
	}
	p.ready = target.Ready{
		Tenant: p.opt.Tenant, DataDir: p.opt.DataDir, PublicKey: public, Owner: owner.ThisProcess(), PIDs: map[string]int{procUp: os.Getpid()}, Roles: map[string]target.Role{},
	}
	for role, u := range p.state.readyRoles(p.opt.Tenant) {
		p.ready.Roles[role] = p.state.credentials(u)
	}
	return nil
}

// ensureKeys creates the keys of a new data directory. If there is a log already, only the
// receipt key may be created anew, which is how it is rotated: with another master key the log's
// digests could not be compared and its session keys not be opened, and with another checkpoint
// key nothing would verify.
func (p *Pipeline) ensureKeys() error {
	if log, err := os.ReadDir(filepath.Join(p.opt.DataDir, "nats")); err == nil && len(log) > 0 {
		for _, name := range []string{keys.CheckpointFile, keys.MasterFile} {
			if _, err := keys.Seed(p.keys, name); errors.Is(err, keys.ErrMissing) {
				return fmt.Errorf("%w: %s; the log in %s was written with it, so bring it back from your backup", ErrKeyLost, name, p.opt.DataDir)
			} else if err != nil {
				return err
			}
		}
	}
	return keys.Ensure(p.keys, keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile, manifestKeyFile)
}

// ErrInUse reports that another process runs a pipeline on the data directory.
var ErrInUse = errors.New("the data directory is in use by another `countersign up`")

// storeWait is how long lockStore waits.
const storeWait = 20 * time.Second

// lockDir locks a data directory until the file is closed or the process ends: two NATS servers
// on one store would destroy it.
func lockDir(dir string) (*os.File, error) {
	f, err := filelock.Try(filepath.Join(dir, "lock"))
	return f, inUseError(dir, err)
}

// lockStore locks the log's store. It waits for a while, because the server of a killed `up` may
// still be stopping.
func lockStore(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	f, err := filelock.Wait(ctx, dir+".lock", nil)
	return f, inUseError(dir, err)
}

func inUseError(dir string, err error) error {
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return fmt.Errorf("%w: %s; stop that one, or give another --data-dir", ErrInUse, dir)
	case err != nil:
		return fmt.Errorf("locking the data directory: %w", err)
	}
	return nil
}
