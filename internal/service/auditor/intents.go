package auditor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// ErrUnannounced stops an auditor that finds rows behind the newest checkpoint that
// no auditor meant to store. To go on from them would be to sign them.
var ErrUnannounced = errors.New("the evidence ends in records that no auditor announced")

// keptIntents is how many intents are kept. Two are enough for one auditor: the
// batch before the one in flight, and the one in flight. More are for auditors
// that follow each other while inserts of the earlier ones are still under way.
const keptIntents = 8

// intents are signed announcements of what is about to be inserted: before each
// insert the active auditor puts the tree with the new rows on NATS. A database
// that holds rows behind the newest checkpoint has to agree with one of them, so
// that whoever can write to the database cannot have such rows signed by an
// auditor that starts.
//
// They are one key of the bucket of leases, changed by compare-and-set: an auditor
// that starts takes the key over, and an earlier one that still runs announces
// nothing more.
type intents struct {
	kv       jetstream.KeyValue
	key      string
	revision uint64
	notes    []string // the newest first
}

// claimIntents reads the intents and takes their key over.
func (a *auditor) claimIntents(ctx context.Context) error {
	kv, err := streams.OpenBucket(ctx, a.js, streams.BucketLeases)
	if err != nil {
		return err
	}
	i := &intents{kv: kv, key: "intent." + a.flags.Stream}
	e, err := kv.Get(ctx, i.key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return fmt.Errorf("reading what was announced: %w", err)
	default:
		i.revision = e.Revision()
		if err := json.Unmarshal(e.Value(), &i.notes); err != nil {
			return fmt.Errorf("%w: key %s of the bucket %s is not a list of notes", ErrUnannounced, i.key, streams.BucketLeases)
		}
	}
	a.intents = i
	return i.writeNotes(ctx, i.notes)
}

// writeNotes writes the notes. daemon.ErrFenced says that another auditor wrote since.
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
		// Another auditor wrote, or the answer to this attempt or one before it was lost.
		e, readErr := i.kv.Get(ctx, i.key)
		switch {
		case readErr != nil || e.Revision() == i.revision:
			return fmt.Errorf("announcing what is about to be stored: %w", err)
		case string(e.Value()) != string(text):
			return fmt.Errorf("%w: it took over key %s of the bucket %s", daemon.ErrFenced, i.key, streams.BucketLeases)
		}
		revision = e.Revision()
	}
	i.revision, i.notes = revision, notes
	return nil
}

// announceTree says on NATS what the tree will be when a batch is stored.
func (a *auditor) announceTree(ctx context.Context, tree *evidence.Tree) error {
	text, err := evidence.SignIntent(a.signer, evidence.Checkpoint{Shard: a.shard, Size: tree.Size(), Root: tree.Root()})
	if err != nil {
		return err
	}
	notes := append([]string{text}, a.intents.notes...)
	return a.retry(ctx, "intent", func() error { return a.intents.writeNotes(ctx, notes[:min(len(notes), keptIntents)]) })
}

// checkAnnounced makes sure that the tree as the database has it is what an auditor with
// this key published or announced.
func (a *auditor) checkAnnounced(ctx context.Context) error {
	if a.tree.Size() == 0 {
		return nil
	}
	known, err := a.ownVerifier()
	if err != nil {
		return err
	}
	for _, text := range a.intents.notes {
		if c, err := evidence.OpenIntent(text, known); err == nil && a.matchesTree(c) {
			return nil
		}
	}
	found := false // a backup that was restored ends where an earlier checkpoint was made
	err = streams.EachMessage(ctx, a.js, streams.StreamCheckpoints, func(m *events.LogMessage) error {
		c, err := evidence.OpenCheckpoint(string(m.Body), known)
		found = found || err == nil && a.matchesTree(c)
		return nil
	})
	if found || err != nil {
		return err
	}
	return fmt.Errorf("%w: shard %s ends at sequence %d; rows behind the newest checkpoint were added, changed or taken away by another writer. "+
		"Keep a copy and find out who it was; then `countersign audit cut` takes these rows away, and they are made again from the log",
		ErrUnannounced, a.shard, a.tree.Size())
}

func (a *auditor) matchesTree(c evidence.Checkpoint) bool {
	return c.Shard == a.shard && c.Size == a.tree.Size() && c.Root == a.tree.Root()
}
