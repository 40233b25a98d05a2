package verify_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

const testPolicy = "acme@0011223344556677"

// expiryOf is an expiry record of a session as it stands now.
func expiryOf(f *evidencetest.Fixture, session string) events.Expiry {
	f.T.Helper()
	var seqs []uint64
	for _, b := range f.Built {
		if b.Record.Session == session {
			seqs = append(seqs, b.Record.Seq)
		}
	}
	return events.Expiry{ExpiryID: "x-" + session, Shard: evidencetest.Shard, State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: testPolicy,
		Sessions: []events.ExpiredSession{{Session: session, Index: 1, Sequences: retention.JoinSpans(seqs)}}, Records: uint64(len(seqs)), At: events.At(evidencetest.Start), Writer: "auditor-1"}
}

// signExpiry signs an expiry record with the checkpoint key.
func signExpiry(f *evidencetest.Fixture, e events.Expiry) events.Expiry {
	f.T.Helper()
	var err error
	e.Vouch, err = signing.SignExpiry(f.Signer, e)
	evidencetest.Must(f.T, err)
	return e
}

// logExpiry logs an expiry record.
func logExpiry(f *evidencetest.Fixture, e events.Expiry) verify.ExpiryRecord {
	f.T.Helper()
	b := f.Log(subject.Space{}.Control("GOV", events.ControlExpiry), nil, f.Encode(e))
	if len(b.Record.Redactions) > 0 {
		f.T.Fatalf("the expiry record is redacted: %+v", b.Record.Redactions)
	}
	return verify.ExpiryRecord{Row: b.Row()}
}

// without gives the rows after the texts of a session are gone.
func without(rows []evidence.Row, session string) []evidence.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		if rows[i].Session == session {
			rows[i].Record = ""
		}
	}
	return rows
}

// An expired session verifies, in its shard and by itself, and goes on.
func TestExpiredSessionVerifies(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	x := logExpiry(f, signExpiry(f, expiryOf(f, "sess-a")))
	f.Admit("sess-a", "0199a000-0000-7000-8000-000000000009", events.Allow, evidencetest.PlainEvent) // it goes on
	rows := f.Rows()
	last := uint64(len(rows))
	gone := slices.Clone(rows)
	copy(gone, without(rows[:x.Row.Seq], "sess-a"))
	opts := f.Options()
	opts.Expiries = []verify.ExpiryRecord{x}
	rep := evidencetest.VerifyRows(opts, gone)
	if !rep.OK || rep.Expired != 7 || rep.ExpiredBy[testPolicy] != 7 || rep.Records != int(last) || rep.Decisions != 2 || rep.Root != f.Tree.Root() || rep.Sessions != 2 {
		t.Fatalf("%+v", rep)
	}
	if rep := evidencetest.VerifyRows(opts, rows); !rep.OK || rep.Expired != 0 || rep.Decisions != 3 {
		t.Errorf("before the texts are gone: %+v", rep)
	}
	if rep := evidencetest.VerifyRows(f.Options(), gone); rep.ByCode[verify.CodeTextMissing] != 7 {
		t.Errorf("nobody says why: %s", codes(rep))
	}
	in := f.SessionInput("sess-a")
	in.Rows = without(in.Rows[:7], "sess-a")
	in.Rows = append(in.Rows, f.Rows()[last-2], f.Rows()[last-1])
	var err error
	x.Proof, err = tree.InclusionProof(f, f.Tree.Size(), x.Row.Seq)
	evidencetest.Must(t, err)
	in.Expiries = []verify.ExpiryRecord{x}
	if rep := verify.Session(in); !rep.OK || rep.Expired != 7 || rep.Records != 9 {
		t.Errorf("%+v", rep)
	}
	in.Expiries[0].Proof[0][0] ^= 1
	if got := codes(verify.Session(in)); got != "text_missing@14" {
		t.Errorf("an expiry record that is not in the log: %s", got)
	}
	in.Expiries = nil
	if got := codes(verify.Session(in)); got != "text_missing@2" {
		t.Errorf("no expiry record: %s", got)
	}
}

// A text that is missing without a signed record of the log is found, and so is every other
// change to rows without a text.
func TestMissingTextIsFound(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	good := logExpiry(f, signExpiry(f, expiryOf(f, "sess-b")))
	unsigned := logExpiry(f, expiryOf(f, "sess-a"))
	foreign := signExpiry(f, expiryOf(f, "sess-a"))
	foreign.Shard = "GOV@other"
	later := expiryOf(f, "sess-a")
	later.Sessions[0].Sequences = []events.Span{{2, 60}}
	later.Records = 59
	others := []verify.ExpiryRecord{unsigned, logExpiry(f, signExpiry(f, later)), logExpiry(f, foreign), logExpiry(f, signExpiry(f, events.Expiry{ExpiryID: "x", Shard: evidencetest.Shard, State: events.ErasureDone,
		Part: 1, Parts: 1, Tenant: "acme", Policy: testPolicy, Sessions: expiryOf(f, "sess-a").Sessions, At: events.At(evidencetest.Start)}))}
	opts := f.Options()
	opts.Expiries = append([]verify.ExpiryRecord{good}, others...)
	clean := without(f.Rows(), "sess-b")
	if rep := evidencetest.VerifyRows(opts, clean); !rep.OK || rep.Expired != 2 {
		t.Fatalf("%s %+v", codes(rep), rep)
	}
	empty := func(i int) func([]evidence.Row) { return func(r []evidence.Row) { r[i].Record = "" } }
	for name, tc := range map[string]struct {
		change func([]evidence.Row)
		want   string
	}{
		"another session's, named by records that do not count": {empty(1), "text_missing@2 decision_without_request@3"},
		"of no session":            {empty(10), "text_missing@11"},
		"a control record":         {empty(11), "text_missing@12"},
		"a key":                    {empty(0), "text_missing@1 decision_key_unknown@3 approval_key_unknown@10"},
		"the expiry record itself": {empty(13), "text_missing@14 text_missing@14"},
		"its hash":                 {func(r []evidence.Row) { r[4].RecordHash[0] ^= 1 }, "root_mismatch@18"},
		"its session":              {func(r []evidence.Row) { r[4].Session = "sess-a" }, "subject_mismatch@5 column_mismatch@5"},
		"its tenant":               {func(r []evidence.Row) { r[4].Tenant = "beta" }, "subject_mismatch@5 column_mismatch@5"},
		"its kind":                 {func(r []evidence.Row) { r[4].Kind = evidence.KindCall }, "subject_mismatch@5"},
		"session and subject": {func(r []evidence.Row) {
			r[4].Session = "sess-c"
			r[4].Subject = strings.Replace(r[4].Subject, "sess-b", "sess-c", 1)
		}, "column_mismatch@5"},
		"another expiry record in its place": {func(r []evidence.Row) { r[13].Record = r[14].Record; r[13].RecordHash = r[14].RecordHash }, "column_mismatch@14 root_mismatch@18 text_missing@14"},
	} {
		rows := slices.Clone(clean)
		tc.change(rows)
		rep := evidencetest.VerifyRows(opts, rows)
		got := codes(rep)
		if name == "the expiry record itself" {
			got = strings.Repeat(" "+got, rep.ByCode[verify.CodeTextMissing])[1:]
		}
		if rep.OK || got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if rep := evidencetest.VerifyRows(verify.Options{Shard: evidencetest.Shard, Keys: []note.Verifier{}, Checkpoints: opts.Checkpoints, Expiries: opts.Expiries}, clean); rep.ByCode[verify.CodeTextMissing] != 2 {
		t.Errorf("without a key an expiry record says nothing: %s", codes(rep))
	}
	rows := slices.Clone(clean)
	rows = slices.Delete(rows, 4, 5) // a row of it is gone
	if got := codes(evidencetest.VerifyRows(opts, rows)); !strings.Contains(got, "gap@5") || !strings.Contains(got, "session_chain@6") {
		t.Errorf("%s", got)
	}
}

// Control records keep their text, even if a signed expiry record names them.
func TestControlRecordsNeverExpire(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	e := expiryOf(f, "sess-b")
	e.Sessions[0].Sequences, e.Records = []events.Span{{12, 12}}, 1
	x := logExpiry(f, signExpiry(f, e))
	opts := f.Options()
	opts.Expiries = []verify.ExpiryRecord{x}
	rows := f.Rows()
	rows[11].Record = ""
	if got := codes(evidencetest.VerifyRows(opts, rows)); got != "text_missing@12" {
		t.Errorf("%s", got)
	}
}

// A part of a shard can begin in the middle of what expired, and end before the
// record that says so.
func TestExpiredPart(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	x := logExpiry(f, signExpiry(f, expiryOf(f, "sess-a")))
	f.Admit("sess-a", "0199a000-0000-7000-8000-000000000009", events.Allow, evidencetest.PlainEvent)
	rows := f.Rows()
	copy(rows, without(rows[:x.Row.Seq], "sess-a"))
	var err error
	x.Proof, err = tree.InclusionProof(f, f.Tree.Size(), x.Row.Seq)
	evidencetest.Must(t, err)
	for _, part := range [][2]int{{3, 9}, {6, 14}, {7, len(rows)}} {
		opts := f.Options()
		opts.Expiries, opts.ReceiptKeys = []verify.ExpiryRecord{x}, []events.KeyRecord{f.KeyRecord()}
		frontier, err := f.ReadHashes(tree.FrontierIndexes(int64(part[0])))
		evidencetest.Must(t, err)
		opts.Part = &verify.Part{First: uint64(part[0] + 1), Frontier: frontier, RequestsFrom: uint64(part[0] + 1)}
		v := verify.NewVerifier(opts)
		for _, r := range rows[part[0]:part[1]] {
			v.Row(r)
		}
		proof, err := tree.ConsistencyProof(f, int64(part[1]), f.Tree.Size())
		evidencetest.Must(t, err)
		if rep := v.FinishPart(proof); !rep.OK || rep.Expired == 0 {
			t.Errorf("%v: %s", part, codes(rep))
		}
	}
}
