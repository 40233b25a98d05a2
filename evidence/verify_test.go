package evidence

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// codes gives the report's codes, each once, with the sequence it was seen at
// first.
func codes(rep Report) string {
	var out []string
	seen := map[Code]bool{}
	for _, p := range rep.Findings {
		if !seen[p.Code] {
			seen[p.Code] = true
			out = append(out, fmt.Sprintf("%s@%d", p.Code, p.Seq))
		}
	}
	return strings.Join(out, " ")
}

// rewrite changes a row's record consistently: columns and hash follow, as they
// would if an attacker had write access to the table.
func rewrite(r *Row, change func(*Record)) {
	rec, err := ParseRecord([]byte(r.Record))
	if err != nil {
		panic(err)
	}
	change(&rec)
	text, err := rec.Canonical()
	if err != nil {
		panic(err)
	}
	*r = Built{Record: rec, Canonical: text, Hash: HashRecord(text)}.Row()
}

func TestTamperingIsFound(t *testing.T) {
	f := newFixture(t)
	f.session()
	if rep := verifyRows(f.options(), f.rows()); !rep.OK || rep.Records != 13 || rep.Sessions != 2 || rep.Decisions != 2 || rep.Signed != 13 || rep.Root != f.tree.Root() {
		t.Fatalf("%+v", rep)
	}
	s := func(text string) *string { return &text }
	for name, tc := range map[string]struct {
		change func([]Row) []Row
		want   string
	}{
		"record text":     {func(r []Row) []Row { r[2].Record = strings.Replace(r[2].Record, `"allow"`, `"bllow"`, 1); return r }, "hash_mismatch@3 decision_malformed@3 decision_signature@3"},
		"record not json": {func(r []Row) []Row { r[5].Record = "{"; return r }, "hash_mismatch@6 not_canonical@6"},
		"record spacing":  {func(r []Row) []Row { r[5].Record += " "; return r }, "hash_mismatch@6 not_canonical@6"},
		"record hash":     {func(r []Row) []Row { r[3].RecordHash[0] ^= 1; return r }, "hash_mismatch@4 session_chain@7 root_mismatch@13"},
		"column tenant":   {func(r []Row) []Row { r[3].Tenant = "other"; return r }, "column_mismatch@4"},
		"column session":  {func(r []Row) []Row { r[3].Session = ""; return r }, "column_mismatch@4"},
		"column kind":     {func(r []Row) []Row { r[3].Kind = "call"; return r }, "column_mismatch@4"},
		"column subject":  {func(r []Row) []Row { r[3].Subject += "x"; return r }, "column_mismatch@4"},
		"column time":     {func(r []Row) []Row { r[3].BrokerTime = r[3].BrokerTime.Add(time.Nanosecond); return r }, "column_mismatch@4"},
		"column digest":   {func(r []Row) []Row { r[3].BodyDigest = r[4].BodyDigest + "0"; return r }, "column_mismatch@4"},
		"column shard":    {func(r []Row) []Row { r[12].Shard = "GOV@other"; return r }, "wrong_shard@13 checkpoint_ahead@13"},
		"column seq":      {func(r []Row) []Row { r[12].Seq++; return r }, "gap@13 column_mismatch@14 roots_unchecked@0"},
		"deleted":         {func(r []Row) []Row { return slices.Delete(r, 3, 4) }, "gap@4 session_chain@7 roots_unchecked@0"},
		"deleted, first":  {func(r []Row) []Row { return r[1:] }, "gap@1 roots_unchecked@0 decision_key_unknown@3 approval_key_unknown@10"},
		"cut off":         {func(r []Row) []Row { return r[:12] }, "checkpoint_ahead@13"},
		"all gone":        {func([]Row) []Row { return nil }, "checkpoint_ahead@13"},
		"doubled":         {func(r []Row) []Row { return slices.Insert(r, 4, r[3]) }, "duplicate_seq@4"},
		"two versions": {func(r []Row) []Row {
			o := r[3]
			rewrite(&o, func(r *Record) { r.Body = []byte("1") })
			return slices.Insert(r, 4, o)
		}, "conflicting_seq@4"},
		"swapped":       {func(r []Row) []Row { r[3], r[4] = r[4], r[3]; return r }, "gap@4 row_order@4 session_chain@7 roots_unchecked@0"},
		"rewritten":     {func(r []Row) []Row { rewrite(&r[3], func(r *Record) { r.Headers = nil }); return r }, "redaction_mismatch@4 session_chain@7 root_mismatch@13"},
		"body replaced": {func(r []Row) []Row { rewrite(&r[7], func(r *Record) { r.Body = []byte(`{}`) }); return r }, "session_chain@9 root_mismatch@13"},
		"time rewritten": {func(r []Row) []Row {
			rewrite(&r[10], func(r *Record) { r.BrokerTime = events.At(testStart) })
			return r
		}, "root_mismatch@13"},
		"kind rewritten": {func(r []Row) []Row { rewrite(&r[7], func(r *Record) { r.Kind = KindFinding }); return r }, "subject_mismatch@8 session_chain@9 root_mismatch@13"},
		"subject rewritten": {func(r []Row) []Row {
			rewrite(&r[7], func(r *Record) { r.Subject = "gov.calls.other.open.sess-z" })
			return r
		}, "subject_mismatch@8 session_chain@9 root_mismatch@13"},
		"index": {func(r []Row) []Row { rewrite(&r[7], func(r *Record) { *r.SessionIndex = 9 }); return r }, "session_chain@8 root_mismatch@13"},
		"previous": {func(r []Row) []Row {
			rewrite(&r[7], func(r *Record) { r.SessionPrev = s(strings.Repeat("0", 64)) })
			return r
		}, "session_chain@8 root_mismatch@13"},
		"chained alone": {func(r []Row) []Row {
			rewrite(&r[11], func(r *Record) { n := uint64(1); r.SessionIndex = &n })
			return r
		}, "session_chain@12 root_mismatch@13"},
		"reason and body": {func(r []Row) []Row { rewrite(&r[10], func(r *Record) { r.Reason = "x" }); return r }, "body_mismatch@11 root_mismatch@13"},
		"reason removed":  {func(r []Row) []Row { rewrite(&r[12], func(r *Record) { r.Reason = "" }); return r }, "body_mismatch@13 root_mismatch@13"},
		"plain digest":    {func(r []Row) []Row { rewrite(&r[12], func(r *Record) { r.BodyDigest = digest.Plain(nil) }); return r }, "body_mismatch@13 root_mismatch@13"},
		"redaction path":  {func(r []Row) []Row { rewrite(&r[8], func(r *Record) { r.Redactions[0].Path = "/body/rule" }); return r }, "redaction_mismatch@9 session_chain@10 root_mismatch@13"},
		"commitment":      {func(r []Row) []Row { rewrite(&r[8], func(r *Record) { r.Redactions[0].Commitment = "none" }); return r }, "redaction_mismatch@9 session_chain@10 root_mismatch@13"},
		"decision edited": {func(r []Row) []Row {
			rewrite(&r[5], func(r *Record) {
				r.Body = []byte(strings.Replace(string(r.Body), `"verdict":"deny"`, `"verdict":"allow"`, 1))
			})
			return r
		}, "decision_malformed@6 decision_signature@6 root_mismatch@13"},
		"decision unsigned": {func(r []Row) []Row {
			rewrite(&r[5], func(r *Record) { delete(r.Headers, events.HeaderSignature) })
			return r
		}, "decision_unsigned@6 root_mismatch@13"},
		"decision hidden": {func(r []Row) []Row {
			rewrite(&r[5], func(r *Record) {
				r.Kind, r.Reason, r.Body = KindUnparseable, "not_json", []byte("null")
				r.BodyDigest = digest.Keyed(nil, nil)
			})
			return r
		}, "decision_malformed@6 root_mismatch@13"},
		"request renamed": {func(r []Row) []Row {
			rewrite(&r[1], func(r *Record) { r.Headers[events.HeaderDecisionID] = []string{"x"} })
			return r
		}, "session_chain@3 decision_without_request@3 root_mismatch@13"},
		"request replaced": {func(r []Row) []Row {
			rewrite(&r[4], func(r *Record) { r.BodyDigest = digestOf(r.Session, "another") })
			return r
		}, "session_chain@6 request_digest_mismatch@6 root_mismatch@13"},
		"request of another key": {func(r []Row) []Row { // the session went on after an erasure
			rewrite(&r[4], func(r *Record) { r.BodyDigest = digestOf("of its key before", "another") })
			return r
		}, "session_chain@6 root_mismatch@13"},
		"digest of no key": {func(r []Row) []Row {
			rewrite(&r[4], func(r *Record) { r.BodyDigest = strings.Replace(r.BodyDigest, ":", ":X", 1) })
			return r
		}, "body_mismatch@5 session_chain@6 root_mismatch@13"},
		"key forged": {func(r []Row) []Row {
			rewrite(&r[0], func(r *Record) {
				r.Body = []byte(strings.Replace(string(r.Body), `"use":"receipt"`, `"use":"else"`, 1))
			})
			return r
		}, "key_vouch@1 root_mismatch@13 decision_key_unknown@3 approval_key_unknown@10"},
	} {
		t.Run(name, func(t *testing.T) {
			rep := verifyRows(f.options(), tc.change(f.rows()))
			if got := codes(rep); got != tc.want || rep.OK {
				t.Errorf("got  %s\nwant %s\n%v", got, tc.want, rep.Findings)
			}
		})
	}
}

func TestCheckpointsAreChecked(t *testing.T) {
	f := newFixture(t)
	var middle string
	for i := range 5 {
		if i == 3 {
			middle = f.checkpoint()
		}
		f.log(eventSubject, nil, []byte(plainEvent))
	}
	last := f.checkpoint()
	sign := func(c tree.Checkpoint) string {
		text, err := tree.SignCheckpoint(f.signer, c)
		must(t, err)
		return text
	}
	other := newFixture(t)
	skey, _, err := signing.NewCheckpointKey(strings.NewReader(strings.Repeat("x", 32)))
	must(t, err)
	other.signer, err = signing.CheckpointSigner(skey)
	must(t, err)
	for name, tc := range map[string]struct {
		list   []string
		change func(*VerifyOptions)
		want   string
	}{
		"both, any order":  {[]string{last, middle, last}, nil, ""},
		"unsigned tail":    {[]string{middle}, nil, ""},
		"none":             {nil, nil, "no_checkpoint@0"},
		"of nothing":       {[]string{sign(tree.Checkpoint{Shard: testShard, Root: (&tree.Tree{}).Root()})}, nil, "no_checkpoint@0"},
		"forged":           {[]string{last, strings.Replace(middle, "\n3\n", "\n4\n", 1)}, nil, "checkpoint_invalid@0"},
		"other key":        {[]string{last, other.checkpoint()}, nil, "checkpoint_invalid@0"},
		"other shard":      {[]string{last, sign(tree.Checkpoint{Shard: "GOV@old", Size: 9})}, nil, "checkpoint_shard@0"},
		"fork":             {[]string{last, sign(tree.Checkpoint{Shard: testShard, Size: 5, Root: tlog.Hash{1}})}, nil, "checkpoint_fork@5"},
		"other root":       {[]string{last, sign(tree.Checkpoint{Shard: testShard, Size: 2, Root: tlog.Hash{1}})}, nil, "checkpoint_fork@2"},
		"ahead":            {[]string{last, sign(tree.Checkpoint{Shard: testShard, Size: 9, Root: tlog.Hash{1}})}, nil, "checkpoint_ahead@9"},
		"no key":           {[]string{last}, func(o *VerifyOptions) { o.Keys = nil }, "no_trusted_key@0"},
		"key given twice":  {[]string{last}, func(o *VerifyOptions) { o.Keys = append(o.Keys, o.Keys...) }, ""},
		"at least, met":    {[]string{last}, func(o *VerifyOptions) { o.MinRecords = 5 }, ""},
		"at least, missed": {[]string{last}, func(o *VerifyOptions) { o.MinRecords = 6 }, "too_short@0"},
	} {
		opts := VerifyOptions{Shard: testShard, Keys: []note.Verifier{f.verifier}}
		for i, text := range tc.list {
			opts.Checkpoints = append(opts.Checkpoints, Published{fmt.Sprint("list/", i), text})
		}
		if tc.change != nil {
			tc.change(&opts)
		}
		if rep := verifyRows(opts, f.rows()); codes(rep) != tc.want || rep.OK != (tc.want == "") {
			t.Errorf("%s: %s, want %s (%v)", name, codes(rep), tc.want, rep.Findings)
		}
	}
}

func TestDecisionsAndReceipts(t *testing.T) {
	const id = "0199a000-0000-7000-8000-000000000009"
	stranger, err := signing.NewPrivateKey(derived("stranger"))
	must(t, err)
	for name, tc := range map[string]struct {
		fill func(*fixture, *VerifyOptions)
		want string
	}{
		"key in the options": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			f.admit("s", id, events.Allow, "{}")
		}, ""},
		"key after the decision": {func(f *fixture, o *VerifyOptions) {
			f.admit("s", id, events.Allow, "{}")
			f.log("gov.control.GOV.key", nil, f.encode(f.keyRecord()))
		}, ""},
		"key nobody vouches for": {func(f *fixture, o *VerifyOptions) {
			k := f.keyRecord()
			k.Vouch = ""
			f.log("gov.control.GOV.key", nil, f.encode(k))
			f.admit("s", id, events.Allow, "{}")
		}, "decision_key_unknown@3"},
		"retired key": {func(f *fixture, o *VerifyOptions) { // what it signed before stays good
			f.log("gov.control.GOV.key", nil, f.encode(f.keyRecord()))
			f.admit("s", id, events.Allow, "{}")
			f.log("gov.control.GOV.key_retired", nil, f.encode(f.retirement()))
			f.log("gov.control.GOV.key", nil, f.encode(f.keyRecord())) // changes nothing
			f.admit("s", strings.Replace(id, "9", "8", 1), events.Allow, "{}")
		}, "decision_key_retired@7"},
		"key retired by a stranger": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			k := f.retirement()
			k.Vouch = ""
			f.log("gov.control.GOV.key_retired", nil, f.encode(k))
			f.admit("s", id, events.Allow, "{}")
		}, "key_vouch@1"},
		"signed by a stranger": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			f.receipt = stranger
			f.admit("s", id, events.Allow, "{}")
		}, "decision_key_unknown@2"},
		"decision first": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			f.decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}})
			f.log(subject.Space{}.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
		}, "decision_without_request@1"},
		"request of another tenant": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			f.log(subject.Space{}.Request("other", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
			f.decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}})
		}, "decision_without_request@2"},
		"decision says another session": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			f.log(subject.Space{}.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
			record := f.encode(events.Decision{DecisionID: id, Tenant: "acme", Session: "t", Verdict: events.Deny, Reasons: []events.Reason{}})
			sig, _ := f.receipt.SignDetached(signing.TypeRecord, record)
			f.log("gov.decisions.acme.deny.s", map[string][]string{events.HeaderSignature: {sig}}, record)
		}, "decision_malformed@2"},
		"unparseable request": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			f.admit("s", id, events.Deny, "{not json")
		}, ""},
		"receipt": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			o.Receipts = []string{f.receiptFor(id, events.Allow)}
			f.admit("s", id, events.Allow, "{}")
		}, ""},
		"receipt of no decision": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			o.Receipts = []string{f.receiptFor("other", events.Allow)}
			f.admit("s", id, events.Allow, "{}")
		}, "receipt_without_decision@0"},
		"receipt says otherwise": {func(f *fixture, o *VerifyOptions) {
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			token := f.receiptFor("other", events.Allow)
			o.Receipts = []string{token}
			f.log(subject.Space{}.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
			f.decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}, ReceiptHash: digest.Plain([]byte(token))})
		}, "receipt_invalid@2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var opts VerifyOptions
			tc.fill(f, &opts)
			o := f.options()
			o.ReceiptKeys, o.Receipts = opts.ReceiptKeys, opts.Receipts
			if rep := verifyRows(o, f.rows()); codes(rep) != tc.want {
				t.Errorf("%s, want %s (%v)", codes(rep), tc.want, rep.Findings)
			}
		})
	}
}

// A publisher may invent requests; they must not fill the memory, nor push a
// real one out before its decision.
func TestRequestMemoryIsBounded(t *testing.T) {
	trust := newTrust(newReport(0), nil, nil, nil, nil)
	for i := range 3 * requestGeneration {
		trust.rememberRequest(SessionID{"t", fmt.Sprint(i)}, requestState{})
	}
	if n := len(trust.requests[0]) + len(trust.requests[1]); n > 2*requestGeneration {
		t.Errorf("%d requests are held", n)
	}
	if _, ok := trust.requests[0][SessionID{"t", fmt.Sprint(3*requestGeneration - 1)}]; !ok {
		t.Error("the last request is gone")
	}
}

func TestProblemListIsCapped(t *testing.T) {
	f := newFixture(t)
	f.session()
	rows := f.rows()
	for i := range rows {
		rows[i].Kind = "x"
	}
	opts := f.options()
	opts.MaxFindings = 3
	rep := verifyRows(opts, rows)
	if len(rep.Findings) != 3 || rep.Total != 13 || rep.ByCode[CodeColumn] != 13 {
		t.Errorf("%d listed of %d, %v", len(rep.Findings), rep.Total, rep.ByCode)
	}
	if _, err := json.Marshal(rep); err != nil {
		t.Error(err)
	}
	if s := rep.Findings[0].String(); !strings.Contains(s, "sequence 1") || !strings.Contains(s, "kind") {
		t.Error(s)
	}
}

func TestVerifySession(t *testing.T) {
	f := newFixture(t)
	f.session()
	for name, tc := range map[string]struct {
		change func(*SessionInput)
		want   string
	}{
		"as it is":      {func(*SessionInput) {}, ""},
		"first missing": {func(in *SessionInput) { in.Rows, in.Proofs = in.Rows[1:], in.Proofs[1:] }, "session_chain@3 decision_without_request@3"},
		"one missing": {func(in *SessionInput) {
			in.Rows, in.Proofs = slices.Delete(in.Rows, 2, 3), slices.Delete(in.Proofs, 2, 3)
		}, "session_chain@7"},
		"rewritten": {func(in *SessionInput) {
			rewrite(&in.Rows[6], func(r *Record) { r.Body = []byte(`{"session":"sess-a"}`) })
		}, "approval_malformed@10 approval_signature@10 inclusion_proof@10"},
		"proof missing": {func(in *SessionInput) { in.Proofs = in.Proofs[:6] }, "inclusion_proof@10"},
		"proof swapped": {func(in *SessionInput) { in.Proofs[0], in.Proofs[1] = in.Proofs[1], in.Proofs[0] }, "inclusion_proof@2"},
		"twice": {func(in *SessionInput) {
			in.Rows, in.Proofs = append(in.Rows, in.Rows[6]), append(in.Proofs, in.Proofs[6])
		}, "row_order@10 session_chain@10"},
		"other session": {func(in *SessionInput) { in.Session = "sess-b" }, "session_scope@2"},
		"other shard":   {func(in *SessionInput) { in.Shard = "GOV@x" }, "checkpoint_shard@0 wrong_shard@2"},
		"no checkpoint": {func(in *SessionInput) { in.Checkpoint.Text = "" }, "checkpoint_invalid@0"},
		"no key":        {func(in *SessionInput) { in.Keys = nil }, "no_trusted_key@0"},
		"no vouched":    {func(in *SessionInput) { in.ReceiptKeys = nil }, "decision_key_unknown@3 approval_key_unknown@10"},
		"too short":     {func(in *SessionInput) { in.MinRecords = 8 }, "too_short@0"},
		"nothing":       {func(in *SessionInput) { in.Rows = nil }, "too_short@0"},
	} {
		in := f.sessionInput("sess-a")
		tc.change(&in)
		if rep := VerifySession(in); codes(rep) != tc.want || rep.OK != (tc.want == "") {
			t.Errorf("%s: %s, want %s (%v)", name, codes(rep), tc.want, rep.Findings)
		}
	}
	in := f.sessionInput("sess-a")
	f.log(eventSubject, nil, []byte(plainEvent))
	in.Rows = append(in.Rows, f.built[13].Row())
	if rep := VerifySession(in); codes(rep) != "not_signed@14" {
		t.Errorf("newer than the checkpoint: %s", codes(rep))
	}
}

// Whatever single byte of whatever field of a row changes, verification fails.
func TestAnyChangedByteIsFound(t *testing.T) {
	f := newFixture(t)
	f.session()
	opts := f.options()
	fields := map[string]func(*Row) []byte{
		"shard": func(r *Row) []byte { return []byte(r.Shard) }, "tenant": func(r *Row) []byte { return []byte(r.Tenant) },
		"session": func(r *Row) []byte { return []byte(r.Session) }, "kind": func(r *Row) []byte { return []byte(r.Kind) },
		"subject": func(r *Row) []byte { return []byte(r.Subject) }, "digest": func(r *Row) []byte { return []byte(r.BodyDigest) },
		"record": func(r *Row) []byte { return []byte(r.Record) }, "hash": func(r *Row) []byte { return r.RecordHash[:] },
	}
	set := map[string]func(*Row, []byte){
		"shard": func(r *Row, b []byte) { r.Shard = string(b) }, "tenant": func(r *Row, b []byte) { r.Tenant = string(b) },
		"session": func(r *Row, b []byte) { r.Session = string(b) }, "kind": func(r *Row, b []byte) { r.Kind = string(b) },
		"subject": func(r *Row, b []byte) { r.Subject = string(b) }, "digest": func(r *Row, b []byte) { r.BodyDigest = string(b) },
		"record": func(r *Row, b []byte) { r.Record = string(b) }, "hash": func(r *Row, b []byte) { r.RecordHash = [32]byte(b) },
	}
	names := slices.Sorted(maps.Keys(fields))
	rapid.Check(t, func(t *rapid.T) {
		rows := f.rows()
		row := &rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")]
		switch name := rapid.SampledFrom(append(names, "seq", "time")).Draw(t, "field"); name {
		case "seq":
			row.Seq ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
		case "time":
			row.BrokerTime = row.BrokerTime.Add(time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "ns")))
		default:
			b := slices.Clone(fields[name](row))
			if len(b) == 0 {
				b = []byte{'x'}
			} else {
				b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
			}
			set[name](row, b)
		}
		if rep := verifyRows(opts, rows); rep.OK || rep.Total == 0 {
			t.Fatal("the change was not found")
		}
	})
}
