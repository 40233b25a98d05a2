package auditor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// ErrNoIntent stops an auditor that finds rows behind the newest checkpoint that no auditor
// had an intent for. To continue from them would be to sign them.
var ErrNoIntent = errors.New("the evidence ends in records that no auditor had an intent for")

// ErrOtherKey stops an auditor whose checkpoint key is not the one that the evidence is signed with.
var ErrOtherKey = errors.New("this checkpoint.key is not the one of this log")

// keptIntents is how many intents are kept. One auditor needs two: the batch in flight and the
// one before. More are for auditors that follow each other while inserts of the earlier ones are
// still under way.
const keptIntents = 8

// intents are signed statements of the next insert: before each insert the active auditor
// writes the tree with the new rows to NATS. Rows behind the newest checkpoint must agree with
// one of the intents, so an attacker with write access to the database cannot have such rows
// signed by an auditor that starts.
//
// They are one key of the bucket of leases, changed by compare-and-set. An auditor that starts
// takes the key over, and an earlier one that still runs can store no intent more.
type intents struct {
	shardAccess
	kv       jetstream.KeyValue
	key      string
	revision uint64
	notes    []string // newest first
}

// claimIntents reads the intents and takes their key over.
func claimIntents(ctx context.Context, access shardAccess) (*intents, error) {
	kv, err := streams.OpenBucket(ctx, access.js, streams.BucketLeases)
	if err != nil {
		return nil, err
	}
	i := &intents{shardAccess: access, kv: kv, key: "intent." + access.stream}
	e, err := kv.Get(ctx, i.key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return nil, fmt.Errorf("reading the intents: %w", err)
	default:
		i.revision = e.Revision()
		if err := json.Unmarshal(e.Value(), &i.notes); err != nil {
			return nil, fmt.Errorf("%w: key %s of the bucket %s is not a list of notes", ErrNoIntent, i.key, streams.BucketLeases)
		}
	}
	return i, i.writeNotes(ctx, i.notes)
}

// writeNotes writes the notes. daemon.ErrFenced means that another auditor has written since.
func (i *intents) writeNotes(ctx context.Context, notes []string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	text, err := json.Marshal(notes)
	if err != nil {
		return err
	}
	revision := uint64(0)
	if i.revision == 0 {
		revision, err = i.kv.Create(ctx, i.key, text)
	} else {
		revision, err = i.kv.Update(ctx, i.key, text, i.revision)
	}
	if err != nil {
		// Another auditor wrote, or the answer to this or an earlier attempt was lost.
		e, readErr := i.kv.Get(ctx, i.key)
		switch {
		case readErr != nil || e.Revision() == i.revision:
			return fmt.Errorf("storing the intent of the next insert: %w", err)
		case string(e.Value()) != string(text):
			return fmt.Errorf("%w: it took over key %s of the bucket %s", daemon.ErrFenced, i.key, streams.BucketLeases)
		}
		revision = e.Revision()
	}
	i.revision, i.notes = revision, notes
	return nil
}

// store stores the intent of a batch, which is the tree with it, before the batch is stored.
func (i *intents) store(ctx context.Context, merkle *tree.Tree) error {
	text, err := tree.SignIntent(i.signer, tree.Checkpoint{Shard: i.shard, Size: merkle.Size(), Root: merkle.Root()})
	if err != nil {
		return err
	}
	notes := append([]string{text}, i.notes...)
	return i.retry(ctx, "intent", func() error { return i.writeNotes(ctx, notes[:min(len(notes), keptIntents)]) })
}

// check refuses the tree that the database holds, unless an auditor with this key has published its
// checkpoint or had an intent for it. An empty one may be filled from the log by the log's key alone.
func (i *intents) check(ctx context.Context, merkle *tree.Tree, published *signedRoots) error {
	if merkle.Size() > 0 && published.has(merkle) { // a restored backup ends at an earlier checkpoint
		return nil
	}
	known, err := i.ownVerifier()
	if err != nil {
		return err
	}
	if merkle.Size() == 0 {
		return i.checkKey(ctx, known)
	}
	for _, text := range i.notes {
		if c, err := tree.OpenIntent(text, known); err == nil && i.matches(c, merkle) {
			return nil
		}
	}
	return i.refuse(ctx, uint64(merkle.Size()), "rows behind the newest checkpoint were added, changed or taken away by another writer")
}

// refuse is the error about rows that end at a position and that no auditor had an intent for.
func (i *intents) refuse(ctx context.Context, position uint64, why string) error {
	known, err := i.ownVerifier()
	if err != nil {
		return err
	}
	if err := i.checkKey(ctx, known); err != nil {
		return err
	}
	return fmt.Errorf("%w: shard %s ends at sequence %d; %s. "+
		"Keep a copy and find out which process wrote them; then `countersign audit cut` takes these rows away, and they are made again from the log",
		ErrNoIntent, i.shard, position, why)
}

// checkKey refuses a checkpoint key that did not sign the shard's newest published checkpoint.
func (i *intents) checkKey(ctx context.Context, own note.Verifiers) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, i.js, streams.StreamCheckpoints, i.space.Checkpoints(i.stream))
	if m == nil || err != nil {
		return err
	}
	cp, err := tree.PeekCheckpoint(string(m.Body))
	if _, signed := tree.OpenCheckpoint(string(m.Body), own); err != nil || cp.Shard != i.shard || signed == nil {
		return nil
	}
	return fmt.Errorf("%w: the newest checkpoint of shard %s is signed by another key than this auditor's. Bring back the checkpoint.key that signed it from your backup (docs/operating.md, Keys)", ErrOtherKey, i.shard)
}

func (i *intents) matches(c tree.Checkpoint, merkle *tree.Tree) bool {
	return c.Shard == i.shard && c.Size == merkle.Size() && c.Root == merkle.Root()
}
