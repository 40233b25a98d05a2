package verify_test

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
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// codes gives the report's codes, each once, with the sequence it was seen at
// first.
func codes(rep verify.Report) string {
	var out []string
	seen := map[verify.Code]bool{}
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
func rewrite(r *evidence.Row, change func(*evidence.Record)) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		panic(err)
	}
	change(&rec)
	text, err := rec.Canonical()
	if err != nil {
		panic(err)
	}
	*r = build.Built{Record: rec, Canonical: text, Hash: evidence.HashRecord(text)}.Row()
}

func TestTamperingIsFound(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK || rep.Records != 13 || rep.Sessions != 2 || rep.Decisions != 2 || rep.Signed != 13 || rep.Root != f.Tree.Root() {
		t.Fatalf("%+v", rep)
	}
	s := func(text string) *string { return &text }
	for name, tc := range map[string]struct {
		change func([]evidence.Row) []evidence.Row
		want   string
	}{
		"record text": {func(r []evidence.Row) []evidence.Row {
			r[2].Record = strings.Replace(r[2].Record, `"allow"`, `"bllow"`, 1)
			return r
		}, "hash_mismatch@3 decision_malformed@3 decision_signature@3"},
		"record not json": {func(r []evidence.Row) []evidence.Row { r[5].Record = "{"; return r }, "hash_mismatch@6 not_canonical@6"},
		"record spacing":  {func(r []evidence.Row) []evidence.Row { r[5].Record += " "; return r }, "hash_mismatch@6 not_canonical@6"},
		"record hash":     {func(r []evidence.Row) []evidence.Row { r[3].RecordHash[0] ^= 1; return r }, "hash_mismatch@4 session_chain@7 root_mismatch@13"},
		"column tenant":   {func(r []evidence.Row) []evidence.Row { r[3].Tenant = "other"; return r }, "column_mismatch@4"},
		"column session":  {func(r []evidence.Row) []evidence.Row { r[3].Session = ""; return r }, "column_mismatch@4"},
		"column kind":     {func(r []evidence.Row) []evidence.Row { r[3].Kind = "call"; return r }, "column_mismatch@4"},
		"column subject":  {func(r []evidence.Row) []evidence.Row { r[3].Subject += "x"; return r }, "column_mismatch@4"},
		"column time": {func(r []evidence.Row) []evidence.Row {
			r[3].BrokerTime = r[3].BrokerTime.Add(time.Nanosecond)
			return r
		}, "column_mismatch@4"},
		"column digest":  {func(r []evidence.Row) []evidence.Row { r[3].BodyDigest = r[4].BodyDigest + "0"; return r }, "column_mismatch@4"},
		"column shard":   {func(r []evidence.Row) []evidence.Row { r[12].Shard = "GOV@other"; return r }, "wrong_shard@13 checkpoint_ahead@13"},
		"column seq":     {func(r []evidence.Row) []evidence.Row { r[12].Seq++; return r }, "gap@13 column_mismatch@14 roots_unchecked@0"},
		"deleted":        {func(r []evidence.Row) []evidence.Row { return slices.Delete(r, 3, 4) }, "gap@4 session_chain@7 roots_unchecked@0"},
		"deleted, first": {func(r []evidence.Row) []evidence.Row { return r[1:] }, "gap@1 roots_unchecked@0 decision_key_unknown@3 approval_key_unknown@10"},
		"cut off":        {func(r []evidence.Row) []evidence.Row { return r[:12] }, "checkpoint_ahead@13"},
		"all gone":       {func([]evidence.Row) []evidence.Row { return nil }, "checkpoint_ahead@13"},
		"doubled":        {func(r []evidence.Row) []evidence.Row { return slices.Insert(r, 4, r[3]) }, "duplicate_seq@4"},
		"two versions": {func(r []evidence.Row) []evidence.Row {
			o := r[3]
			rewrite(&o, func(r *evidence.Record) { r.Body = []byte("1") })
			return slices.Insert(r, 4, o)
		}, "conflicting_seq@4"},
		"swapped": {func(r []evidence.Row) []evidence.Row { r[3], r[4] = r[4], r[3]; return r }, "gap@4 row_order@4 session_chain@7 roots_unchecked@0"},
		"rewritten": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[3], func(r *evidence.Record) { r.Headers = nil })
			return r
		}, "redaction_mismatch@4 session_chain@7 root_mismatch@13"},
		"body replaced": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[7], func(r *evidence.Record) { r.Body = []byte(`{}`) })
			return r
		}, "session_chain@9 root_mismatch@13"},
		"time rewritten": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[10], func(r *evidence.Record) { r.BrokerTime = events.At(evidencetest.Start) })
			return r
		}, "root_mismatch@13"},
		"kind rewritten": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[7], func(r *evidence.Record) { r.Kind = evidence.KindFinding })
			return r
		}, "subject_mismatch@8 session_chain@9 root_mismatch@13"},
		"subject rewritten": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[7], func(r *evidence.Record) { r.Subject = "gov.calls.other.open.sess-z" })
			return r
		}, "subject_mismatch@8 session_chain@9 root_mismatch@13"},
		"a finding made milder": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[8], func(r *evidence.Record) {
				r.Body = []byte(strings.Replace(string(r.Body), `"severity":"high"`, `"severity":"info"`, 1))
			})
			return r
		}, "subject_mismatch@9 session_chain@10 root_mismatch@13"},
		"index": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[7], func(r *evidence.Record) { *r.SessionIndex = 9 })
			return r
		}, "session_chain@8 root_mismatch@13"},
		"previous": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[7], func(r *evidence.Record) { r.SessionPrev = s(strings.Repeat("0", 64)) })
			return r
		}, "session_chain@8 root_mismatch@13"},
		"chained alone": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[11], func(r *evidence.Record) { n := uint64(1); r.SessionIndex = &n })
			return r
		}, "session_chain@12 root_mismatch@13"},
		"reason and body": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[10], func(r *evidence.Record) { r.Reason = "x" })
			return r
		}, "body_mismatch@11 root_mismatch@13"},
		"reason removed": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[12], func(r *evidence.Record) { r.Reason = "" })
			return r
		}, "body_mismatch@13 root_mismatch@13"},
		"plain digest": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[12], func(r *evidence.Record) { r.BodyDigest = digest.Plain(nil) })
			return r
		}, "body_mismatch@13 root_mismatch@13"},
		"redaction path": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[8], func(r *evidence.Record) { r.Redactions[0].Path = "/body/rule" })
			return r
		}, "redaction_mismatch@9 session_chain@10 root_mismatch@13"},
		"commitment": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[8], func(r *evidence.Record) { r.Redactions[0].Commitment = "none" })
			return r
		}, "redaction_mismatch@9 session_chain@10 root_mismatch@13"},
		"decision edited": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[5], func(r *evidence.Record) {
				r.Body = []byte(strings.Replace(string(r.Body), `"verdict":"deny"`, `"verdict":"allow"`, 1))
			})
			return r
		}, "decision_malformed@6 decision_signature@6 root_mismatch@13"},
		"decision unsigned": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[5], func(r *evidence.Record) { delete(r.Headers, events.HeaderSignature) })
			return r
		}, "decision_unsigned@6 root_mismatch@13"},
		"decision hidden": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[5], func(r *evidence.Record) {
				r.Kind, r.Reason, r.Body = evidence.KindUnparseable, "not_json", []byte("null")
				r.BodyDigest = digest.Keyed(nil, nil)
			})
			return r
		}, "decision_malformed@6 root_mismatch@13"},
		"request renamed": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[1], func(r *evidence.Record) { r.Headers[events.HeaderDecisionID] = []string{"x"} })
			return r
		}, "session_chain@3 decision_without_request@3 root_mismatch@13"},
		"request replaced": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[4], func(r *evidence.Record) { r.BodyDigest = evidencetest.DigestOf(r.Session, "another") })
			return r
		}, "session_chain@6 request_digest_mismatch@6 root_mismatch@13"},
		"request of another key": {func(r []evidence.Row) []evidence.Row { // the session went on after an erasure
			rewrite(&r[4], func(r *evidence.Record) { r.BodyDigest = evidencetest.DigestOf("of its key before", "another") })
			return r
		}, "session_chain@6 root_mismatch@13"},
		"digest of no key": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[4], func(r *evidence.Record) { r.BodyDigest = strings.Replace(r.BodyDigest, ":", ":X", 1) })
			return r
		}, "body_mismatch@5 session_chain@6 root_mismatch@13"},
		"key forged": {func(r []evidence.Row) []evidence.Row {
			rewrite(&r[0], func(r *evidence.Record) {
				r.Body = []byte(strings.Replace(string(r.Body), `"use":"receipt"`, `"use":"else"`, 1))
			})
			return r
		}, "key_vouch@1 root_mismatch@13 decision_key_unknown@3 approval_key_unknown@10"},
	} {
		t.Run(name, func(t *testing.T) {
			rep := evidencetest.VerifyRows(f.Options(), tc.change(f.Rows()))
			if got := codes(rep); got != tc.want || rep.OK {
				t.Errorf("got  %s\nwant %s\n%v", got, tc.want, rep.Findings)
			}
		})
	}
}

func TestCheckpointsAreChecked(t *testing.T) {
	f := evidencetest.New(t)
	var middle string
	for i := range 5 {
		if i == 3 {
			middle = f.Checkpoint()
		}
		f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent))
	}
	last := f.Checkpoint()
	sign := func(c tree.Checkpoint) string {
		text, err := tree.SignCheckpoint(f.Signer, c)
		evidencetest.Must(t, err)
		return text
	}
	other := evidencetest.New(t)
	skey, _, err := signing.NewCheckpointKey(strings.NewReader(strings.Repeat("x", 32)))
	evidencetest.Must(t, err)
	other.Signer, err = signing.CheckpointSigner(skey)
	evidencetest.Must(t, err)
	for name, tc := range map[string]struct {
		list   []string
		change func(*verify.Options)
		want   string
	}{
		"both, any order":  {[]string{last, middle, last}, nil, ""},
		"unsigned tail":    {[]string{middle}, nil, ""},
		"none":             {nil, nil, "no_checkpoint@0"},
		"of nothing":       {[]string{sign(tree.Checkpoint{Shard: evidencetest.Shard, Root: (&tree.Tree{}).Root()})}, nil, "no_checkpoint@0"},
		"forged":           {[]string{last, strings.Replace(middle, "\n3\n", "\n4\n", 1)}, nil, "checkpoint_invalid@0"},
		"other key":        {[]string{last, other.Checkpoint()}, nil, "checkpoint_invalid@0"},
		"other shard":      {[]string{last, sign(tree.Checkpoint{Shard: "GOV@old", Size: 9})}, nil, "checkpoint_shard@0"},
		"fork":             {[]string{last, sign(tree.Checkpoint{Shard: evidencetest.Shard, Size: 5, Root: tlog.Hash{1}})}, nil, "checkpoint_fork@5"},
		"other root":       {[]string{last, sign(tree.Checkpoint{Shard: evidencetest.Shard, Size: 2, Root: tlog.Hash{1}})}, nil, "checkpoint_fork@2"},
		"ahead":            {[]string{last, sign(tree.Checkpoint{Shard: evidencetest.Shard, Size: 9, Root: tlog.Hash{1}})}, nil, "checkpoint_ahead@9"},
		"no key":           {[]string{last}, func(o *verify.Options) { o.Keys = nil }, "no_trusted_key@0"},
		"key given twice":  {[]string{last}, func(o *verify.Options) { o.Keys = append(o.Keys, o.Keys...) }, ""},
		"at least, met":    {[]string{last}, func(o *verify.Options) { o.MinRecords = 5 }, ""},
		"at least, missed": {[]string{last}, func(o *verify.Options) { o.MinRecords = 6 }, "too_short@0"},
	} {
		opts := verify.Options{Shard: evidencetest.Shard, Keys: []note.Verifier{f.Verifier}}
		for i, text := range tc.list {
			opts.Checkpoints = append(opts.Checkpoints, verify.Published{Source: fmt.Sprint("list/", i), Text: text})
		}
		if tc.change != nil {
			tc.change(&opts)
		}
		if rep := evidencetest.VerifyRows(opts, f.Rows()); codes(rep) != tc.want || rep.OK != (tc.want == "") {
			t.Errorf("%s: %s, want %s (%v)", name, codes(rep), tc.want, rep.Findings)
		}
	}
}

// A shard with no record and no checkpoint does not hold: its name may be wrong, or all of it deleted.
func TestShardWithoutRecords(t *testing.T) {
	f := evidencetest.New(t)
	rep := evidencetest.VerifyRows(verify.Options{Shard: "GOV@nonsense", Keys: []note.Verifier{f.Verifier}}, nil)
	if codes(rep) != "no_checkpoint@0" || rep.OK || !strings.Contains(rep.Findings[0].Detail, "no record") {
		t.Errorf("%s: %v", codes(rep), rep.Findings)
	}
	if _, hides := rep.FirstIncompleteness(); !hides {
		t.Error("what is not there counts as complete")
	}
}

func TestDecisionsAndReceipts(t *testing.T) {
	const id = "0199a000-0000-7000-8000-000000000009"
	stranger, err := signing.NewPrivateKey(evidencetest.Derived("stranger"))
	evidencetest.Must(t, err)
	for name, tc := range map[string]struct {
		fill func(*evidencetest.Fixture, *verify.Options)
		want string
	}{
		"key in the options": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			f.Admit("s", id, events.Allow, "{}")
		}, ""},
		"key after the decision": {func(f *evidencetest.Fixture, o *verify.Options) {
			f.Admit("s", id, events.Allow, "{}")
			f.Log("gov.control.GOV.key", nil, f.Encode(f.KeyRecord()))
		}, ""},
		"key nobody vouches for": {func(f *evidencetest.Fixture, o *verify.Options) {
			k := f.KeyRecord()
			k.Vouch = ""
			f.Log("gov.control.GOV.key", nil, f.Encode(k))
			f.Admit("s", id, events.Allow, "{}")
		}, "decision_key_unknown@3"},
		"retired key": {func(f *evidencetest.Fixture, o *verify.Options) { // what it signed before stays good
			f.Log("gov.control.GOV.key", nil, f.Encode(f.KeyRecord()))
			f.Admit("s", id, events.Allow, "{}")
			f.Log("gov.control.GOV.key_retired", nil, f.Encode(f.Retirement()))
			f.Log("gov.control.GOV.key", nil, f.Encode(f.KeyRecord())) // changes nothing
			f.Admit("s", strings.Replace(id, "9", "8", 1), events.Allow, "{}")
		}, "decision_key_retired@7"},
		"key retired by a stranger": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			k := f.Retirement()
			k.Vouch = ""
			f.Log("gov.control.GOV.key_retired", nil, f.Encode(k))
			f.Admit("s", id, events.Allow, "{}")
		}, "key_vouch@1"},
		"signed by a stranger": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			f.Receipt = stranger
			f.Admit("s", id, events.Allow, "{}")
		}, "decision_key_unknown@2"},
		"decision first": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			f.Decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}})
			f.Log(subject.Space{}.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
		}, "decision_without_request@1"},
		"request of another tenant": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			f.Log(subject.Space{}.Request("other", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
			f.Decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}})
		}, "decision_without_request@2"},
		"decision says another session": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			f.Log(subject.Space{}.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
			record := f.Encode(events.Decision{DecisionID: id, Tenant: "acme", Session: "t", Verdict: events.Deny, Reasons: []events.Reason{}})
			sig, _ := f.Receipt.SignDetached(signing.TypeRecord, record)
			f.Log("gov.decisions.acme.deny.s", map[string][]string{events.HeaderSignature: {sig}}, record)
		}, "decision_malformed@2"},
		"unparseable request": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			f.Admit("s", id, events.Deny, "{not json")
		}, ""},
		"receipt": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			o.Receipts = []string{f.ReceiptFor(id, events.Allow)}
			f.Admit("s", id, events.Allow, "{}")
		}, ""},
		"receipt of no decision": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			o.Receipts = []string{f.ReceiptFor("other", events.Allow)}
			f.Admit("s", id, events.Allow, "{}")
		}, "receipt_without_decision@0"},
		"receipt says otherwise": {func(f *evidencetest.Fixture, o *verify.Options) {
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			token := f.ReceiptFor("other", events.Allow)
			o.Receipts = []string{token}
			f.Log(subject.Space{}.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
			f.Decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}, ReceiptHash: digest.Plain([]byte(token))})
		}, "receipt_invalid@2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := evidencetest.New(t)
			var opts verify.Options
			tc.fill(f, &opts)
			o := f.Options()
			o.ReceiptKeys, o.Receipts = opts.ReceiptKeys, opts.Receipts
			if rep := evidencetest.VerifyRows(o, f.Rows()); codes(rep) != tc.want {
				t.Errorf("%s, want %s (%v)", codes(rep), tc.want, rep.Findings)
			}
		})
	}
}

func TestProblemListIsCapped(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	rows := f.Rows()
	for i := range rows {
		rows[i].Kind = "x"
	}
	opts := f.Options()
	opts.MaxFindings = 3
	rep := evidencetest.VerifyRows(opts, rows)
	if len(rep.Findings) != 3 || rep.Total != 13 || rep.ByCode[verify.CodeColumn] != 13 {
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
	f := evidencetest.New(t)
	f.Session()
	for name, tc := range map[string]struct {
		change func(*verify.SessionInput)
		want   string
	}{
		"as it is":      {func(*verify.SessionInput) {}, ""},
		"first missing": {func(in *verify.SessionInput) { in.Rows, in.Proofs = in.Rows[1:], in.Proofs[1:] }, "session_chain@3 decision_without_request@3"},
		"one missing": {func(in *verify.SessionInput) {
			in.Rows, in.Proofs = slices.Delete(in.Rows, 2, 3), slices.Delete(in.Proofs, 2, 3)
		}, "session_chain@7"},
		"rewritten": {func(in *verify.SessionInput) {
			rewrite(&in.Rows[6], func(r *evidence.Record) { r.Body = []byte(`{"session":"sess-a"}`) })
		}, "approval_malformed@10 approval_signature@10 inclusion_proof@10"},
		"proof missing": {func(in *verify.SessionInput) { in.Proofs = in.Proofs[:6] }, "inclusion_proof@10"},
		"proof swapped": {func(in *verify.SessionInput) { in.Proofs[0], in.Proofs[1] = in.Proofs[1], in.Proofs[0] }, "inclusion_proof@2"},
		"twice": {func(in *verify.SessionInput) {
			in.Rows, in.Proofs = append(in.Rows, in.Rows[6]), append(in.Proofs, in.Proofs[6])
		}, "row_order@10 session_chain@10"},
		"other session": {func(in *verify.SessionInput) { in.Session = "sess-b" }, "session_scope@2"},
		"other shard":   {func(in *verify.SessionInput) { in.Shard = "GOV@x" }, "checkpoint_shard@0 wrong_shard@2"},
		"no checkpoint": {func(in *verify.SessionInput) { in.Checkpoint.Text = "" }, "checkpoint_invalid@0"},
		"no key":        {func(in *verify.SessionInput) { in.Keys = nil }, "no_trusted_key@0"},
		"no vouched":    {func(in *verify.SessionInput) { in.ReceiptKeys = nil }, "decision_key_unknown@3 approval_key_unknown@10"},
		"too short":     {func(in *verify.SessionInput) { in.MinRecords = 8 }, "too_short@0"},
		"nothing":       {func(in *verify.SessionInput) { in.Rows = nil }, "too_short@0"},
	} {
		in := f.SessionInput("sess-a")
		tc.change(&in)
		if rep := verify.Session(in); codes(rep) != tc.want || rep.OK != (tc.want == "") {
			t.Errorf("%s: %s, want %s (%v)", name, codes(rep), tc.want, rep.Findings)
		}
	}
	in := f.SessionInput("sess-a")
	f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent))
	in.Rows = append(in.Rows, f.Built[13].Row())
	if rep := verify.Session(in); codes(rep) != "not_signed@14" {
		t.Errorf("newer than the checkpoint: %s", codes(rep))
	}
}

// Whatever single byte of whatever field of a row changes, verification fails.
func TestAnyChangedByteIsFound(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	opts := f.Options()
	fields := map[string]func(*evidence.Row) []byte{
		"shard": func(r *evidence.Row) []byte { return []byte(r.Shard) }, "tenant": func(r *evidence.Row) []byte { return []byte(r.Tenant) },
		"session": func(r *evidence.Row) []byte { return []byte(r.Session) }, "kind": func(r *evidence.Row) []byte { return []byte(r.Kind) },
		"subject": func(r *evidence.Row) []byte { return []byte(r.Subject) }, "digest": func(r *evidence.Row) []byte { return []byte(r.BodyDigest) },
		"record": func(r *evidence.Row) []byte { return []byte(r.Record) }, "hash": func(r *evidence.Row) []byte { return r.RecordHash[:] },
	}
	set := map[string]func(*evidence.Row, []byte){
		"shard": func(r *evidence.Row, b []byte) { r.Shard = string(b) }, "tenant": func(r *evidence.Row, b []byte) { r.Tenant = string(b) },
		"session": func(r *evidence.Row, b []byte) { r.Session = string(b) }, "kind": func(r *evidence.Row, b []byte) { r.Kind = string(b) },
		"subject": func(r *evidence.Row, b []byte) { r.Subject = string(b) }, "digest": func(r *evidence.Row, b []byte) { r.BodyDigest = string(b) },
		"record": func(r *evidence.Row, b []byte) { r.Record = string(b) }, "hash": func(r *evidence.Row, b []byte) { r.RecordHash = [32]byte(b) },
	}
	names := slices.Sorted(maps.Keys(fields))
	rapid.Check(t, func(t *rapid.T) {
		rows := f.Rows()
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
		if rep := evidencetest.VerifyRows(opts, rows); rep.OK || rep.Total == 0 {
			t.Fatal("the change was not found")
		}
	})
}
