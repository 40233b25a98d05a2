package evidence

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const testPolicy = "acme@0011223344556677"

// expiryOf is an expiry record of a session as it stands now.
func (f *fixture) expiryOf(session string) events.Expiry {
	f.t.Helper()
	var seqs []uint64
	for _, b := range f.built {
		if b.Record.Session == session {
			seqs = append(seqs, b.Record.Seq)
		}
	}
	return events.Expiry{ExpiryID: "x-" + session, Shard: testShard, State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: testPolicy,
		Sessions: []events.ExpiredSession{{Session: session, Index: 1, Sequences: retention.JoinSpans(seqs)}}, Records: uint64(len(seqs)), At: events.At(testStart), Writer: "auditor-1"}
}

// sign signs an expiry record with the checkpoint key.
func (f *fixture) sign(e events.Expiry) events.Expiry {
	f.t.Helper()
	var err error
	e.Vouch, err = signing.SignExpiry(f.signer, e)
	must(f.t, err)
	return e
}

// note logs an expiry record.
func (f *fixture) note(e events.Expiry) ExpiryRecord {
	f.t.Helper()
	b := f.log(subject.Space{}.Control("GOV", events.ControlExpiry), nil, f.encode(e))
	if len(b.Record.Redactions) > 0 {
		f.t.Fatalf("the expiry record is redacted: %+v", b.Record.Redactions)
	}
	return ExpiryRecord{Row: b.Row()}
}

// without gives the rows after the texts of a session are gone.
func without(rows []Row, session string) []Row {
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
	f := newFixture(t)
	f.session()
	x := f.note(f.sign(f.expiryOf("sess-a")))
	f.admit("sess-a", "0199a000-0000-7000-8000-000000000009", events.Allow, plainEvent) // it goes on
	rows := f.rows()
	last := uint64(len(rows))
	gone := slices.Clone(rows)
	copy(gone, without(rows[:x.Row.Seq], "sess-a"))
	opts := f.options()
	opts.Expiries = []ExpiryRecord{x}
	rep := verifyRows(opts, gone)
	if !rep.OK || rep.Expired != 7 || rep.ExpiredBy[testPolicy] != 7 || rep.Records != int(last) || rep.Decisions != 2 || rep.Root != f.tree.Root() || rep.Sessions != 2 {
		t.Fatalf("%+v", rep)
	}
	if rep := verifyRows(opts, rows); !rep.OK || rep.Expired != 0 || rep.Decisions != 3 {
		t.Errorf("before the texts are gone: %+v", rep)
	}
	if rep := verifyRows(f.options(), gone); rep.ByCode[CodeTextMissing] != 7 {
		t.Errorf("nobody says why: %s", codes(rep))
	}
	in := f.sessionInput("sess-a")
	in.Rows = without(in.Rows[:7], "sess-a")
	in.Rows = append(in.Rows, f.rows()[last-2], f.rows()[last-1])
	var err error
	x.Proof, err = tree.InclusionProof(f, f.tree.Size(), x.Row.Seq)
	must(t, err)
	in.Expiries = []ExpiryRecord{x}
	if rep := VerifySession(in); !rep.OK || rep.Expired != 7 || rep.Records != 9 {
		t.Errorf("%+v", rep)
	}
	in.Expiries[0].Proof[0][0] ^= 1
	if got := codes(VerifySession(in)); got != "text_missing@14" {
		t.Errorf("an expiry record that is not in the log: %s", got)
	}
	in.Expiries = nil
	if got := codes(VerifySession(in)); got != "text_missing@2" {
		t.Errorf("no expiry record: %s", got)
	}
}

// A text that is missing without a signed record of the log is found, and so is every other
// change to rows without a text.
func TestMissingTextIsFound(t *testing.T) {
	f := newFixture(t)
	f.session()
	good := f.note(f.sign(f.expiryOf("sess-b")))
	unsigned := f.note(f.expiryOf("sess-a"))
	foreign := f.sign(f.expiryOf("sess-a"))
	foreign.Shard = "GOV@other"
	later := f.expiryOf("sess-a")
	later.Sessions[0].Sequences = []events.Span{{2, 60}}
	later.Records = 59
	others := []ExpiryRecord{unsigned, f.note(f.sign(later)), f.note(foreign), f.note(f.sign(events.Expiry{ExpiryID: "x", Shard: testShard, State: events.ErasureDone,
		Part: 1, Parts: 1, Tenant: "acme", Policy: testPolicy, Sessions: f.expiryOf("sess-a").Sessions, At: events.At(testStart)}))}
	opts := f.options()
	opts.Expiries = append([]ExpiryRecord{good}, others...)
	clean := without(f.rows(), "sess-b")
	if rep := verifyRows(opts, clean); !rep.OK || rep.Expired != 2 {
		t.Fatalf("%s %+v", codes(rep), rep)
	}
	empty := func(i int) func([]Row) { return func(r []Row) { r[i].Record = "" } }
	for name, tc := range map[string]struct {
		change func([]Row)
		want   string
	}{
		"another session's, named by records that do not count": {empty(1), "text_missing@2 decision_without_request@3"},
		"of no session":            {empty(10), "text_missing@11"},
		"a control record":         {empty(11), "text_missing@12"},
		"a key":                    {empty(0), "text_missing@1 decision_key_unknown@3 approval_key_unknown@10"},
		"the expiry record itself": {empty(13), "text_missing@14 text_missing@14"},
		"its hash":                 {func(r []Row) { r[4].RecordHash[0] ^= 1 }, "root_mismatch@18"},
		"its session":              {func(r []Row) { r[4].Session = "sess-a" }, "subject_mismatch@5 column_mismatch@5"},
		"its tenant":               {func(r []Row) { r[4].Tenant = "beta" }, "subject_mismatch@5 column_mismatch@5"},
		"its kind":                 {func(r []Row) { r[4].Kind = KindCall }, "subject_mismatch@5"},
		"session and subject": {func(r []Row) {
			r[4].Session = "sess-c"
			r[4].Subject = strings.Replace(r[4].Subject, "sess-b", "sess-c", 1)
		}, "column_mismatch@5"},
		"another expiry record in its place": {func(r []Row) { r[13].Record = r[14].Record; r[13].RecordHash = r[14].RecordHash }, "column_mismatch@14 root_mismatch@18 text_missing@14"},
	} {
		rows := slices.Clone(clean)
		tc.change(rows)
		rep := verifyRows(opts, rows)
		got := codes(rep)
		if name == "the expiry record itself" {
			got = strings.Repeat(" "+got, rep.ByCode[CodeTextMissing])[1:]
		}
		if rep.OK || got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if rep := verifyRows(VerifyOptions{Shard: testShard, Keys: []note.Verifier{}, Checkpoints: opts.Checkpoints, Expiries: opts.Expiries}, clean); rep.ByCode[CodeTextMissing] != 2 {
		t.Errorf("without a key an expiry record says nothing: %s", codes(rep))
	}
	rows := slices.Clone(clean)
	rows = slices.Delete(rows, 4, 5) // a row of it is gone
	if got := codes(verifyRows(opts, rows)); !strings.Contains(got, "gap@5") || !strings.Contains(got, "session_chain@6") {
		t.Errorf("%s", got)
	}
}

// Control records keep their text, even if a signed expiry record names them.
func TestControlRecordsNeverExpire(t *testing.T) {
	f := newFixture(t)
	f.session()
	e := f.expiryOf("sess-b")
	e.Sessions[0].Sequences, e.Records = []events.Span{{12, 12}}, 1
	x := f.note(f.sign(e))
	opts := f.options()
	opts.Expiries = []ExpiryRecord{x}
	rows := f.rows()
	rows[11].Record = ""
	if got := codes(verifyRows(opts, rows)); got != "text_missing@12" {
		t.Errorf("%s", got)
	}
}

// A part of a shard can begin in the middle of what expired, and end before the
// record that says so.
func TestExpiredPart(t *testing.T) {
	f := newFixture(t)
	f.session()
	x := f.note(f.sign(f.expiryOf("sess-a")))
	f.admit("sess-a", "0199a000-0000-7000-8000-000000000009", events.Allow, plainEvent)
	rows := f.rows()
	copy(rows, without(rows[:x.Row.Seq], "sess-a"))
	var err error
	x.Proof, err = tree.InclusionProof(f, f.tree.Size(), x.Row.Seq)
	must(t, err)
	for _, part := range [][2]int{{3, 9}, {6, 14}, {7, len(rows)}} {
		opts := f.options()
		opts.Expiries, opts.ReceiptKeys = []ExpiryRecord{x}, []events.KeyRecord{f.keyRecord()}
		frontier, err := f.ReadHashes(tree.FrontierIndexes(int64(part[0])))
		must(t, err)
		opts.Part = &Part{First: uint64(part[0] + 1), Frontier: frontier, RequestsFrom: uint64(part[0] + 1)}
		v := NewVerifier(opts)
		for _, r := range rows[part[0]:part[1]] {
			v.Row(r)
		}
		proof, err := tree.ConsistencyProof(f, int64(part[1]), f.tree.Size())
		must(t, err)
		if rep := v.FinishPart(proof); !rep.OK || rep.Expired == 0 {
			t.Errorf("%v: %s", part, codes(rep))
		}
	}
}
