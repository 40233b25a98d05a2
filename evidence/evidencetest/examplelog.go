package evidencetest

import (
	"bytes"
	"log"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const ExampleShard = "GOV@20261120T064150.123456789Z" // an incarnation of the stream GOV

// ExampleLog is a log with its evidence, tree and newest checkpoint.
type ExampleLog struct {
	Rows       []evidence.Row
	Hashes     []tlog.Hash
	Verifier   note.Verifier
	Checkpoint string
}

// ReadHashes gives stored hashes of the tree: it is a tlog.HashReader.
func (l *ExampleLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		hashes[i] = l.Hashes[n]
	}
	return hashes, nil
}

func NewExampleLog(bodies ...string) *ExampleLog {
	builder, err := build.NewBuilder(ExampleShard, subject.Space{})
	if err != nil {
		log.Fatal(err)
	}
	chain := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	built, err := builder.BuildBatch(chain, EventMessages(bodies...), ExampleKeys{})
	if err != nil {
		log.Fatal(err)
	}
	var l ExampleLog
	var merkle tree.Tree
	for _, b := range built {
		l.Rows = append(l.Rows, b.Row())
		for _, node := range merkle.Append(b.Hash) {
			l.Hashes = append(l.Hashes, node.Hash)
		}
	}
	l.sign(tree.Checkpoint{Shard: ExampleShard, Size: merkle.Size(), Root: merkle.Root()})
	return &l
}

func (l *ExampleLog) sign(c tree.Checkpoint) {
	secret, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		log.Fatal(err)
	}
	if l.Verifier, err = signing.CheckpointVerifier(public); err != nil {
		log.Fatal(err)
	}
	signer, err := signing.CheckpointSigner(secret)
	if err != nil {
		log.Fatal(err)
	}
	if l.Checkpoint, err = tree.SignCheckpoint(signer, c); err != nil {
		log.Fatal(err)
	}
}

// EventMessages are events of the session s1 as the log holds them.
func EventMessages(bodies ...string) (list []events.LogMessage) {
	begin := time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)
	for i, body := range bodies {
		list = append(list, events.LogMessage{
			Seq: uint64(i + 1), Subject: subject.Space{}.Event("acme", "rt1", "agenthook", "s1", "PreToolUse"),
			Time: begin.Add(time.Duration(i) * time.Second), Body: []byte(body),
		})
	}
	return list
}

// ExampleKeys are the keys of records: random and kept by the auditor in a running system.
type ExampleKeys struct{}

func (ExampleKeys) TenantKey(string) []byte { return bytes.Repeat([]byte{2}, 32) }

func (ExampleKeys) SessionSecret(string, string) ([]byte, error) {
	return bytes.Repeat([]byte{3}, 32), nil
}
