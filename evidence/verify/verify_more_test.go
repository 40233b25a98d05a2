package verify_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// Shares of one signature hold in a shard and in a session, and only for the
// record that they are for.
func TestBatchedSignatures(t *testing.T) {
	f := evidencetest.New(t)
	f.Log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
	f.Batch(5)
	rep := evidencetest.VerifyRows(f.Options(), f.Rows())
	if !rep.OK || rep.Decisions != 5 || rep.Approvals != 1 {
		t.Fatalf("%+v", rep)
	}
	if rep := verify.Session(f.SessionInput("sess-a")); !rep.OK || rep.Decisions != 5 {
		t.Fatalf("%+v", rep)
	}
	rows := f.Rows()
	rewrite(&rows[6], func(r *evidence.Record) { // another's share
		other, _ := evidence.ParseRecord([]byte(rows[7].Record))
		r.Headers[events.HeaderSignature] = other.Headers[events.HeaderSignature]
	})
	if rep := evidencetest.VerifyRows(f.Options(), rows); !strings.HasPrefix(codes(rep), "decision_signature@7 ") {
		t.Error(codes(rep))
	}
}

// A signature over a text that was redacted must have a signature's form, with and without the log.
func TestMaskedSignatureHasItsForm(t *testing.T) {
	for _, tool := range []string{"read_file", "ghp_0123456789abcdefghijABCDEFGHIJ012345"} {
		for _, signature := range []string{"none", "a..b", "x.y.z", "good", "good~0~2~AAAA"} {
			f := evidencetest.New(t)
			f.Log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
			body := f.Encode(events.Approval{WorkflowID: "w", Tenant: "acme", Status: "approved", Session: "s", Tool: tool})
			good, err := f.Receipt.SignDetached(signing.TypeRecord, body)
			evidencetest.Must(t, err)
			f.Log(subject.Space{}.Approval("acme", "approved", "w"), map[string][]string{events.HeaderSignature: {strings.Replace(signature, "good", good, 1)}}, body)
			for _, compared := range []bool{false, true} {
				v := verify.NewVerifier(f.Options())
				e := v.Examiner()
				for i, r := range f.Rows() {
					var x verify.Examined
					e.Examine(&r, &x)
					if compared {
						x.CompareLog(r, f.Messages[i])
					}
					v.Add(&x)
				}
				if rep := v.Finish(); rep.OK != (signature == "good") || !rep.OK && codes(rep) != "approval_signature@2" {
					t.Errorf("tool %.4s, signature %.8q, compared %t: %s", tool, signature, compared, codes(rep))
				}
			}
		}
	}
}

func TestDecisionsOfTheirSubjects(t *testing.T) {
	const id = "0199a000-0000-7000-8000-000000000009"
	s := subject.Space{}
	sign := func(f *evidencetest.Fixture, subj string, record []byte) {
		sig, err := f.Receipt.SignDetached(signing.TypeRecord, record)
		evidencetest.Must(t, err)
		f.Log(subj, map[string][]string{events.HeaderSignature: {sig}}, record)
	}
	request := func(f *evidencetest.Fixture) {
		f.Log(s.Request("acme", "p", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
	}
	decision := func(f *evidencetest.Fixture) []byte {
		return f.Encode(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Verdict: events.Deny, Reasons: []events.Reason{}})
	}
	approval := func(f *evidencetest.Fixture, status string) []byte {
		return f.Encode(events.Approval{WorkflowID: "w", Tenant: "acme", Status: status, Session: "s"})
	}
	for name, tc := range map[string]struct {
		fill func(*evidencetest.Fixture)
		want string
	}{
		"asked twice, decided twice": {func(f *evidencetest.Fixture) {
			request(f)
			sign(f, "gov.decisions.acme.deny.s", decision(f))
			request(f)
			sign(f, "gov.decisions.acme.deny.s", decision(f))
		}, ""},
		"a decision replayed": {func(f *evidencetest.Fixture) {
			request(f)
			sign(f, "gov.decisions.acme.deny.s", decision(f))
			sign(f, "gov.decisions.acme.deny.s", decision(f))
		}, "decision_repeated@3"},
		"under another verdict": {func(f *evidencetest.Fixture) {
			request(f)
			sign(f, "gov.decisions.acme.allow.s", decision(f))
		}, "decision_malformed@2"},
		"not a decision": {func(f *evidencetest.Fixture) {
			sign(f, "gov.decisions.acme.deny.s", []byte(`{"verdict":"deny","x":1}`))
		}, "decision_malformed@1"},
		"an approval": {func(f *evidencetest.Fixture) { sign(f, "gov.approvals.acme.approved.w", approval(f, "approved")) }, ""},
		"an approval of another status": {func(f *evidencetest.Fixture) {
			sign(f, "gov.approvals.acme.approved.w", approval(f, "denied"))
		}, "approval_malformed@1"},
		"an approval of another workflow": {func(f *evidencetest.Fixture) {
			sign(f, "gov.approvals.acme.approved.w2", approval(f, "approved"))
		}, "approval_malformed@1"},
		"an unsigned approval":        {func(f *evidencetest.Fixture) { f.Log("gov.approvals.acme.approved.w", nil, approval(f, "approved")) }, "approval_unsigned@1"},
		"an approval that is no JSON": {func(f *evidencetest.Fixture) { f.Log("gov.approvals.acme.approved.w", nil, []byte("{")) }, "approval_malformed@1"},
		"a forged approval": {func(f *evidencetest.Fixture) {
			sig, _ := f.Receipt.SignDetached(signing.TypeRecord, approval(f, "denied"))
			f.Log("gov.approvals.acme.approved.w", map[string][]string{events.HeaderSignature: {sig}}, approval(f, "approved"))
		}, "approval_signature@1"},
		"an approval by a retired key": {func(f *evidencetest.Fixture) {
			f.Log(s.Control("GOV", events.ControlKeyRetired), nil, f.Encode(f.Retirement()))
			sign(f, "gov.approvals.acme.approved.w", approval(f, "approved"))
		}, "approval_key_retired@2"},
		"signature of another kind": {func(f *evidencetest.Fixture) {
			request(f)
			sig, _ := f.Receipt.SignDetached(signing.TypeReceipt, decision(f))
			f.Log("gov.decisions.acme.deny.s", map[string][]string{events.HeaderSignature: {sig}}, decision(f))
		}, "decision_signature@2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := evidencetest.New(t)
			tc.fill(f)
			o := f.Options()
			o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
			if rep := evidencetest.VerifyRows(o, f.Rows()); codes(rep) != tc.want {
				t.Errorf("%s, want %s (%v)", codes(rep), tc.want, rep.Findings)
			}
		})
	}
}

// A second row of a sequence with the stored hash of the first, but another
// text, is another record.
func TestSecondRowWithTheFirstOnesHash(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	rows := f.Rows()
	same, other, hash := rows[3], rows[3], rows[3]
	other.Record = strings.Replace(other.Record, "sess-a", "sess-b", 1)
	hash.RecordHash[0]++
	for want, second := range map[string]evidence.Row{"duplicate_seq@4": same, "conflicting_seq@4": other, "conflicting_seq@4 ": hash} {
		if rep := evidencetest.VerifyRows(f.Options(), slices.Insert(f.Rows(), 4, second)); codes(rep) != strings.TrimSpace(want) {
			t.Errorf("%s, want %s (%v)", codes(rep), want, rep.Findings)
		}
	}
}

// However many goroutines examine, the report is the one that a single one
// makes.
func TestExaminersInParallel(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	f.Batch(20)
	rows := f.Rows()
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
			rewrite(&rows[i], func(r *evidence.Record) { r.BodyDigest = digest.Plain([]byte("x")) })
		}
	}
	opts := f.Options()
	opts.KeyHints = []events.KeyRecord{f.KeyRecord()}
	opts.MaxFindings = 1000
	want, err := json.Marshal(evidencetest.VerifyRows(opts, rows))
	evidencetest.Must(t, err)
	for range 3 {
		v := verify.NewVerifier(opts)
		list := make([]verify.Examined, len(rows))
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
		evidencetest.Must(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// verifyPart is the verification of the rows from first on, up to last.
func verifyPart(f *evidencetest.Fixture, first, last uint64, change func([]evidence.Row), list ...verify.Published) verify.Report {
	f.T.Helper()
	frontier, err := f.ReadHashes(tree.FrontierIndexes(int64(first) - 1))
	evidencetest.Must(f.T, err)
	o := f.Options()
	o.Checkpoints = append(o.Checkpoints, list...)
	o.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
	o.Part = &verify.Part{First: first, Frontier: frontier, RequestsFrom: first + 2}
	v := verify.NewVerifier(o)
	rows := slices.Clone(f.Rows()[first-1 : last])
	if change != nil {
		change(rows)
	}
	for _, r := range rows {
		v.Row(r)
	}
	proof, err := tree.ConsistencyProof(f, int64(last), f.Tree.Size())
	evidencetest.Must(f.T, err)
	return v.FinishPart(proof)
}

// Every part of a shard is proved by itself; a changed row in it is found, and so
// is a part that is another's.
func TestParts(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	middle := f.Checkpoint()
	f.Batch(9)
	n, step := uint64(len(f.Built)), uint64(1)
	if testing.Short() { // the race detector makes it ten times slower
		step = 5
	}
	for first := uint64(1); first <= n; first++ {
		for last := first; last <= n; last += step {
			rep := verifyPart(f, first, last, nil, verify.Published{Source: "middle", Text: middle})
			if !rep.OK && codes(rep) != fmt.Sprintf("decision_without_request@%d", rep.Findings[0].Seq) {
				t.Fatalf("%d to %d: %v", first, last, rep.Findings)
			}
			if rep.From != first || rep.To != last || rep.Signed != int64(n) {
				t.Fatalf("%+v", rep)
			}
			at := (first + last) / 2
			rep = verifyPart(f, first, last, func(rows []evidence.Row) {
				rewrite(&rows[at-first], func(r *evidence.Record) { r.BodyDigest = digest.Plain([]byte("x")) })
			})
			if rep.OK || rep.ByCode[verify.CodeRange]+rep.ByCode[verify.CodeRoot] != 1 {
				t.Fatalf("%d to %d, %d changed: %v", first, last, at, rep.Findings)
			}
		}
	}
	o := f.Options()
	o.Part = &verify.Part{First: 5}
	if rep := verify.NewVerifier(o).FinishPart(nil); rep.OK || rep.ByCode[verify.CodeRange] != 1 {
		t.Errorf("without a frontier: %v", rep.Findings)
	}
	if rep := verifyPart(f, 3, 8, func(rows []evidence.Row) { rows[2], rows[3] = rows[3], rows[2] }); rep.ByCode[verify.CodeGap] == 0 {
		t.Errorf("swapped: %v", rep.Findings)
	}
}

// An older checkpoint that today's log does not extend is a fork. If only the rows were changed,
// it is not.
func TestForkIsToldFromTampering(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	sign := func(size int64, root tlog.Hash) verify.Published {
		text, err := tree.SignCheckpoint(f.Signer, tree.Checkpoint{Shard: evidencetest.Shard, Size: size, Root: root})
		evidencetest.Must(t, err)
		return verify.Published{Source: "kept.txt", Text: text}
	}
	o := f.Options()
	o.Checkpoints = append(o.Checkpoints, sign(7, tlog.Hash{7}))
	if rep := evidencetest.VerifyRows(o, f.Rows()); codes(rep) != "checkpoint_fork@7" || rep.Findings[0].Field != "kept.txt" {
		t.Errorf("%v", rep.Findings)
	}
	rows := f.Rows()
	rewrite(&rows[12], func(r *evidence.Record) { r.BodyDigest = digest.Keyed(nil, []byte("y")) })
	rep := evidencetest.VerifyRows(o, rows)
	if rep.ByCode[verify.CodeCheckpointFork] != 0 || rep.ByCode[verify.CodeRoot] != 2 {
		t.Errorf("nothing holds: %v", rep.Findings)
	}

	in := f.SessionInput("sess-a")
	old := tree.Checkpoint{Shard: evidencetest.Shard, Size: 7}
	var merkle tree.Tree
	for _, b := range f.Built[:7] {
		merkle.Append(b.Hash)
	}
	old.Root = merkle.Root()
	proof, err := tree.ConsistencyProof(f, 7, f.Tree.Size())
	evidencetest.Must(t, err)
	for want, e := range map[string]verify.Extension{
		"":                      {Published: sign(7, old.Root), Proof: proof},
		"checkpoint_fork@7":     {Published: sign(7, tlog.Hash{7}), Proof: proof},
		"checkpoint_fork@7 ":    {Published: sign(7, old.Root), Proof: proof[1:]},
		"checkpoint_ahead@99":   {Published: sign(99, old.Root), Proof: nil},
		"checkpoint_invalid@0":  {Published: verify.Published{Source: "kept.txt", Text: "x"}, Proof: nil},
		"checkpoint_fork@13":    {Published: sign(13, tlog.Hash{1}), Proof: nil},
		" ":                     {Published: sign(13, f.Tree.Root()), Proof: nil},
		"checkpoint_invalid@0 ": {Published: verify.Published{Source: "kept.txt", Text: strings.Replace(sign(7, old.Root).Text, "\n7\n", "\n6\n", 1)}, Proof: proof},
	} {
		in.Older = []verify.Extension{e}
		if rep := verify.Session(in); codes(rep) != strings.TrimSpace(want) {
			t.Errorf("%s, want %s (%v)", codes(rep), want, rep.Findings)
		}
	}
}

// The receipts that were handed in name the call that was decided.
func TestReceiptsOfOtherCalls(t *testing.T) {
	const id = "0199a000-0000-7000-8000-000000000009"
	for claim, want := range map[string]string{"": "", `"tool":"send_email"`: "", `"tool":"drop_table"`: "receipt_invalid@2", `"session":"t"`: "receipt_invalid@2",
		`"tool_call_id":"call-2"`: "receipt_invalid@2", `"source":"runtime-2"`: "receipt_invalid@2"} {
		f := evidencetest.New(t)
		payload := `{"decision_id":"` + id + `","tenant":"acme","verdict":"allow"}`
		if claim != "" {
			payload = strings.TrimSuffix(payload, "}") + "," + claim + "}"
		}
		token, err := f.Receipt.Sign(signing.TypeReceipt, []byte(payload))
		evidencetest.Must(t, err)
		f.Log(subject.Space{}.Request("acme", "runtime-1", "aaep", "s"), map[string][]string{events.HeaderDecisionID: {id}}, []byte("{}"))
		f.Decision(events.Decision{DecisionID: id, Tenant: "acme", Session: "s", Source: "runtime-1", Tool: "send_email", ToolCallID: "call-1", Verdict: events.Allow,
			Reasons: []events.Reason{}, ReceiptHash: digest.Plain([]byte(token))})
		o := f.Options()
		o.ReceiptKeys, o.Receipts = []events.KeyRecord{f.KeyRecord()}, []string{token}
		if rep := evidencetest.VerifyRows(o, f.Rows()); codes(rep) != want {
			t.Errorf("%s: %s, want %s", claim, codes(rep), want)
		}
		if o.Receipts = []string{token, token}; claim == "" {
			if rep := evidencetest.VerifyRows(o, f.Rows()); codes(rep) != "receipt_replayed@0" {
				t.Errorf("handed in twice: %v", rep.Findings)
			}
		}
	}
}

// A bundle's verifier that knows of a retirement from elsewhere goes by its time.
func TestRetirementByTime(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	in := f.SessionInput("sess-a")
	k := f.Retirement()
	in.Retired = []verify.Retired{{Record: k}}
	if rep := verify.Session(in); codes(rep) != "" { // all within the second of the retirement
		t.Error(codes(rep))
	}
	k = f.RetiredAt(-1)
	in.Retired = []verify.Retired{{Record: k}}
	if rep := verify.Session(in); codes(rep) != "decision_key_retired@3 approval_key_retired@10" {
		t.Error(codes(rep))
	}
	in.Retired = []verify.Retired{{Record: k, Seq: 5}}
	if rep := verify.Session(in); codes(rep) != "approval_key_retired@10" {
		t.Error(codes(rep))
	}
}

func TestCompareLog(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
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
		v := verify.NewVerifier(f.Options())
		e := v.Examiner()
		for i, r := range f.Rows() {
			var x verify.Examined
			e.Examine(&r, &x)
			if i == tc.row {
				m := f.Messages[i]
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
	f := evidencetest.New(t)
	f.Admit("s", "0199a000-0000-7000-8000-000000000009", events.Allow, "{}")
	o := f.Options()
	k := f.KeyRecord()
	k.Vouch = ""
	o.KeyHints = []events.KeyRecord{k}
	v := verify.NewVerifier(o)
	e := v.Examiner()
	for _, r := range f.Rows() {
		var x verify.Examined
		e.Examine(&r, &x)
		v.Add(&x)
	}
	if rep := v.Finish(); codes(rep) != "decision_key_unknown@2" {
		t.Error(codes(rep))
	}
}
