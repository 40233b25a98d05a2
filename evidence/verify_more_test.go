package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// batch logs requests, then their decisions and one approval with shares of one
// signature.
func (f *fixture) batch(n int) (decisions []Built) {
	f.t.Helper()
	s := subject.Space{}
	var records [][]byte
	for i := range n {
		id := fmt.Sprintf("batch-%d-%d", len(f.msgs), i)
		f.log(s.Request("acme", "runtime-1", "agenthook", "sess-a"), map[string][]string{events.HeaderDecisionID: {id}}, []byte(plainEvent))
		records = append(records, f.encode(events.Decision{DecisionID: id, Tenant: "acme", Session: "sess-a", Verdict: events.Allow, Reasons: []events.Reason{},
			RequestDigest: digestOf("sess-a", plainEvent)}))
	}
	records = append(records, f.encode(events.Approval{WorkflowID: "wf-2", Tenant: "acme", Status: "consumed", Session: "sess-a"}))
	signatures, err := f.receipt.SignRecords(records)
	must(f.t, err)
	for i, r := range records {
		subj := s.Decision("acme", "allow", "sess-a")
		if i == n {
			subj = s.Approval("acme", "consumed", "wf-2")
		}
		b := f.log(subj, map[string][]string{events.HeaderSignature: {signatures[i]}}, r)
		if i < n {
			decisions = append(decisions, b)
		}
	}
	return decisions
}

// Shares of one signature hold in a shard and in a session, and only for the
// record that they are for.
func TestBatchedSignatures(t *testing.T) {
	f := newFixture(t)
	f.log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.encode(f.keyRecord()))
	f.batch(5)
	rep := verifyRows(f.options(), f.rows())
	if !rep.OK || rep.Decisions != 5 || rep.Approvals != 1 {
		t.Fatalf("%+v", rep)
	}
	if rep := VerifySession(f.sessionInput("sess-a")); !rep.OK || rep.Decisions != 5 {
		t.Fatalf("%+v", rep)
	}
	rows := f.rows()
	rewrite(&rows[6], func(r *Record) { // another's share
		other, _ := ParseRecord([]byte(rows[7].Record))
		r.Headers[events.HeaderSignature] = other.Headers[events.HeaderSignature]
	})
	if rep := verifyRows(f.options(), rows); !strings.HasPrefix(codes(rep), "decision_signature@7 ") {
		t.Error(codes(rep))
	}
}

func TestDecisionsOfTheirSubjects(t *testing.T) {
	const id = "0199a000-0000-7000-8000-000000000009"
	s := subject.Space{}
	sign := func(f *fixture, subj string, record []byte) {
		sig, err := f.receipt.SignDetached(signing.TypeRecord, record)
		must(t, err)
		f.log(subj, map[string][]string{events.HeaderSignature: {sig}}, record)
	}
	request := func(f *fixture) {
		f.log(s.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
	}
	decision := func(f *fixture) []byte {
		return f.encode(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}})
	}
	approval := func(f *fixture, status string) []byte {
		return f.encode(events.Approval{WorkflowID: "w", Tenant: "acme", Status: status, Session: "s"})
	}
	for name, tc := range map[string]struct {
		fill func(*fixture)
		want string
	}{
		"asked twice, decided twice": {func(f *fixture) {
			request(f)
			sign(f, "gov.decisions.acme.deny.s", decision(f))
			request(f)
			sign(f, "gov.decisions.acme.deny.s", decision(f))
		}, ""},
		"a decision replayed": {func(f *fixture) {
			request(f)
			sign(f, "gov.decisions.acme.deny.s", decision(f))
			sign(f, "gov.decisions.acme.deny.s", decision(f))
		}, "decision_repeated@3"},
		"under another verdict": {func(f *fixture) {
			request(f)
			sign(f, "gov.decisions.acme.allow.s", decision(f))
		}, "decision_malformed@2"},
		"not a decision": {func(f *fixture) { sign(f, "gov.decisions.acme.deny.s", []byte(`{"verdict":"deny","x":1}`)) }, "decision_malformed@1"},
		"an approval":    {func(f *fixture) { sign(f, "gov.approvals.acme.approved.w", approval(f, "approved")) }, ""},
		"an approval of another status": {func(f *fixture) {
			sign(f, "gov.approvals.acme.approved.w", approval(f, "denied"))
		}, "approval_malformed@1"},
		"an approval of another workflow": {func(f *fixture) {
			sign(f, "gov.approvals.acme.approved.w2", approval(f, "approved"))
		}, "approval_malformed@1"},
		"an unsigned approval":        {func(f *fixture) { f.log("gov.approvals.acme.approved.w", nil, approval(f, "approved")) }, "approval_unsigned@1"},
		"an approval that is no JSON": {func(f *fixture) { f.log("gov.approvals.acme.approved.w", nil, []byte("{")) }, "approval_malformed@1"},
		"a forged approval": {func(f *fixture) {
			sig, _ := f.receipt.SignDetached(signing.TypeRecord, approval(f, "denied"))
			f.log("gov.approvals.acme.approved.w", map[string][]string{events.HeaderSignature: {sig}}, approval(f, "approved"))
		}, "approval_signature@1"},
		"an approval by a retired key": {func(f *fixture) {
			f.log(s.Control("GOV", events.ControlKeyRetired), nil, f.encode(f.retirement()))
			sign(f, "gov.approvals.acme.approved.w", approval(f, "approved"))
		}, "approval_key_retired@2"},
		"signature of another kind": {func(f *fixture) {
			request(f)
			sig, _ := f.receipt.SignDetached(signing.TypeReceipt, decision(f))
			f.log("gov.decisions.acme.deny.s", map[string][]string{events.HeaderSignature: {sig}}, decision(f))
		}, "decision_signature@2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.fill(f)
			o := f.options()
			o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
			if rep := verifyRows(o, f.rows()); codes(rep) != tc.want {
				t.Errorf("%s, want %s (%v)", codes(rep), tc.want, rep.Findings)
			}
		})
	}
}

// A second row of a sequence with the stored hash of the first, but another
// text, is another record.
func TestSecondRowWithTheFirstOnesHash(t *testing.T) {
	f := newFixture(t)
	f.session()
	rows := f.rows()
	same, other, hash := rows[3], rows[3], rows[3]
	other.Record = strings.Replace(other.Record, "sess-a", "sess-b", 1)
	hash.RecordHash[0]++
	for want, second := range map[string]Row{"duplicate_seq@4": same, "conflicting_seq@4": other, "conflicting_seq@4 ": hash} {
		if rep := verifyRows(f.options(), slices.Insert(f.rows(), 4, second)); codes(rep) != strings.TrimSpace(want) {
			t.Errorf("%s, want %s (%v)", codes(rep), want, rep.Findings)
		}
	}
}

// However many goroutines examine, the report is the one that a single one
// makes.
func TestExaminersInParallel(t *testing.T) {
	f := newFixture(t)
	f.session()
	f.batch(20)
	rows := f.rows()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, i := range rng.Perm(len(rows))[:12] { // a bit of everything
		switch i % 4 {
		case 0:
			rows[i].RecordHash[1]++
		case 1:
			rows[i].Kind = "x"
		case 2:
			rows[i].Record += " "
		default:
			rewrite(&rows[i], func(r *Record) { r.BodyDigest = digest.Plain([]byte("x")) })
		}
	}
	opts := f.options()
	opts.KeyHints = []events.KeyRecord{f.keyRecord()}
	opts.MaxFindings = 1000
	want, err := json.Marshal(verifyRows(opts, rows))
	must(t, err)
	for range 3 {
		v := NewVerifier(opts)
		list := make([]Examined, len(rows))
		var wg sync.WaitGroup
		for part := range 4 {
			e := v.Examiner()
			wg.Go(func() {
				for i := len(rows) - 1 - part; i >= 0; i -= 4 { // in no order
					e.Examine(&rows[i], &list[i])
				}
			})
		}
		wg.Wait()
		for i := range list {
			v.Add(&list[i])
		}
		got, err := json.Marshal(v.Finish())
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// part is the verification of the rows from first on, up to last.
func (f *fixture) part(first, last uint64, change func([]Row), list ...Published) Report {
	f.t.Helper()
	frontier, err := f.ReadHashes(tree.FrontierIndexes(int64(first) - 1))
	must(f.t, err)
	o := f.options()
	o.Checkpoints = append(o.Checkpoints, list...)
	o.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
	o.Part = &Part{First: first, Frontier: frontier, RequestsFrom: first + 2}
	v := NewVerifier(o)
	rows := slices.Clone(f.rows()[first-1 : last])
	if change != nil {
		change(rows)
	}
	for _, r := range rows {
		v.Row(r)
	}
	proof, err := tree.ConsistencyProof(f, int64(last), f.tree.Size())
	must(f.t, err)
	return v.FinishPart(proof)
}

// Every part of a shard is proved by itself; a changed row in it is found, and so
// is a part that is another's.
func TestParts(t *testing.T) {
	f := newFixture(t)
	f.session()
	middle := f.checkpoint()
	f.batch(9)
	n := uint64(len(f.built))
	for first := uint64(1); first <= n; first++ {
		for last := first; last <= n; last++ {
			rep := f.part(first, last, nil, Published{"middle", middle})
			if !rep.OK && codes(rep) != fmt.Sprintf("decision_without_request@%d", rep.Findings[0].Seq) {
				t.Fatalf("%d to %d: %v", first, last, rep.Findings)
			}
			if rep.From != first || rep.To != last || rep.Signed != int64(n) {
				t.Fatalf("%+v", rep)
			}
			at := (first + last) / 2
			rep = f.part(first, last, func(rows []Row) {
				rewrite(&rows[at-first], func(r *Record) { r.BodyDigest = digest.Plain([]byte("x")) })
			})
			if rep.OK || rep.ByCode[CodeRange]+rep.ByCode[CodeRoot] != 1 {
				t.Fatalf("%d to %d, %d changed: %v", first, last, at, rep.Findings)
			}
		}
	}
	o := f.options()
	o.Part = &Part{First: 5}
	if rep := NewVerifier(o).FinishPart(nil); rep.OK || rep.ByCode[CodeRange] != 1 {
		t.Errorf("without a frontier: %v", rep.Findings)
	}
	if rep := f.part(3, 8, func(rows []Row) { rows[2], rows[3] = rows[3], rows[2] }); rep.ByCode[CodeGap] == 0 {
		t.Errorf("swapped: %v", rep.Findings)
	}
}

// An older checkpoint that today's log does not extend is a fork. If only the rows were changed,
// it is not.
func TestForkIsToldFromTampering(t *testing.T) {
	f := newFixture(t)
	f.session()
	sign := func(size int64, root tlog.Hash) Published {
		text, err := tree.SignCheckpoint(f.signer, tree.Checkpoint{Shard: testShard, Size: size, Root: root})
		must(t, err)
		return Published{"kept.txt", text}
	}
	o := f.options()
	o.Checkpoints = append(o.Checkpoints, sign(7, tlog.Hash{7}))
	if rep := verifyRows(o, f.rows()); codes(rep) != "checkpoint_fork@7" || rep.Findings[0].Field != "kept.txt" {
		t.Errorf("%v", rep.Findings)
	}
	rows := f.rows()
	rewrite(&rows[12], func(r *Record) { r.BodyDigest = digest.Keyed(nil, []byte("y")) })
	rep := verifyRows(o, rows)
	if rep.ByCode[CodeCheckpointFork] != 0 || rep.ByCode[CodeRoot] != 2 {
		t.Errorf("nothing holds: %v", rep.Findings)
	}

	in := f.sessionInput("sess-a")
	old := tree.Checkpoint{Shard: testShard, Size: 7}
	var merkle tree.Tree
	for _, b := range f.built[:7] {
		merkle.Append(b.Hash)
	}
	old.Root = merkle.Root()
	proof, err := tree.ConsistencyProof(f, 7, f.tree.Size())
	must(t, err)
	for want, e := range map[string]Extension{
		"":                      {sign(7, old.Root), proof},
		"checkpoint_fork@7":     {sign(7, tlog.Hash{7}), proof},
		"checkpoint_fork@7 ":    {sign(7, old.Root), proof[1:]},
		"checkpoint_ahead@99":   {sign(99, old.Root), nil},
		"checkpoint_invalid@0":  {Published{"kept.txt", "x"}, nil},
		"checkpoint_fork@13":    {sign(13, tlog.Hash{1}), nil},
		" ":                     {sign(13, f.tree.Root()), nil},
		"checkpoint_invalid@0 ": {Published{"kept.txt", strings.Replace(sign(7, old.Root).Text, "\n7\n", "\n6\n", 1)}, proof},
	} {
		in.Older = []Extension{e}
		if rep := VerifySession(in); codes(rep) != strings.TrimSpace(want) {
			t.Errorf("%s, want %s (%v)", codes(rep), want, rep.Findings)
		}
	}
}

// The receipts that were handed in name the call that was decided.
func TestReceiptsOfOtherCalls(t *testing.T) {
	const id = "0199a000-0000-7000-8000-000000000009"
	for claim, want := range map[string]string{"": "", `"tool":"send_email"`: "", `"tool":"drop_table"`: "receipt_invalid@2", `"session":"t"`: "receipt_invalid@2",
		`"tool_call_id":"call-2"`: "receipt_invalid@2", `"source":"runtime-2"`: "receipt_invalid@2"} {
		f := newFixture(t)
		payload := `{"decision_id":"` + id + `","tenant":"acme","verdict":"allow"}`
		if claim != "" {
			payload = strings.TrimSuffix(payload, "}") + "," + claim + "}"
		}
		token, err := f.receipt.Sign(signing.TypeReceipt, []byte(payload))
		must(t, err)
		f.log(subject.Space{}.Request("acme", "runtime-1", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
		f.decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Source: "runtime-1", Tool: "send_email", ToolCallID: "call-1", Verdict: events.Allow,
			Reasons: []events.Reason{}, ReceiptHash: digest.Plain([]byte(token))})
		o := f.options()
		o.ReceiptKeys, o.Receipts = []events.KeyRecord{f.keyRecord()}, []string{token}
		if rep := verifyRows(o, f.rows()); codes(rep) != want {
			t.Errorf("%s: %s, want %s", claim, codes(rep), want)
		}
		if o.Receipts = []string{token, token}; claim == "" {
			if rep := verifyRows(o, f.rows()); codes(rep) != "receipt_replayed@0" {
				t.Errorf("handed in twice: %v", rep.Findings)
			}
		}
	}
}

// A bundle's verifier that knows of a retirement from elsewhere goes by its time.
func TestRetirementByTime(t *testing.T) {
	f := newFixture(t)
	f.session()
	in := f.sessionInput("sess-a")
	k := f.retirement()
	in.Retired = []Retired{{Record: k}}
	if rep := VerifySession(in); codes(rep) != "" { // all within the second of the retirement
		t.Error(codes(rep))
	}
	k = f.retiredAt(-1)
	in.Retired = []Retired{{Record: k}}
	if rep := VerifySession(in); codes(rep) != "decision_key_retired@3 approval_key_retired@10" {
		t.Error(codes(rep))
	}
	in.Retired = []Retired{{Record: k, Seq: 5}}
	if rep := VerifySession(in); codes(rep) != "approval_key_retired@10" {
		t.Error(codes(rep))
	}
}

func TestCompareLog(t *testing.T) {
	f := newFixture(t)
	f.session()
	for name, tc := range map[string]struct {
		row    int
		change func(*events.LogMessage)
		want   string
	}{
		"decision":           {2, nil, ""},
		"request":            {1, nil, ""},
		"redacted":           {3, nil, ""},
		"approval":           {9, nil, ""},
		"unparseable":        {6, nil, ""},
		"another decision":   {2, func(m *events.LogMessage) { m.Body = []byte(strings.Replace(string(m.Body), "allow", "deny", 1)) }, "log_mismatch@3"},
		"another signature":  {2, func(m *events.LogMessage) { m.Header = map[string][]string{events.HeaderSignature: {"x"}} }, "log_mismatch@3"},
		"another subject":    {2, func(m *events.LogMessage) { m.Subject += "x" }, "log_mismatch@3"},
		"another time":       {2, func(m *events.LogMessage) { m.Time = m.Time.Add(1) }, "log_mismatch@3"},
		"another plain body": {1, func(m *events.LogMessage) { m.Body = append(bytes.Clone(m.Body), ' ') }, "log_mismatch@2"},
	} {
		v := NewVerifier(f.options())
		for i, r := range f.rows() {
			var x Examined
			v.rowExaminer.Examine(&r, &x)
			if i == tc.row {
				m := f.msgs[i]
				if tc.change != nil {
					tc.change(&m)
				}
				x.CompareLog(r, m)
			}
			v.Add(&x)
		}
		if rep := v.Finish(); codes(rep) != tc.want || rep.Compared != 1 {
			t.Errorf("%s: %s, want %s (%v)", name, codes(rep), tc.want, rep.Findings)
		}
	}
}

// Unvouched key hints change nothing.
func TestHintsAreNotTrusted(t *testing.T) {
	f := newFixture(t)
	f.admit("s", "0199a000-0000-7000-8000-000000000009", events.Allow, "{}")
	o := f.options()
	k := f.keyRecord()
	k.Vouch = ""
	o.KeyHints = []events.KeyRecord{k}
	v := NewVerifier(o)
	e := v.Examiner()
	for _, r := range f.rows() {
		var x Examined
		e.Examine(&r, &x)
		v.Add(&x)
	}
	if rep := v.Finish(); codes(rep) != "decision_key_unknown@2" {
		t.Error(codes(rep))
	}
}

// A signature that was checked under a key of the same id, but not the one that
// is vouched for, is none.
func TestClaimUnderAnotherKeyOfTheSameID(t *testing.T) {
	f := newFixture(t)
	stranger, err := signing.NewPrivateKey(derived("stranger"))
	must(t, err)
	rep := newReport(0)
	trust := newTrust(rep, []note.Verifier{f.verifier}, []events.KeyRecord{f.keyRecord()}, nil, nil)
	trust.verifySignature(signatureClaim{seq: 7, kind: factDecision, keyID: f.receipt.ID, pub: f.receipt.Public(), valid: true})
	if rep.Total != 0 {
		t.Fatal(rep.Findings)
	}
	trust.verifySignature(signatureClaim{seq: 8, kind: factDecision, keyID: f.receipt.ID, pub: stranger.Public(), valid: true})
	if codes(*rep) != "decision_signature@8" {
		t.Error(codes(*rep))
	}
}
