package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/compliance/table"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
)

const mailPolicy = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: mail
spec:
  match:
    tenants: [acme]
    protocols: [agenthook]
    tools: ["send_email"]
  rules:
    - name: all
      when: 'true'
      verdict: allow
      reason: harmless
`

func digestOf(t testing.TB, docs ...events.PolicyDocument) string {
	t.Helper()
	list := make([]policy.Document, len(docs))
	for i, d := range docs {
		list[i] = policy.Document{Name: d.Name, Data: []byte(d.Text)}
	}
	set, err := policy.Compile(list)
	ok(t, err)
	return set.Digest()
}

// stored is a Source in memory.
type stored struct {
	changes  []inforce.Change
	policies map[uint64][]events.PolicyDocument
	mandates map[string][]string
}

func (s stored) Changes(last uint64, yield func(inforce.Change) error) error {
	for _, c := range s.changes {
		if c.Seq <= last {
			if err := yield(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s stored) Policies(revision uint64) ([]events.PolicyDocument, string, error) {
	if docs := s.policies[revision]; docs != nil {
		return docs, "", nil
	}
	return nil, "it is gone", nil
}

func (s stored) Mandate(id string) ([]string, string, error) {
	if docs := s.mandates[id]; docs != nil {
		return docs, "", nil
	}
	return nil, "it is gone", nil
}

// decidedWorld is a log in which decisions name the policy that made them.
func decidedWorld(t testing.TB) (*world, stored) {
	w := newWorld(t)
	docs := []events.PolicyDocument{{Name: "mail.yaml", Text: mailPolicy}}
	w.policy = &events.PolicyRef{Name: "mail", Revision: 7, Digest: digestOf(t, docs...)}
	w.call("acme", "s1", events.Allow)
	w.call("acme", "s2", events.Allow)
	w.call("acme", "s1", events.Deny)
	return w, stored{changes: []inforce.Change{{Seq: 0, At: events.At(begin), Change: events.PolicyChange{Revision: 7, Digest: w.policy.Digest, Author: "dana", Message: "mail only", Documents: docs}}}}
}

// fullBundle is a session's bundle with the policies that decided.
func fullBundle(t testing.TB, w *world, src inforce.Source, key ed25519.PrivateKey, change func(*Input)) []byte {
	t.Helper()
	in := w.session("acme", "s1")
	in.Decided, in.SignKey = src, key
	if change != nil {
		change(&in)
	}
	return written(t, in)
}

func fullRange(t testing.TB, w *world, src inforce.Source, change func(*Input)) []byte {
	t.Helper()
	in := w.ranged("acme", 0, w.size()+1)
	in.Decided, in.SignKey = src, statementKey
	if change != nil {
		change(&in)
	}
	return written(t, in)
}

func TestBundleAndRange(t *testing.T) {
	w, src := decidedWorld(t)
	session := fullBundle(t, w, src, statementKey, nil)
	if !bytes.Equal(session, fullBundle(t, w, src, statementKey, nil)) {
		t.Error("the same session gives other bytes")
	}
	for name, file := range map[string][]byte{"session": session, "range": fullRange(t, w, src, nil)} {
		c := Options{StatementKey: public(statementKey)}
		if rep := verifyWorld(t, w, file, c); !rep.OK || len(rep.Notes) != 0 {
			t.Errorf("%s: %s, notes %q", name, codes(rep), rep.Notes)
		}
		names, members := unzip(t, file)
		if !slices.Contains(names, MemberTable) || !strings.Contains(string(members[MemberReport]), "name: mail") {
			t.Errorf("%s: members %v, or the report has no text of the policy", name, names)
		}
	}
}

// tableRow is the schema as a reader writes it from the documentation alone.
type tableRow struct {
	Seq        uint64  `parquet:"seq"`
	BrokerTime int64   `parquet:"broker_time,timestamp(nanosecond)"`
	Session    string  `parquet:"session"`
	Kind       string  `parquet:"kind"`
	Verdict    string  `parquet:"verdict"`
	Tool       string  `parquet:"tool"`
	Index      *uint64 `parquet:"session_index,optional"`
	Record     string  `parquet:"record"`
	RecordHash string  `parquet:"record_hash"`
}

// The table has the same rows and the same hashes as the records, in their order.
func TestTableHasTheRecords(t *testing.T) {
	w, src := decidedWorld(t)
	for name, file := range map[string][]byte{"session": fullBundle(t, w, src, nil, nil), "range": fullRange(t, w, src, nil)} {
		_, members := unzip(t, file)
		data := members[MemberTable]
		rows, err := parquet.Read[tableRow](bytes.NewReader(data), int64(len(data)))
		ok(t, err)
		lines := strings.SplitAfter(string(members["records.jsonl"]), "\n")
		if len(rows) != len(lines)-1 {
			t.Fatalf("%s: %d rows of %d records", name, len(rows), len(lines)-1)
		}
		for i, r := range rows {
			rec, err := evidence.ParseRecord([]byte(r.Record))
			ok(t, err)
			hash := evidence.HashRecord([]byte(r.Record))
			if r.Record+"\n" != lines[i] || r.RecordHash != hex.EncodeToString(hash[:]) || r.Seq != rec.Seq || r.BrokerTime != rec.BrokerTime.UnixNano() ||
				r.Session != rec.Session || r.Kind != rec.Kind || *r.Index != *rec.SessionIndex {
				t.Errorf("%s: row %d is not line %d: %+v", name, i, i, r)
			}
			if rec.Kind == evidence.KindDecision && (r.Verdict == "" || r.Tool != "send_email") {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// A table that differs from the records is found, whatever the manifest says of it.
func TestDoctoredTableIsFound(t *testing.T) {
	w, src := decidedWorld(t)
	other := newWorld(t)
	other.policy = w.policy
	other.call("acme", "s1", events.Deny)
	const found = "bundle_table in records.parquet"
	for name, tc := range map[string]struct {
		table func(files map[string][]byte) []byte
		want  string
		notes int
	}{
		"the same": {func(m map[string][]byte) []byte { return m[MemberTable] }, "", 0},
		"of other records": {func(map[string][]byte) []byte {
			_, m := unzip(t, fullBundle(t, other, src, nil, nil))
			return m[MemberTable]
		}, found, 0},
		"one row left out": {func(m map[string][]byte) []byte {
			left := bytes.Count(m[memberRecords], []byte("\n")) - 1
			var b bytes.Buffer
			ok(t, table.Write(func(yield func(evidence.Row, evidence.Record) error) error {
				return eachRow(bytes.NewReader(m[memberRecords]), func(row evidence.Row, rec evidence.Record) error {
					if left--; left < 0 {
						return nil
					}
					return yield(row, rec)
				})
			}, &b))
			return b.Bytes()
		}, found, 0},
		"cut short":   {func(m map[string][]byte) []byte { return m[MemberTable][:len(m[MemberTable])-1] }, found, 0},
		"more behind": {func(m map[string][]byte) []byte { return append(bytes.Clone(m[MemberTable]), 'x') }, found, 0},
		"by another version": {func(map[string][]byte) []byte {
			return []byte("PAR1 " + table.Format + " parquet-go v9.0.0 amd64 PAR1")
		}, "", 1},
		"without an edition": {func(map[string][]byte) []byte { return []byte("PAR1 something else PAR1") }, found, 0},
		"not Parquet":        {func(map[string][]byte) []byte { return []byte(table.Format + " parquet-go v9.0.0 amd64") }, found, 0},
	} {
		for kind, file := range map[string][]byte{"session": fullBundle(t, w, src, statementKey, nil), "range": fullRange(t, w, src, nil)} {
			bad := forge(t, file, statementKey, func(m map[string][]byte) { m[MemberTable] = tc.table(m) })
			rep := verifyWorld(t, w, bad, Options{Known: []ed25519.PublicKey{public(statementKey)}})
			if codes(rep) != tc.want || len(rep.Notes) != tc.notes {
				t.Errorf("%s, %s: %s, want %s; notes %q", name, kind, codes(rep), tc.want, rep.Notes)
			}
		}
	}
}

// What the list of policies says must fit the decisions and the digests in them.
func TestDoctoredPoliciesAreFound(t *testing.T) {
	w, src := decidedWorld(t)
	_, members := unzip(t, fullBundle(t, w, src, nil, nil))
	good := members[MemberInForce]
	for name, tc := range map[string]struct{ old, fresh, says string }{
		"nothing":            {`"policies"`, `"policies"`, ""},
		"text":               {"reason: harmless", "reason: hamrless", "the text does not give the digest"},
		"digest":             {`"digest":"sha256:`, `"digest":"sha256:0`, "not listed"},
		"count":              {`"decisions":2`, `"decisions":3`, "are said to name it"},
		"left out":           {string(good), `{"format":"countersign/in-force/v1","mandates":[],"policies":[]}`, "not listed"},
		"unknown member":     {`{"format"`, `{"extra":1,"format"`, "a member is unknown"},
		"newer":              {"in-force/v1", "in-force/v2", `format "countersign/in-force/v2"`},
		"not canonical":      {`{"format"`, `{ "format"`, "RFC 8785"},
		"a duplicate member": {`{"format"`, `{"format":"","format"`, "not a list of policies"},
	} {
		file := forge(t, fullBundle(t, w, src, nil, nil), nil, swap(MemberInForce, tc.old, tc.fresh))
		rep := verifyWorld(t, w, file, Options{})
		if tc.says == "" {
			if !rep.OK {
				t.Errorf("%s: %v", name, rep.Findings)
			}
			continue
		}
		if !slices.ContainsFunc(rep.Findings, func(p verify.Finding) bool {
			return p.Code == CodeInForce && p.Field == MemberInForce && strings.Contains(p.Detail, tc.says)
		}) {
			t.Errorf("%s: %v", name, rep.Findings)
		}
	}
}

var errGone = errors.New("the hash is gone")

// goneTexts is a Source that cannot be read.
type goneTexts struct{ stored }

func (goneTexts) Changes(uint64, func(inforce.Change) error) error { return errGone }

// fullSpool has no room.
type fullSpool struct{ spool }

func (*fullSpool) Write([]byte) (int, error) { return 0, errGone }

// What is missing when a bundle is written is an error, and no half of a bundle.
func TestWriterRefuses(t *testing.T) {
	w, src := decidedWorld(t)
	for name, change := range map[string]func(*Input){
		"missing proofs": func(in *Input) { in.Nodes = func([]int64) ([]tlog.Hash, error) { return nil, errGone } },
		"no place":       func(in *Input) { in.Spool = func(string) (Spool, error) { return nil, errGone } },
		"no place for the table": func(in *Input) {
			in.Spool = func(name string) (Spool, error) {
				if name == MemberTable {
					return &fullSpool{}, nil
				}
				return &spool{}, nil
			}
		},
		"texts not there": func(in *Input) { in.Decided = goneTexts{} },
	} {
		in := w.ranged("acme", 2, w.size()+1) // there are records before it
		in.Decided = src
		change(&in)
		var out bytes.Buffer
		if _, err := Write(&out, in); !errors.Is(err, errGone) || out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, out.Len())
		}
	}
}

// The verification of a changed file reports findings or an error and never fails in another
// way.
func FuzzVerify(f *testing.F) {
	w, src := decidedWorld(f)
	files := [][]byte{fullBundle(f, w, src, statementKey, nil), fullRange(f, w, src, nil)}
	f.Add([]byte("PK"), 0, 0, false)
	f.Add([]byte{}, 100, 101, false)
	f.Add([]byte(`{"format":"countersign/bundle/v1"}`), 40, 200, false)
	f.Add([]byte(`{"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":0}`), 9000, 9065, true)
	f.Add([]byte("PAR1"), 9000, 9004, true)
	f.Add([]byte(`{"format":"countersign/in-force/v1","mandates":[],"policies":[]}`), 20000, 20100, false)
	f.Fuzz(func(t *testing.T, patch []byte, at, cut int, ranged bool) {
		good := files[0]
		if ranged {
			good = files[1]
		}
		at, cut = min(max(at, 0), len(good)), min(max(cut, 0), len(good))
		bad := slices.Concat(good[:at], patch, good[max(at, cut):])
		rep, err := Verify(bytes.NewReader(bad), int64(len(bad)), w.VKey, Options{})
		if err == nil && rep.OK && !bytes.Equal(bad, good) {
			t.Error("a changed bundle verifies")
		}
	})
}
