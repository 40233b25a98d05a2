package bundle_test

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// A bundle is verified with the file and the public key alone. The key comes to the
// auditor another way than the file.
func ExampleVerify() {
	path, publicKey, remove := exported()
	defer remove()

	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		log.Fatal(err)
	}
	result, err := bundle.Verify(file, info.Size(), publicKey, bundle.Options{})
	if err != nil {
		log.Fatal(err) // not a bundle at all
	}
	fmt.Println(result.OK, result.Tenant, result.Session, result.Records)
	for _, f := range result.Findings {
		fmt.Println(f.Code, f.Seq)
	}
	// Output: true acme s1 1
}

// exported writes the bundle of a session with one event, as `countersign export`
// does, into a temporary directory.
func exported() (path, publicKey string, remove func()) {
	in, publicKey := session()
	dir, err := os.MkdirTemp("", "bundle-example-*")
	if err != nil {
		log.Fatal(err)
	}
	in.Spool = func(member string) (bundle.Spool, error) { return os.Create(filepath.Join(dir, member)) }
	var zip bytes.Buffer
	if _, err := bundle.Write(&zip, in); err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "s1.zip")
	if err := os.WriteFile(path, zip.Bytes(), 0o600); err != nil {
		log.Fatal(err)
	}
	return path, publicKey, func() { os.RemoveAll(dir) }
}

// session is the evidence of a log with one event.
func session() (in bundle.Input, publicKey string) {
	const shard = "GOV@20261120T064150.123456789Z"
	builder, err := build.NewBuilder(shard, subject.Space{})
	if err != nil {
		log.Fatal(err)
	}
	built, err := builder.Build(events.LogMessage{
		Seq: 1, Subject: subject.Space{}.Event("acme", "rt1", "agenthook", "s1", "PreToolUse"),
		Time: time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC), Body: []byte(`{"event_type":"PreToolUse","session_id":"s1"}`),
	}, evidence.Head{}, keys{})
	if err != nil {
		log.Fatal(err)
	}
	var merkle tree.Tree
	merkle.Append(built.Hash)
	checkpoint, publicKey := signed(tree.Checkpoint{Shard: shard, Size: merkle.Size(), Root: merkle.Root()})
	return bundle.Input{
		Shard: shard, Tenant: "acme", Session: "s1", Checkpoint: checkpoint, Decided: nothingDecided{},
		Rows: func(yield func(evidence.Row) error) error { return yield(built.Row()) },
	}, publicKey
}

func signed(c tree.Checkpoint) (checkpoint, publicKey string) {
	secret, publicKey, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		log.Fatal(err)
	}
	signer, err := signing.CheckpointSigner(secret)
	if err != nil {
		log.Fatal(err)
	}
	if checkpoint, err = tree.SignCheckpoint(signer, c); err != nil {
		log.Fatal(err)
	}
	return checkpoint, publicKey
}

// keys are the keys of records: random and kept by the auditor in a running system.
type keys struct{}

func (keys) TenantKey(string) []byte { return bytes.Repeat([]byte{2}, 32) }

func (keys) SessionSecret(string, string) ([]byte, error) { return bytes.Repeat([]byte{3}, 32), nil }

// nothingDecided is the source of texts of policies and mandates for a log without
// decisions.
type nothingDecided struct{}

func (nothingDecided) Changes(uint64, func(inforce.Change) error) error { return nil }

func (nothingDecided) Policies(uint64) ([]events.PolicyDocument, string, error) { return nil, "", nil }

func (nothingDecided) Mandate(string) ([]string, string, error) { return nil, "", nil }
