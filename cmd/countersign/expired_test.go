package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/write"
)

const expiredShard = "GOV@20261001T090000.000000000Z"

// expiredEvidence is a database with two sessions, of which the first expired, and
// the key that its checkpoint is signed with.
func expiredEvidence(t *testing.T) (dsn, vkey string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pool, e := enginetest.Fresh(t)
	db := write.New(pool)

	skey, vkey, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{3}, 32)))
	must(err)
	signer, err := signing.CheckpointSigner(skey)
	must(err)
	builder, err := build.NewBuilder(expiredShard, subject.Space{})
	must(err)
	chain := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	var rows []storage.EvidenceRow
	var nodes []storage.TreeNode
	var merkle tree.Tree
	at := time.Date(2026, 10, 1, 9, 0, 0, 0, time.UTC)
	log := func(subj string, record any) {
		body, err := events.Encode(record)
		must(err)
		seq := uint64(len(rows) + 1)
		built, err := builder.BuildBatch(chain, []events.LogMessage{{Seq: seq, Subject: subj, Time: at.Add(time.Duration(seq) * time.Second), Body: body}}, evidencetest.ExampleKeys{})
		must(err)
		chain.Commit()
		r := built[0].Row()
		rows = append(rows, storage.EvidenceRow{Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject, BrokerTime: r.BrokerTime,
			BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: built[0].Record.SessionIndex})
		for _, n := range merkle.Append(r.RecordHash) {
			nodes = append(nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
	}
	s := subject.Space{}
	var seqs []uint64
	for _, session := range []string{"s1", "s2"} {
		log(s.Event("acme", "rt1", "agenthook", session, "PreToolUse"), map[string]string{"event_type": "PreToolUse", "tool_name": "tool-of-" + session})
		log(s.Call("acme", "completed", session), events.Call{CallID: "c-" + session, Tenant: "acme", Session: session, Tool: "tool-of-" + session, State: events.CallCompleted, Timeline: []events.TimelineEntry{}})
		log(s.Finding("acme", "high", session), events.Finding{FindingID: "f-" + session, Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: session, EventIDs: []string{}, Explanation: "drift-of-" + session})
	}
	seqs = []uint64{1, 2, 3}
	x := events.Expiry{ExpiryID: "x", Shard: expiredShard, State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: "keep@0011223344556677",
		Sessions: []events.ExpiredSession{{Session: "s1", Index: 1, Sequences: retention.JoinSpans(seqs)}}, Records: 3, At: events.At(at.Add(time.Hour)), Writer: "auditor-1"}
	x.Vouch, err = signing.SignExpiry(signer, x)
	must(err)
	log(s.Control("GOV", events.ControlExpiry), x)
	must(db.InsertTreeNodes(t.Context(), expiredShard, nodes))
	must(db.CommitEvidence(t.Context(), rows))
	note, err := tree.SignCheckpoint(signer, tree.Checkpoint{Shard: expiredShard, Size: merkle.Size(), Root: merkle.Root()})
	must(err)
	must(db.InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: expiredShard, Size: uint64(merkle.Size()), Root: merkle.Root(), Note: note, Created: at}))
	for done := false; !done; {
		done, err = db.Expire(t.Context(), write.ExpiryBatch{Shard: expiredShard, Tenant: "acme", Seqs: seqs, Records: []uint64{7}})
		must(err)
		time.Sleep(5 * time.Millisecond) // a mutation is under way
	}
	return e.ReadonlyDSN(), vkey
}

// Every command that reads evidence says of what expired that it did, when and
// under which policy, and shows the rest.
func TestReadersSayWhatExpired(t *testing.T) {
	dsn, vkey := expiredEvidence(t)
	dir := t.TempDir()
	key, zip := filepath.Join(dir, "key"), filepath.Join(dir, "s1.zip")
	if err := os.WriteFile(key, []byte(vkey), 0o600); err != nil {
		t.Fatal(err)
	}
	const why = "expired 2026-10-01T10:00:00Z under retention policy keep@0011223344556677"
	const unproved = "NOT proved: kind, subject, time and body digest of the 3 records whose texts expired"
	for _, tc := range []struct {
		args string
		code int
		want []string // in what it says, on either stream
		not  string
	}{
		{"chain --session s1", 0, []string{why}, "not a record"},
		{"chain --session s1 --json", 0, []string{why, `"record":null`, `"record_hash":"`}, ""},
		{"chain --session s1 --json --proved --key KEY", 0, []string{why, `"proved":true`, `"unproved":["kind","subject","broker_time","body_digest"]`}, ""},
		{"session s1", 0, []string{why}, "not a record"},
		{"session s1 --json", 0, []string{why, `"session_index":3`}, "problem"},
		{"calls", 0, []string{"tool-of-s2", "3 records of 1 session", why}, "tool-of-s1"},
		{"calls --session s1", 0, []string{"3 records of session s1", why}, "tool-of"},
		{"calls --session s2", 0, []string{"tool-of-s2"}, "expired"},
		{"findings --json", 0, []string{"drift-of-s2", "what they held is not in this list", why}, "drift-of-s1"},
		{"audit ask despite-no", 0, []string{why}, ""},
		{"verify", 0, []string{"holds", "the texts of 3 records expired under retention policy keep@0011223344556677", unproved}, ""},
		{"verify --session s1", 0, []string{"holds", "the texts of 3 records expired", unproved}, ""},
		{"verify --json", 0, []string{`"expired":3`, `"expired_by":{"keep@0011223344556677":3}`, unproved}, ""},
		{"verify --since 2026-10-01T09:00:02Z --until 2026-10-01T09:00:05Z", 0, []string{"holds", "the texts of 3 records expired", unproved}, ""},
		{"export --session s1 --out " + zip, 0, []string{"3 records", "rests on: a verification of all signed records"}, ""},
		{"verify --bundle " + zip, 0, []string{"holds", "the texts of 3 records expired", unproved}, ""},
		{"export --from 2026-10-01 --to 2026-10-02 --out " + zip + " --force", 0, []string{"6 records"}, ""},
		{"export --from 2026-10-01T00:00:00.5Z --to 2026-10-02T00:00:00.25Z --out " + zip + " --force", 0, []string{"from 2026-10-01T00:00:00.5Z to 2026-10-02T00:00:00.25Z written"}, ""},
		{"export --from 2026-10-03T00:00:00.5Z --to 2026-10-03T00:00:00.75Z --out " + zip + " --force", 1, []string{"2026-10-03T00:00:00.5Z to 2026-10-03T00:00:00.75Z"}, ""},
		{"export --from 2026-10-03T00:00:00.5Z --to 2026-10-03T00:00:00.75Z --format cef --out -", 1, []string{"2026-10-03T00:00:00.5Z to 2026-10-03T00:00:00.75Z"}, ""},
		{"verify --bundle " + zip, 0, []string{"holds", "the texts of 3 records expired", unproved}, ""},
		{"export --session s1 --format cef --out -", 1, []string{why, "3 records without a line", "among 0 records with their text there are none"}, "run countersign verify"},
		{"export --from 2026-10-01 --to 2026-10-02 --format cef --out -", 0, []string{why, "3 records without a line"}, ""},
		{"replay --session s1 --from clickhouse --key KEY", 1, []string{"cannot be replayed", why}, ""},
		{"verify --prove 2 --out " + filepath.Join(dir, "p"), 1, []string{why}, ""},
		{"conformance --session s1", 1, []string{why}, ""},
	} {
		args := append(strings.Fields(strings.Replace(tc.args, "KEY", key, 1)), "--clickhouse", dsn)
		if strings.HasPrefix(tc.args, "verify") || strings.HasPrefix(tc.args, "export") {
			args = append(args, "--key", key)
		}
		var out bytes.Buffer
		code := cli.Program().Run(t.Context(), args, ui.Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
		said := strings.Join(strings.Fields(out.String()), " ")
		if code != tc.code {
			t.Errorf("%s: exit %d: %s", tc.args, code, said)
		}
		for _, want := range tc.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in: %s", tc.args, want, said)
			}
		}
		if tc.not != "" && strings.Contains(said, tc.not) {
			t.Errorf("%s: %q in: %s", tc.args, tc.not, said)
		}
	}
}
