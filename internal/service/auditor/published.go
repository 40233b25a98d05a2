package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// ErrRemade stops an auditor that makes records again, after a restore of the database, and does not get
// those that were signed.
var ErrRemade = errors.New("the records that were made again are not those that were signed")

// signedRoots are the published checkpoints of the shard that cover at least all records at the start,
// the smallest first. While the tree is behind the newest one, its records were made before, and the
// tree must have each of the roots at its size. Otherwise the auditor's key would sign a second history
// (TestRecordsMadeAgainUnderAnotherPolicyAreNotSigned).
type signedRoots struct {
	shard string
	roots []signedRoot // not reached yet
}

type signedRoot struct {
	size int64
	root tlog.Hash
}

// readSignedRoots reads the signed roots for a position.
func (s shardAccess) readSignedRoots(ctx context.Context, position uint64) (signedRoots, error) {
	p := signedRoots{shard: s.shard}
	err := s.eachPublished(ctx, position, func(cp storage.Checkpoint) error {
		p.roots = append(p.roots, signedRoot{int64(cp.Size), cp.Root})
		return nil
	})
	slices.SortFunc(p.roots, func(a, b signedRoot) int { return int(a.size - b.size) })
	return p, err
}

// newest is the size of the newest one; 0 without one.
func (p *signedRoots) newest() int64 {
	if len(p.roots) == 0 {
		return 0
	}
	return p.roots[len(p.roots)-1].size
}

// has reports whether one of them is of this tree.
func (p *signedRoots) has(merkle *tree.Tree) bool {
	return slices.Contains(p.roots, signedRoot{merkle.Size(), merkle.Root()})
}

// compare compares the tree with those of its size, which it has reached.
func (p *signedRoots) compare(merkle *tree.Tree) error {
	for len(p.roots) > 0 && p.roots[0].size == merkle.Size() {
		if p.roots[0].root != merkle.Root() {
			return fmt.Errorf("%w: up to sequence %d, for which a checkpoint of shard %s is published. The database was restored, and since its backup a redaction policy, a retention policy or the build has changed. "+
				"Nothing of it was signed. Restore a newer backup, else begin a new log", ErrRemade, merkle.Size(), p.shard)
		}
		p.roots = p.roots[1:]
	}
	return nil
}

// eachPublished calls fn for the published checkpoints of the shard that this auditor's key signed, of a
// size or larger, the newest first. They are published in the order of their sizes.
func (s shardAccess) eachPublished(ctx context.Context, least uint64, fn func(storage.Checkpoint) error) error {
	known, err := s.ownVerifier()
	if err != nil {
		return err
	}
	for m, err := range streams.MessagesBack(ctx, s.js, streams.StreamCheckpoints) {
		if err != nil {
			return fmt.Errorf("reading the published checkpoints: %w", err)
		}
		cp, err := tree.OpenCheckpoint(string(m.Body), known)
		switch {
		case err != nil || !s.isOfStream(cp.Shard): // verification reports what is wrong with one
		case cp.Shard != s.shard || uint64(cp.Size) < least: // so are all before
			return nil
		default:
			if err := fn(storage.Checkpoint{Shard: s.shard, Size: uint64(cp.Size), Root: cp.Root, Note: string(m.Body), Created: m.Time}); err != nil {
				return err
			}
		}
	}
	return nil
}
