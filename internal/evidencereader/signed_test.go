package evidencereader

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/write"
)

// TestCosignedCheckpoint: lines that a user of the database adds to checkpoints put no witness's name
// on what is exported, and do not hide the checkpoint that a witness signed.
func TestCosignedCheckpoint(t *testing.T) {
	s := newShard(t, 150)
	w, v := evidencetest.NewWitness(t, "witness.example.com/w1")
	known := note.VerifierList(s.keys...)
	good, _, err := tree.Cosign(w, s.notes[100], known, nil, nil, created)
	ok(t, err)
	_, lines, _ := strings.Cut(strings.TrimPrefix(good, s.notes[100]), "— ")
	at := created
	insert := func(size uint64, text string) {
		at = at.Add(time.Hour)
		ok(t, write.New(s.DB.Pool()).InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: s.name, Size: size, Note: text, Created: at}))
	}
	insert(100, good)
	insert(100, s.notes[100]+"— "+strings.Replace(lines, "A", "B", 1)+"— "+lines) // a wrong signature of the witness in front of the right one
	junk := strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(&junk, "— audit.bigfour.example/w1 AAAA%04d\n", i)
	}
	insert(100, s.notes[100]+junk.String()) // more than a checkpoint may have
	insert(150, good)                       // an older checkpoint in the place of a newer one
	insert(150, s.notes[150]+"— audit.bigfour.example/w1 AAAAAAAA\n")
	for name, tc := range map[string]struct {
		last      uint64
		witnesses []note.Verifier
		want      string
	}{
		"the witness's":         {1, []note.Verifier{v}, good},
		"none that covers it":   {101, []note.Verifier{v}, ""},
		"no witness is trusted": {1, nil, ""},
	} {
		if got, err := s.CosignedCheckpoint(t.Context(), s.name, tc.last, s.keys, tc.witnesses); err != nil || got != tc.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, tc.want)
		}
	}
	mine := s.session("s-1")
	ok(t, s.AddProofs(t.Context(), &mine, s.keys))
	if mine.Checkpoint != s.notes[150] {
		t.Errorf("the newest checkpoint came with other lines:\n%s", mine.Checkpoint)
	}
	whole, err := s.TenantRange(t.Context(), s.name, "acme", created, created.Add(time.Hour), s.keys, nil)
	ok(t, err)
	if whole.Input.Checkpoint != s.notes[150] {
		t.Errorf("a range's checkpoint came with other lines:\n%s", whole.Input.Checkpoint)
	}
	one, err := s.SessionBundle(t.Context(), mine, s.keys)
	ok(t, err)
	if one.Checkpoint != s.notes[150] {
		t.Errorf("a session's bundle has other lines:\n%s", one.Checkpoint)
	}
	mine.Rows[len(mine.Rows)-1].Seq = 151
	if _, err := s.SessionBundle(t.Context(), mine, s.keys); err == nil || !strings.Contains(err.Error(), "record 151 of the session is not covered by a checkpoint yet") {
		t.Errorf("a record behind the newest checkpoint: %v", err)
	}
}

// session reads a session of this shard.
func (s *shard) session(name string) Session {
	s.t.Helper()
	parts, err := s.Session(s.t.Context(), "acme", name)
	ok(s.t, err)
	return parts[len(parts)-1] // the other shards have the session, too
}

// TestUnsignedControlRecords: records about keys and expiries that no checkpoint key signed, which every
// service may write, fail the verification of the whole log alone: sessions and bundles leave them out.
func TestUnsignedControlRecords(t *testing.T) {
	s := newShard(t, 150)
	space, at := subject.Space{}, events.At(created)
	skey, _, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{9}, 32)))
	ok(t, err)
	stranger, err := signing.CheckpointSigner(skey)
	ok(t, err)
	junk, err := signing.NewPrivateKey(bytes.Repeat([]byte{5}, 32))
	ok(t, err)
	bare := events.KeyRecord{KeyID: junk.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(junk.Public()), CreatedAt: at}
	vouched := bare
	vouched.Vouch, err = signing.SignKeyRecord(stranger, vouched)
	ok(t, err)
	again, err := events.DecodeRecord[events.KeyRecord](s.log[0].Body)
	ok(t, err)
	again.CreatedAt = events.At(created.Add(-time.Hour)) // the vouch does not cover it
	retired := events.KeyRetirement{KeyID: s.receiptKey().ID, Use: "receipt", RetiredAt: at}
	expiry := events.Expiry{ExpiryID: "e", Shard: s.name, State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: "p", Records: 1, At: at, Writer: "w",
		Sessions: []events.ExpiredSession{{Session: "s-1", Index: 1, Sequences: []events.Span{{2, 2}}}}}
	before := len(s.log)
	for _, m := range []struct {
		kind string
		body any
	}{{events.ControlKey, bare}, {events.ControlKey, vouched}, {events.ControlKey, again}, {events.ControlKeyRetired, retired}, {events.ControlExpiry, expiry}} {
		seq := uint64(len(s.log) + 1)
		s.log = append(s.log, events.LogMessage{Seq: seq, Subject: space.Control("GOV", m.kind), Body: encode(t, m.body), Time: created.Add(time.Duration(seq) * time.Second)})
	}
	s.audit(s.log[before:])

	mine := s.session("s-1")
	ok(t, s.AddProofs(t.Context(), &mine, s.keys))
	if len(mine.Keys) != 1 || !mine.Keys[0].CreatedAt.Equal(created) || len(mine.Retired) != 0 {
		t.Errorf("keys %+v, retired %+v", mine.Keys, mine.Retired)
	}
	if rep := verify.Session(verify.SessionInput{Shard: s.name, Tenant: "acme", Session: "s-1", Keys: s.keys, Rows: mine.Rows, Proofs: mine.Proofs,
		Checkpoint: verify.Published{Source: "table checkpoints", Text: mine.Checkpoint}, ReceiptKeys: mine.Keys, Retired: mine.Retired}); !rep.OK {
		t.Errorf("the session does not hold: %v", rep.Findings)
	}
	whole, err := s.TenantRange(t.Context(), s.name, "acme", created, created.Add(time.Hour), s.keys, nil)
	ok(t, err)
	one, err := s.SessionBundle(t.Context(), mine, s.keys)
	ok(t, err)
	if len(whole.Input.Keys) != 1 || len(one.Keys) != 1 {
		t.Errorf("the range has keys %+v, the session's bundle %+v", whole.Input.Keys, one.Keys)
	}
	every := func(events.Expiry) bool { return true }
	for keys, want := range map[*[]note.Verifier]int{&s.keys: 0, {}: 1} {
		if list, err := s.expiryRecords(t.Context(), s.name, *keys, every); err != nil || len(list) != want {
			t.Errorf("%d expiries with %d keys, want %d; %v", len(list), len(*keys), want, err)
		}
	}
	if rep := s.verify(VerifyOptions{}); rep.Total != 2 || rep.ByCode[verify.CodeKeyVouch] != 2 {
		t.Errorf("the whole log: %v", rep.Findings)
	}
	if rep := s.verify(VerifyOptions{Until: created.Add(140 * time.Second)}); !rep.OK {
		t.Errorf("a part without these records: %v", rep.Findings)
	}
}
