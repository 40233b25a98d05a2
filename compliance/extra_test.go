package compliance_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/compliance"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/compliance/table"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
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

// decidedWorld is a log whose decisions name the policy that made them.
func decidedWorld(t testing.TB) (*world, stored) {
	w := newWorld(t)
	docs := []events.PolicyDocument{{Name: "mail.yaml", Text: mailPolicy}}
	w.policy = &events.PolicyRef{Name: "mail", Revision: 7, Digest: digestOf(t, docs...)}
	w.call("acme", "s1", events.Allow)
	w.call("acme", "s2", events.Allow)
	w.call("acme", "s1", events.Deny)
	return w, stored{changes: []inforce.Change{{Seq: 0, At: events.At(begin), Change: events.PolicyChange{Revision: 7, Digest: w.policy.Digest, Author: "dana", Message: "mail only", Documents: docs}}}}
}

// fullBundle is a session's bundle in the newest format.
func fullBundle(t testing.TB, w *world, src inforce.Source, key ed25519.PrivateKey, change func(*evidence.BundleInput)) []byte {
	t.Helper()
	in := w.input("acme", "s1")
	in.Attach, in.Extra = compliance.Attach, compliance.Extra(src)
	if key != nil {
		in.Sign = compliance.Signer(key)
	}
	if change != nil {
		change(&in)
	}
	var out bytes.Buffer
	ok(t, evidence.WriteBundle(&out, in))
	return out.Bytes()
}

func fullRange(t testing.TB, w *world, src inforce.Source, change func(*evidence.RangeInput)) []byte {
	t.Helper()
	in := w.ranged("acme", 0, w.n+1)
	in.Extra, in.Sign = compliance.Extra(src), compliance.Signer(statementKey)
	if change != nil {
		change(&in)
	}
	return writeRange(t, in)
}

func TestNewestFormats(t *testing.T) {
	w, src := decidedWorld(t)
	session := fullBundle(t, w, src, statementKey, nil)
	if !bytes.Equal(session, fullBundle(t, w, src, statementKey, nil)) {
		t.Error("the same session gives other bytes")
	}
	for name, file := range map[string][]byte{"session": session, "range": fullRange(t, w, src, nil)} {
		c := compliance.Checker{StatementKey: public(statementKey)}
		if rep := verify(t, w, file, &c); !rep.OK || len(c.Notes) != 0 {
			t.Errorf("%s: %s, notes %q", name, codes(rep), c.Notes)
		}
		names, members := unzip(t, file)
		if !slices.Contains(names, evidence.MemberTable) || !strings.Contains(string(members[evidence.MemberReport]), "name: mail") {
			t.Errorf("%s: members %v, or the report has no text of the policy", name, names)
		}
		for member, data := range members { // one changed byte is found and named
			bad := bytes.Clone(file)
			bad[bytes.Index(file, append([]byte(member), data...))+len(member)+len(data)/2] ^= 1
			if len(data) == 0 {
				continue
			}
			rep, err := evidence.VerifyBundleWith(bytes.NewReader(bad), int64(len(bad)), w.vkey, (&compliance.Checker{}).Check)
			if err != nil && !strings.Contains(err.Error(), member) || err == nil && !slices.ContainsFunc(rep.Findings, func(p evidence.Finding) bool { return p.Field == member }) {
				t.Errorf("%s: a changed byte of %s: %v, %v", name, member, err, rep.Findings)
			}
		}
	}
}

// tableRow is the schema as a reader has it who knows the page alone.
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
		data := members[evidence.MemberTable]
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
	for name, tc := range map[string]struct {
		table func(evidence.BundleContents, io.Writer) error
		want  string
		notes int
	}{
		"the same": {table.Write, "", 0},
		"of other records": {func(_ evidence.BundleContents, out io.Writer) error {
			_, m := unzip(t, fullBundle(t, other, src, nil, nil))
			_, err := out.Write(m[evidence.MemberTable])
			return err
		}, "bundle_table in records.parquet", 0},
		"one row left out": {func(c evidence.BundleContents, out io.Writer) error {
			if len(c.Records) == 0 { // a range's are not held
				_, err := out.Write([]byte(table.Edition))
				return err
			}
			c.Records = c.Records[:len(c.Records)-1]
			return table.Write(c, out)
		}, "bundle_table in records.parquet", 0},
		"cut short": {func(c evidence.BundleContents, out io.Writer) error {
			var b bytes.Buffer
			err := table.Write(c, &b)
			_, _ = out.Write(b.Bytes()[:b.Len()-1])
			return err
		}, "bundle_table in records.parquet", 0},
		"more behind": {func(c evidence.BundleContents, out io.Writer) error {
			err := table.Write(c, out)
			_, _ = out.Write([]byte("x"))
			return err
		}, "bundle_table in records.parquet", 0},
		"by another version": {func(_ evidence.BundleContents, out io.Writer) error {
			_, err := out.Write([]byte("PAR1 something else PAR1"))
			return err
		}, "", 1},
	} {
		for kind, file := range map[string][]byte{
			"session": fullBundle(t, w, src, nil, func(in *evidence.BundleInput) { in.Extra.Table = tc.table }),
			"range":   fullRange(t, w, src, func(in *evidence.RangeInput) { in.Extra.Table = tc.table }),
		} {
			c := compliance.Checker{Known: []ed25519.PublicKey{public(statementKey)}}
			rep := verify(t, w, file, &c)
			if codes(rep) != tc.want || len(c.Notes) != tc.notes {
				t.Errorf("%s, %s: %s, want %s; notes %q", name, kind, codes(rep), tc.want, c.Notes)
			}
		}
	}
}

// What the list of policies says must fit the decisions and the digests in them.
func TestDoctoredPoliciesAreFound(t *testing.T) {
	w, src := decidedWorld(t)
	_, members := unzip(t, fullBundle(t, w, src, nil, nil))
	good := members[evidence.MemberInForce]
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
		file := fullBundle(t, w, src, nil, func(in *evidence.BundleInput) {
			in.Extra.InForce = func(evidence.BundleContents) ([]byte, error) {
				if !bytes.Contains(good, []byte(tc.old)) {
					t.Fatalf("%s: %s", name, good)
				}
				return bytes.Replace(good, []byte(tc.old), []byte(tc.fresh), 1), nil
			}
		})
		rep := verify(t, w, file, &compliance.Checker{})
		if tc.says == "" {
			if !rep.OK {
				t.Errorf("%s: %v", name, rep.Findings)
			}
			continue
		}
		if !slices.ContainsFunc(rep.Findings, func(p evidence.Finding) bool {
			return p.Code == compliance.CodeInForce && p.Field == evidence.MemberInForce && strings.Contains(p.Detail, tc.says)
		}) {
			t.Errorf("%s: %v", name, rep.Findings)
		}
	}
}

// What is missing when a bundle is written is an error, and no half of a bundle.
func TestWriterRefuses(t *testing.T) {
	w, src := decidedWorld(t)
	gone := errors.New("the hash is gone")
	for name, change := range map[string]func(*evidence.RangeInput){
		"missing proofs": func(in *evidence.RangeInput) { in.Nodes = func([]int64) ([]tlog.Hash, error) { return nil, gone } },
		"no place":       func(in *evidence.RangeInput) { in.Spool = func(string) (evidence.Spool, error) { return nil, gone } },
		"a broken table": func(in *evidence.RangeInput) {
			in.Extra.Table = func(evidence.BundleContents, io.Writer) error { return gone }
		},
		"texts not there": func(in *evidence.RangeInput) {
			in.Extra.InForce = func(evidence.BundleContents) ([]byte, error) { return nil, gone }
		},
	} {
		in := w.ranged("acme", 2, w.n+1) // there are records before it
		in.Extra = compliance.Extra(src)
		change(&in)
		var out bytes.Buffer
		if _, err := evidence.WriteRange(&out, in); !errors.Is(err, gone) || out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, out.Len())
		}
	}
	in := w.input("acme", "s1")
	in.Attach, in.Extra = compliance.Attach, compliance.Extra(src)
	in.Extra.Table = func(evidence.BundleContents, io.Writer) error { return gone }
	if err := evidence.WriteBundle(io.Discard, in); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// The members of one format under another's name are refused.
func TestFormatsAreNotMixed(t *testing.T) {
	w, src := decidedWorld(t)
	old := writeRange(t, w.ranged("acme", 0, w.n+1))
	for name, tc := range map[string]struct {
		file       []byte
		from, to   string
		wantReason string
	}{
		"session": {fullBundle(t, w, src, nil, nil), "bundle/v3", "bundle/v2", "unknown member"},
		"range":   {fullRange(t, w, src, nil), "range/v2", "range/v1", "the members are those of"},
		"old":     {old, "range/v1", "range/v2", "the members are those of"},
	} {
		bad := bytes.Replace(tc.file, []byte(tc.from), []byte(tc.to), 1)
		_, err := evidence.VerifyBundle(bytes.NewReader(bad), int64(len(bad)), w.vkey)
		if !errors.Is(err, evidence.ErrBundle) || !strings.Contains(err.Error(), tc.wantReason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing in a file that anybody changed makes the check of it fail in another way
// than by saying so.
func FuzzVerifyNewest(f *testing.F) {
	w, src := decidedWorld(f)
	files := [][]byte{fullBundle(f, w, src, statementKey, nil), fullRange(f, w, src, nil)}
	f.Add([]byte("PK"), 0, 0, false)
	f.Add([]byte("PAR1"), 9000, 9004, true)
	f.Add([]byte(`{"format":"countersign/in-force/v1","mandates":[],"policies":[]}`), 20000, 20100, false)
	f.Fuzz(func(t *testing.T, patch []byte, at, cut int, ranged bool) {
		good := files[0]
		if ranged {
			good = files[1]
		}
		at, cut = min(max(at, 0), len(good)), min(max(cut, 0), len(good))
		bad := slices.Concat(good[:at], patch, good[max(at, cut):])
		rep, err := evidence.VerifyBundleWith(bytes.NewReader(bad), int64(len(bad)), w.vkey, (&compliance.Checker{}).Check)
		if err == nil && rep.OK && !bytes.Equal(bad, good) {
			t.Error("a changed bundle verifies")
		}
	})
}
