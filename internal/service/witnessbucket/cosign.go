// Package witnessbucket describes how signatures of witnesses reach the evidence: which witnesses
// are trusted, where signatures are handed in, and how they are checked before they are stored
// (CheckHandedIn).
//
// The bucket streams.BucketWitnesses has the public keys that the operators trust
// ("trusted.<name>") and the checkpoints that witnesses signed ("signed.<witness or
// user>.<shard>"). The bucket's content is unchecked. The auditor checks it and stores what is
// valid beside the checkpoints of the log; the command line writes to the bucket.
package witnessbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// Prefixes of the bucket's keys.
const (
	trustedPrefix = "trusted."
	signedPrefix  = "signed."
)

// MaxNote bounds a signed checkpoint that is handed in, in bytes.
const MaxNote = 64 << 10

// Reasons for refusing a signature, beside tree.ErrCheckpoint and tree.ErrFork.
var (
	ErrUntrusted = errors.New("no witness whose key is trusted has signed it")
	ErrAhead     = errors.New("the evidence does not reach as far yet")
	// ErrForeign means that another party has or had the log's key: a checkpoint is stored before it
	// is published.
	ErrForeign = errors.New("the log's key signed it, and the evidence has no such checkpoint")
)

// TrustedKey is the bucket's key for the public key of a witness.
func TrustedKey(name string) string { return trustedPrefix + events.RuleKey(name) }

// SignedKey is the bucket's key for a checkpoint of a shard that is handed in: under the NATS
// user's name for a user with the role of a witness, under the witness's name for an operator.
func SignedKey(by, shard string) string {
	return signedPrefix + events.RuleKey(by) + "." + events.RuleKey(shard)
}

// Witness is a witness with signatures that are accepted.
type Witness struct {
	note.Verifier
	Text string // the key as it was put
}

// TrustedWitnesses reads the keys of the witnesses; none if the bucket does not exist.
func TrustedWitnesses(ctx context.Context, js jetstream.JetStream) (list []Witness, err error) {
	entries, err := entriesUnder(ctx, js, trustedPrefix)
	for _, e := range entries {
		v, err := tree.NewWitness(string(e.Value))
		if err != nil {
			return list, fmt.Errorf("key %s of the bucket %s: %w; put it again with: countersign witness trust", e.Key, streams.BucketWitnesses, err)
		}
		list = append(list, Witness{v, strings.TrimSpace(string(e.Value))})
	}
	return list, err
}

// Verifiers returns only the keys.
func Verifiers(list []Witness) (keys []note.Verifier) {
	for _, w := range list {
		keys = append(keys, w.Verifier)
	}
	return keys
}

// HandedIn reads the checkpoints that were handed in, one per user and shard.
func HandedIn(ctx context.Context, js jetstream.JetStream) ([]streams.KVEntry, error) {
	return entriesUnder(ctx, js, signedPrefix)
}

func entriesUnder(ctx context.Context, js jetstream.JetStream, prefix string) ([]streams.KVEntry, error) {
	list, err := streams.KVLive(ctx, js, streams.BucketWitnesses, func(key string) bool { return strings.HasPrefix(key, prefix) })
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil // a system without the bucket
	}
	return list, err
}

// CheckedCheckpoint is a checkpoint of the log with valid signatures of witnesses.
type CheckedCheckpoint struct {
	tree.Checkpoint
	Note string // with the signatures of the log and of trusted witnesses, and no other
	By   []tree.Cosignature
}

// Checkpoints are the stored checkpoints (read.Reader).
type Checkpoints interface {
	CheckpointsAt(ctx context.Context, shard string, size uint64) ([]storage.Checkpoint, error)
	LatestCheckpoint(ctx context.Context, shard string) (storage.Checkpoint, error)
}

// CheckHandedIn checks a checkpoint against the log's key, the trusted witnesses, and the stored
// checkpoints. ErrFork means that the log's key signed two histories; the checkpoint is the proof.
// current is the incarnation of the log that is audited now: after a loss its evidence is made again,
// from the first record on.
func CheckHandedIn(ctx context.Context, signed, current string, log note.Verifier, trusted []note.Verifier, stored Checkpoints) (j CheckedCheckpoint, err error) {
	if j.Checkpoint, err = tree.OpenCheckpoint(signed, note.VerifierList(log)); err != nil {
		return j, err
	}
	if j.Note, err = tree.KeepSignatures(signed, append([]note.Verifier{log}, trusted...)...); err != nil {
		return j, err
	}
	if j.By = tree.Cosignatures(j.Note, trusted); len(j.By) == 0 {
		return j, ErrUntrusted
	}
	list, err := stored.CheckpointsAt(ctx, j.Shard, uint64(j.Size))
	if err != nil {
		return j, err
	}
	for _, c := range list {
		if c.Root == j.Root {
			return j, nil
		}
	}
	if len(list) > 0 {
		return j, fmt.Errorf("%w: of %s, size %d, the evidence has a checkpoint with root %x, and this one, signed by the same key, has root %s", tree.ErrFork, j.Shard, j.Size, list[0].Root, j.Root)
	}
	newest, err := stored.LatestCheckpoint(ctx, j.Shard)
	switch {
	case err == nil && newest.Size < uint64(j.Size), errors.Is(err, storage.ErrNotFound) && j.Shard == current: // the evidence is being filled up
		return j, fmt.Errorf("%w: of %s up to size %d, and this is of size %d", ErrAhead, j.Shard, newest.Size, j.Size)
	case err == nil || errors.Is(err, storage.ErrNotFound):
		return j, fmt.Errorf("%w: of %s, size %d", ErrForeign, j.Shard, j.Size)
	}
	return j, err
}

// LacksSignature reports whether the stored checkpoints of this size lack a signature that j has.
func (j CheckedCheckpoint) LacksSignature(stored []storage.Checkpoint) bool {
	have := map[string]bool{}
	for _, c := range stored {
		_, lines, _ := strings.Cut(c.Note, "\n\n")
		for line := range strings.Lines(lines) {
			have[line] = true
		}
	}
	_, lines, _ := strings.Cut(j.Note, "\n\n")
	for line := range strings.Lines(lines) {
		if !have[line] {
			return true
		}
	}
	return false
}
