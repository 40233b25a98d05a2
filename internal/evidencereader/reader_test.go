package evidencereader

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/write"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// shards counts the shards of the shared database.
var shards int

var ok = testkit.OK

var created = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// shard is evidence in a real database.
type shard struct {
	Reader
	t      testing.TB
	name   string
	signer note.Signer
	keys   []note.Verifier
	log    []events.LogMessage
	built  []build.Built
	tree   tree.Tree
	notes  map[int]string // checkpoints, by size

	chain   *build.Chain
	builder *build.Builder
}

// newShard stores n records in batches, each with its checkpoint.
func newShard(t testing.TB, n int) *shard {
	t.Helper()
	shards++
	s := &shard{Reader: Reader{DB: read.New(enginetest.Pool(t)), Stream: "GOV"}, t: t, name: fmt.Sprintf("GOV@20261120T0900%02d.000000000Z", shards), notes: map[int]string{}}
	skey, vkey, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{3}, 32)))
	ok(t, err)
	s.signer, err = signing.CheckpointSigner(skey)
	ok(t, err)
	v, err := signing.CheckpointVerifier(vkey)
	ok(t, err)
	s.keys = []note.Verifier{v}
	s.fill(n)
	return s
}

// fill makes a log: a key, then calls of a few sessions, four messages each.
func (s *shard) fill(n int) {
	s.t.Helper()
	space := subject.Space{}
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{4}, 32))
	ok(s.t, err)
	add := func(subj string, header map[string][]string, body []byte) {
		seq := uint64(len(s.log) + 1)
		s.log = append(s.log, events.LogMessage{Seq: seq, Subject: subj, Header: header, Body: body, Time: created.Add(time.Duration(seq) * time.Second)})
	}
	k := events.KeyRecord{KeyID: key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(created)}
	k.Vouch, err = signing.SignKeyRecord(s.signer, k)
	ok(s.t, err)
	add(space.Control("GOV", events.ControlKey), nil, encode(s.t, k))
	for i := 0; len(s.log) < n; i++ {
		session, id := fmt.Sprint("s-", i%5), fmt.Sprint("d-", i)
		d := encode(s.t, events.Decision{DecisionID: id, Tenant: "acme", Session: session, Verdict: events.Allow, Reasons: []events.Reason{}})
		signature, err := key.SignDetached(signing.TypeRecord, d)
		ok(s.t, err)
		add(space.Request("acme", "rt1", "agenthook", session), map[string][]string{events.HeaderDecisionID: {id}}, []byte(`{"n":1}`))
		add(space.Decision("acme", "allow", session), map[string][]string{events.HeaderSignature: {signature}}, d)
		add(space.Event("acme", "rt1", "agenthook", session, "PreToolUse"), nil, fmt.Appendf(nil, `{"n":%d}`, i))
		add(space.Control("GOV", events.ControlTick), nil, encode(s.t, events.Tick{Shard: "GOV"}))
	}
	s.log = s.log[:n]
	s.builder, err = build.NewBuilder(s.name, space)
	ok(s.t, err)
	s.chain = build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	s.audit(s.log)
}

// audit makes evidence of messages, in batches.
func (s *shard) audit(log []events.LogMessage) {
	s.t.Helper()
	for part := range slices.Chunk(log, 50) {
		built, err := s.builder.BuildBatch(s.chain, part, evidencetest.ExampleKeys{})
		ok(s.t, err)
		s.chain.Commit()
		s.built = append(s.built, built...)
		s.store(built)
	}
}

// add appends messages of sessions and their surroundings to the log, for each one
// of every kind that a derived table has rows of, and makes evidence of them.
func (s *shard) add(sessions ...string) {
	s.t.Helper()
	before := len(s.log)
	for _, session := range sessions {
		s.addSession(session)
	}
	s.audit(s.log[before:])
}

func (s *shard) addSession(session string) {
	s.t.Helper()
	space, key := subject.Space{}, s.receiptKey()
	add := func(subj string, body any) {
		seq := uint64(len(s.log) + 1)
		text := encode(s.t, body)
		var header map[string][]string
		if a, is := body.(events.Approval); is {
			signature, err := key.SignDetached(signing.TypeRecord, text)
			ok(s.t, err)
			header, subj = map[string][]string{events.HeaderSignature: {signature}}, space.Approval("acme", a.Status, a.WorkflowID)
		}
		s.log = append(s.log, events.LogMessage{Seq: seq, Subject: subj, Header: header, Body: text, Time: created.Add(time.Duration(seq) * time.Second)})
	}
	at := events.At(created)
	micros := int64(7)
	add(space.Event("acme", "rt1", "agenthook", session, "PreToolUse"), map[string]any{"n": 1, "password": "hunter2hunter2"})
	add(space.Call("acme", "completed", session), events.Call{CallID: "c-" + session, Tenant: "acme", Source: "rt1", Session: session, ToolCallID: "t-1", Occurrence: 1, Tool: "fs.read",
		State: events.CallCompleted, Findings: []string{"executed_despite_deny"}, Timeline: []events.TimelineEntry{{Step: "requested", Seq: 1, At: at, EventID: "e-1"}}, Durations: &events.CallDurations{Ran: &micros}})
	add(space.Finding("acme", "high", session), events.Finding{FindingID: "f-" + session, Rule: "executed_despite_deny", Severity: events.SeverityHigh, Tenant: "acme", Session: session, EventIDs: []string{"e-1"}, Seqs: []uint64{1, 2}, DetectedAt: at})
	add("", events.Approval{WorkflowID: "w-" + session, Tenant: "acme", Status: "approved", Session: session, Approver: "ann", RequestedAt: at, Step: 1, Calls: []string{"t-1"}})
	add(space.Control("GOV", "policy"), map[string]any{"revision": 3, "digest": "d", "author": "ann", "policies": []any{map[string]any{"name": "base", "digest": "e"}}})
}

// receiptKey signs decisions and approvals.
func (s *shard) receiptKey() signing.PrivateKey {
	s.t.Helper()
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{4}, 32))
	ok(s.t, err)
	return key
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := events.Encode(v)
	ok(t, err)
	return b
}

func stored(b build.Built) storage.EvidenceRow {
	r := b.Row()
	return storage.EvidenceRow{Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject,
		BrokerTime: r.BrokerTime, BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: b.Record.SessionIndex}
}

func (s *shard) store(built []build.Built) {
	s.t.Helper()
	var rows []storage.EvidenceRow
	var nodes []storage.TreeNode
	for _, b := range built {
		rows = append(rows, stored(b))
		for _, n := range s.tree.Append(b.Hash) {
			nodes = append(nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
	}
	ok(s.t, write.New(s.DB.Pool()).InsertTreeNodes(s.t.Context(), s.name, nodes))
	ok(s.t, write.New(s.DB.Pool()).CommitEvidence(s.t.Context(), rows))
	c := tree.Checkpoint{Shard: s.name, Size: s.tree.Size(), Root: s.tree.Root()}
	text, err := tree.SignCheckpoint(s.signer, c)
	ok(s.t, err)
	s.notes[int(c.Size)] = text
	ok(s.t, write.New(s.DB.Pool()).InsertCheckpoint(s.t.Context(), storage.Checkpoint{Shard: s.name, Size: uint64(c.Size), Root: c.Root, Note: text, Created: created}))
}

// another inserts a row beside those that are there.
func (s *shard) another(seq uint64, change func(*storage.EvidenceRow)) {
	s.t.Helper()
	r := stored(s.built[seq-1])
	change(&r)
	ok(s.t, write.New(s.DB.Pool()).InsertEvidence(s.t.Context(), fmt.Sprint("another", seq, r.Record), []storage.EvidenceRow{r}))
}

func (s *shard) verify(o VerifyOptions) verify.Report {
	s.t.Helper()
	o.Keys = s.keys
	rep, err := s.Verify(s.t.Context(), s.name, o)
	ok(s.t, err)
	return rep
}

// The report does not depend on how the rows are cut, or on how many look at
// them: not of good rows, and not of bad ones.
func TestVerifyInStretches(t *testing.T) {
	s := newShard(t, 205)
	plans := []VerifyOptions{{Workers: 1}, {Workers: 1, stretch: 2}, {Workers: 3, stretch: 1}, {Workers: 2, stretch: 7}, {Workers: 8, stretch: 64}, {Workers: 4, stretch: 1000}}
	same := func() verify.Report {
		t.Helper()
		var first []byte
		var rep verify.Report
		for _, o := range plans {
			done := uint64(0)
			o.Progress = func(d, total uint64) {
				if d < done || d > total {
					t.Errorf("%d of %d after %d", d, total, done)
				}
				done = d
			}
			rep = s.verify(o)
			text, err := json.Marshal(rep)
			ok(t, err)
			if first == nil {
				first = text
			} else if !bytes.Equal(text, first) {
				t.Fatalf("%d workers, stretches of %d:\n%s\n%s", o.Workers, o.stretch, text, first)
			}
		}
		return rep
	}
	if rep := same(); !rep.OK || rep.Records != 205 || rep.Checkpoints != 5 || rep.Sessions != 5 {
		t.Fatalf("%+v", rep)
	}
	s.another(64, func(r *storage.EvidenceRow) {})
	s.another(65, func(r *storage.EvidenceRow) { r.Record = strings.Replace(r.Record, `"v":1`, `"v":2`, 1) })
	s.another(128, func(r *storage.EvidenceRow) { r.RecordHash[0]++ })
	s.another(200, func(r *storage.EvidenceRow) { r.Seq = 1 << 50 }) // as far away as it likes
	rep := same()
	want := map[verify.Code]int{verify.CodeDuplicate: 1, verify.CodeConflict: 2, verify.CodeGap: 1, verify.CodeColumn: 1}
	for code, n := range want {
		if rep.ByCode[code] != n {
			t.Errorf("%s: %d, want %d in %v", code, rep.ByCode[code], n, rep.Findings)
		}
	}
}

// An error in the middle ends everything.
func TestVerifyEnds(t *testing.T) {
	s := newShard(t, 200)
	broken := errors.New("the log is gone")
	_, err := s.Verify(t.Context(), s.name, VerifyOptions{Keys: s.keys, Workers: 3, stretch: 5, Compare: -1,
		Log: func(_ context.Context, seq uint64) (*events.LogMessage, error) {
			if seq > 100 {
				return nil, broken
			}
			return &s.log[seq-1], nil
		}})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Verify(ctx, s.name, VerifyOptions{Keys: s.keys, Workers: 3, stretch: 5, Progress: func(done, total uint64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Decisions are compared with the log, the newest first.
func TestVerifyCompares(t *testing.T) {
	s := newShard(t, 201)
	asked := 0
	o := VerifyOptions{Workers: 1, Compare: 10, Log: func(_ context.Context, seq uint64) (*events.LogMessage, error) {
		asked++
		m := s.log[seq-1]
		if seq == 199 {
			m.Body = append(bytes.Clone(m.Body), ' ')
		}
		return &m, nil
	}}
	if rep := s.verify(o); asked != 10 || rep.Compared != 10 || rep.ByCode[verify.CodeLog] != 1 || rep.Findings[0].Seq != 199 {
		t.Errorf("%d asked, %+v", asked, rep)
	}
	if o.Compare = -1; s.verify(o).Compared != 50 {
		t.Error("not all")
	}
	if o.Compare = 0; s.verify(o).Compared != 0 {
		t.Error("not none")
	}
}

// A signature that only the log proves is checked there, however old its record is.
func TestVerifyComparesMaskedSignatures(t *testing.T) {
	s := newShard(t, 50)
	forge := func(signer byte) {
		key, err := signing.NewPrivateKey(bytes.Repeat([]byte{signer}, 32))
		ok(t, err)
		body := encode(t, events.Approval{WorkflowID: fmt.Sprint("w", signer), Tenant: "acme", Status: "approved", Session: "s-1", Tool: "ghp_0123456789abcdefghijABCDEFGHIJ012345"})
		signature, err := key.SignDetached(signing.TypeRecord, body)
		ok(t, err)
		seq := uint64(len(s.log) + 1)
		s.log = append(s.log, events.LogMessage{Seq: seq, Subject: subject.Space{}.Approval("acme", "approved", fmt.Sprint("w", signer)), Header: map[string][]string{events.HeaderSignature: {signature}},
			Body: body, Time: created.Add(time.Duration(seq) * time.Second)})
	}
	forge(4) // the admitter's key
	forge(5)
	s.audit(s.log[50:])
	s.add("s-1")
	o := VerifyOptions{Compare: 1, Log: func(_ context.Context, seq uint64) (*events.LogMessage, error) { return &s.log[seq-1], nil }}
	if rep := s.verify(o); rep.Total != 1 || rep.Findings[0].Code != verify.CodeApprovalKey || rep.Findings[0].Seq != 52 || rep.SignaturesUnchecked != 0 || rep.Compared != 3 {
		t.Errorf("%+v", rep)
	}
	if o.Compare = 0; s.verify(o).SignaturesUnchecked != 2 {
		t.Error("compared although nothing was to be")
	}
	o.SignaturesOnly, o.Keys = true, s.keys
	if rep := s.verify(o); rep.Total != 1 || rep.Findings[0].Code != verify.CodeApprovalKey || rep.SignaturesUnchecked != 0 || rep.Compared != 2 {
		t.Errorf("only those: %+v", rep)
	}
	if parts, _, err := s.ReadProvedSession(t.Context(), "acme", "s-1", "", o); err != nil || len(parts) == 0 || parts[len(parts)-1].Shard != s.name {
		t.Errorf("with them a session has %d parts: %v", len(parts), err)
	}
}

// A session's report has what the verification of its shard found about its records, although the
// database answers the second question for retired keys otherwise.
func TestProvedSessionHasFindingsOfItsShard(t *testing.T) {
	s := newShard(t, 50)
	k := events.KeyRetirement{KeyID: s.receiptKey().ID, Use: "receipt", RetiredAt: events.At(created)}
	var err error
	k.Vouch, err = signing.SignRetirement(s.signer, k)
	ok(t, err)
	s.log = append(s.log, events.LogMessage{Seq: 51, Subject: subject.Space{}.Control("GOV", events.ControlKeyRetired), Body: encode(t, k), Time: created.Add(51 * time.Second)})
	s.audit(s.log[50:])
	for i := range verify.DefaultMaxFindings { // the findings of others come first
		s.add(fmt.Sprint("s-before-", i))
	}
	s.add("s-late") // with an approval under the retired key
	a := attack(t, s)
	a.do("RENAME TABLE evidence TO evidence_first")
	defer a.do("RENAME TABLE evidence_first TO evidence")
	a.do(`CREATE VIEW evidence DEFINER = CURRENT_USER SQL SECURITY DEFINER AS SELECT * FROM evidence_first
		WHERE NOT endsWith(subject, '.key_retired') OR (SELECT count() FROM system.processes WHERE query LIKE '%multiIf(kind%' AND query NOT LIKE '%system.processes%') = 0`)
	defer a.do("DROP VIEW evidence SYNC")
	parts, _, err := s.ReadProvedSession(t.Context(), "acme", "s-late", "", VerifyOptions{Keys: s.keys})
	ok(t, err)
	part := parts[0]
	ok(t, s.AddProofs(t.Context(), &part.Session, s.keys))
	if len(part.Retired) != 0 {
		t.Fatal("the second answer is not another one")
	}
	rep := verify.Session(verify.SessionInput{Shard: s.name, Tenant: "acme", Session: "s-late", Keys: s.keys, Checkpoint: verify.Published{Text: part.Checkpoint}, Rows: part.Rows, Proofs: part.Proofs, ReceiptKeys: part.Keys})
	if !rep.OK {
		t.Fatalf("%+v", rep)
	}
	held := rep
	if part.AddFindings(&rep); rep.OK || rep.Total != 1 || rep.Findings[0].Code != verify.CodeApprovalRetired {
		t.Errorf("%+v", rep)
	}
	parts, _, err = s.ReadProvedSession(t.Context(), "acme", "s-late", "", VerifyOptions{Keys: s.keys, maxFindings: 10})
	ok(t, err)
	if parts[0].AddFindings(&held); held.OK || held.Total != 1 || held.Findings[0].Code != verify.CodeIncomplete {
		t.Errorf("most findings are not listed: %+v", held)
	}
}

// The database cannot choose which of the newest decisions are compared. Where it has none yet, those
// that come meanwhile are compared.
func TestVerifyDemandsComparisons(t *testing.T) {
	s := newShard(t, 100)
	a := attack(t, s)
	a.do("RENAME TABLE evidence TO evidence_first")
	defer a.do("RENAME TABLE evidence_first TO evidence")
	for first, want := range map[string]struct {
		compared int
		codes    map[verify.Code]int
	}{
		"kind != 'decision' OR seq > 90":       {3, map[verify.Code]int{verify.CodeLog: 1}},
		"kind NOT IN ('decision', 'approval')": {25, nil},
	} {
		a.do(`CREATE VIEW evidence DEFINER = CURRENT_USER SQL SECURITY DEFINER AS SELECT * FROM evidence_first
			WHERE ` + first + ` OR (SELECT count() FROM system.processes WHERE query LIKE '%ORDER BY shard DESC, seq DESC LIMIT%' AND query NOT LIKE '%system.processes%') = 0`)
		rep := s.verify(VerifyOptions{Compare: 10, Log: func(_ context.Context, seq uint64) (*events.LogMessage, error) { return &s.log[seq-1], nil }})
		a.do("DROP VIEW evidence SYNC")
		if rep.Decisions != 25 || rep.Compared != want.compared || !maps.Equal(rep.ByCode, want.codes) {
			t.Errorf("%s: %+v", first, rep)
		}
	}
}

// A time range is proved as a part of the tree, with the checkpoints in it and kept ones.
func TestVerifyParts(t *testing.T) {
	s := newShard(t, 400)
	at := func(seq int) time.Time { return created.Add(time.Duration(seq) * time.Second) }
	const before = 5
	for _, tc := range []struct{ since, until, first, last int }{{1, 10, 1, 9}, {390, 500, 390, 400}, {0, 50, 1, 49}, {220, 0, 220, 400}, {77, 78, 77, 77}, {202, 251, 202, 250}} {
		o := VerifyOptions{Workers: 2, stretch: 30, leadSize: before}
		if tc.since > 0 {
			o.Since = at(tc.since)
		}
		if tc.until > 0 {
			o.Until = at(tc.until)
		}
		from := max(tc.first-before, 1) // what is just before is read with it
		if rep := s.verify(o); !rep.OK || int(rep.From) != from || int(rep.To) != tc.last || rep.Records != tc.last-from+1 || rep.Signed != 400 {
			t.Errorf("%+v: %+v", tc, rep)
		}
	}
	s.another(300, func(r *storage.EvidenceRow) {})
	if rep := s.verify(VerifyOptions{Since: at(290), Until: at(310)}); rep.ByCode[verify.CodeDuplicate] != 1 {
		t.Errorf("%+v", rep)
	}
	if rep := s.verify(VerifyOptions{Since: at(310), leadSize: before}); !rep.OK {
		t.Errorf("%+v", rep)
	}
	if _, err := s.Verify(t.Context(), s.name, VerifyOptions{Keys: s.keys, Since: at(1000)}); !errors.Is(err, ErrEmptyRange) {
		t.Error(err)
	}
}

// Proofs that are made together are those that are made one by one.
func TestInclusion(t *testing.T) {
	s := newShard(t, 150)
	seqs := []uint64{1, 2, 3, 64, 65, 128, 149, 150, 7, 7}
	for _, size := range []int64{150, 100, 50} {
		for _, seq := range seqs {
			proofs, err := s.InclusionProofs(t.Context(), s.name, size, []uint64{seq, 1})
			if int64(seq) > size {
				if err == nil {
					t.Errorf("%d in %d", seq, size)
				}
				continue
			}
			ok(t, err)
			c, err := tree.PeekCheckpoint(s.notes[int(size)])
			ok(t, err)
			if !tree.CheckInclusion(proofs[0], size, c.Root, seq, s.built[seq-1].Hash) || !tree.CheckInclusion(proofs[1], size, c.Root, 1, s.built[0].Hash) {
				t.Errorf("%d in %d: a false proof", seq, size)
			}
		}
	}
	e, err := s.Extension(t.Context(), s.name, verify.Published{Text: s.notes[50]}, 150)
	ok(t, err)
	older, _ := tree.PeekCheckpoint(s.notes[50])
	newer, _ := tree.PeekCheckpoint(s.notes[150])
	if !tree.CheckConsistency(e.Proof, older, newer) {
		t.Error("a false extension")
	}
	text, err := s.ProofOf(t.Context(), s.name, 99)
	ok(t, err)
	if rep, rec, err := verify.Proof(verify.ProofInput{Text: text, Keys: s.keys}); err != nil || !rep.OK || rec.Seq != 99 {
		t.Errorf("%v %+v", err, rep)
	}
	if _, err := s.ProofOf(t.Context(), s.name, 999); !errors.Is(err, storage.ErrNotFound) {
		t.Error(err)
	}
	parts, err := s.Session(t.Context(), "acme", "s-1")
	ok(t, err)
	mine := parts[len(parts)-1] // the other shards have the session, too
	ok(t, s.AddProofs(t.Context(), &mine, s.keys))
	if mine.Shard != s.name || len(mine.Proofs) != len(mine.Rows) || len(mine.Keys) != 1 || len(mine.Retired) != 0 {
		t.Errorf("%s %+v", mine.Shard, mine.Keys)
	}
}

// TestSessionWithARowMissing: verification of a session with a deleted row names the row, and the
// proofs beside it that cannot be made.
func TestSessionWithARowMissing(t *testing.T) {
	s := newShard(t, 150)
	parts, err := s.Session(t.Context(), "acme", "s-1")
	ok(t, err)
	mine := parts[len(parts)-1]
	victim, after := mine.Rows[3].Seq, mine.Rows[4].Seq
	db, err := sql.Open("clickhouse", enginetest.Engine(t).DSN())
	ok(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE evidence DELETE WHERE shard = '%s' AND seq = %d SETTINGS mutations_sync = 2", s.name, victim))
	ok(t, err)
	parts, err = s.Session(t.Context(), "acme", "s-1")
	ok(t, err)
	mine = parts[len(parts)-1]
	if err := s.AddProofs(t.Context(), &mine, s.keys); !IsDamaged(err) {
		t.Fatalf("the tree lacks a hash: %v", err)
	}
	rep := verify.Session(verify.SessionInput{Shard: s.name, Tenant: "acme", Session: "s-1", Keys: s.keys, Rows: mine.Rows, Proofs: mine.Proofs,
		Checkpoint: verify.Published{Source: "table checkpoints", Text: mine.Checkpoint}, ReceiptKeys: mine.Keys})
	chain, unproved := 0, 0
	for _, p := range rep.Findings {
		switch {
		case p.Code == verify.CodeChain && p.Seq == after:
			chain++
		case p.Code == verify.CodeInclusion && strings.Contains(p.Detail, "missing or damaged"):
			unproved++
		case p.Code == verify.CodeInclusion:
			t.Errorf("a row is said to be another than was signed: %s", p.Detail)
		}
	}
	if chain == 0 || unproved == 0 || len(mine.Keys) != 1 {
		t.Errorf("%d breaks of the chain, %d of %d rows without a proof, %d keys", chain, unproved, len(mine.Rows), len(mine.Keys))
	}
}
