package table

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
)

// The edition names the library that is built in: another version may write other
// bytes.
func TestEditionNamesTheLibrary(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`github.com/parquet-go/(parquet-go v\S+)`).FindSubmatch(mod)
	if m == nil || !strings.Contains(Edition, string(m[1])) {
		t.Errorf("the edition is %q, go.mod has %q: change Edition with the library", Edition, m)
	}
}

func records(n int) []evidence.Record {
	list := make([]evidence.Record, n)
	for i := range list {
		index := uint64(i + 1)
		list[i] = evidence.Record{V: 1, Shard: "GOV@20261120T064150.123456789Z", Seq: index, Tenant: "acme", Session: "s", Kind: evidence.KindEvent, Subject: "gov.events.acme.r.agenthook.s.PreToolUse",
			Headers: map[string][]string{}, BrokerTime: events.At(time.Unix(1_800_000_000, int64(i))), BodyDigest: "sha256:00", SessionIndex: &index, Redactions: []evidence.Redaction{},
			Body: fmt.Appendf(nil, `{"event_type":"PreToolUse","tool_input":%q,"tool_name":"send_email"}`, strings.Repeat(fmt.Sprint(i), 20))}
	}
	return list
}

func rowsOf(list []evidence.Record) Rows {
	return func(yield func(evidence.Row, evidence.Record) error) error {
		for _, r := range list {
			text, err := r.Canonical()
			if err != nil {
				return err
			}
			if err := yield(build.Built{Record: r, Canonical: text, Hash: evidence.HashRecord(text)}.Row(), r); err != nil {
				return err
			}
		}
		return nil
	}
}

// Many records are several row groups, and the same bytes each time.
func TestManyRowsAreTheSameEachTime(t *testing.T) {
	list := records(groupRows + 1000)
	rows := rowsOf(list)
	var a, b bytes.Buffer
	for _, out := range []*bytes.Buffer{&a, &b} {
		if err := Write(rows, out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same records give other bytes")
	}
	f, err := parquet.OpenFile(bytes.NewReader(a.Bytes()), int64(a.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if edition, _ := f.Lookup(editionKey); edition != Edition || len(f.RowGroups()) != 2 || f.NumRows() != groupRows+1000 {
		t.Errorf("edition %q, %d groups, %d rows", edition, len(f.RowGroups()), f.NumRows())
	}
}

// Members of other types than theirs, and of producers that claim verdicts, are
// left empty.
func TestClaimsAreNotColumns(t *testing.T) {
	rec := records(1)[0]
	rec.Body = []byte(`{"severity":"critical","tool_name":7,"verdict":"allow"}`)
	if r := rowOf(evidence.Row{}, rec); r.Verdict != "" || r.Severity != "" || r.Tool != "" {
		t.Errorf("%+v", r)
	}
}

// Only members of exactly these names are columns, and members of other types are left out.
func TestColumnsAreNamedExactly(t *testing.T) {
	rec := evidence.Record{Kind: evidence.KindEvent, Body: []byte(`{"AGENT_ID":"x","Tool":"x","agent":"dora","metadata":{"tool_call_id":7},"tool":["x"],"tool_call_id":"c1","tool_name":"send"}`)}
	if r := rowOf(evidence.Row{}, rec); r.Agent != "dora" || r.Tool != "send" || r.ToolCallID != "c1" {
		t.Errorf("agent %q, tool %q, call %q", r.Agent, r.Tool, r.ToolCallID)
	}
}

// A file is compared byte by byte: the result says where it differs, and whether another edition made it.
func TestCompareFindsEachDifference(t *testing.T) {
	rows := rowsOf(records(2000)) // more than one buffer of the comparer
	var out bytes.Buffer
	if err := Write(rows, &out); err != nil {
		t.Fatal(err)
	}
	whole := out.Bytes()
	size := int64(len(whole))
	middle := size / 2
	changed := bytes.Clone(whole)
	changed[middle] ^= 1
	for name, c := range map[string]struct {
		file []byte
		want Result
	}{
		"the same":        {whole, Result{Same: true}},
		"a changed byte":  {changed, Result{At: middle}},
		"a byte more":     {append(bytes.Clone(whole), 0), Result{At: size}},
		"a byte less":     {whole[:size-1], Result{At: size - 1}},
		"empty":           {nil, Result{}},
		"another edition": {bytes.ReplaceAll(whole, []byte(Edition), []byte(strings.Replace(Edition, "v0", "v9", 1))), Result{At: int64(bytes.Index(whole, []byte(Edition)) + strings.Index(Edition, "v0") + 1), OtherEdition: true}},
	} {
		got, err := Compare(rows, bytes.NewReader(c.file))
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; expected %+v", name, got, err, c.want)
		}
	}
}

// Records that cannot be read are no difference of the file.
func TestCompareReportsTheRecordsError(t *testing.T) {
	unreadable := errors.New("unreadable")
	rows := func(func(evidence.Row, evidence.Record) error) error { return unreadable }
	if got, err := Compare(rows, bytes.NewReader(nil)); !errors.Is(err, unreadable) || got.Same {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Write(rows, &bytes.Buffer{}); !errors.Is(err, unreadable) {
		t.Error(err)
	}
}

// A record without its body has the reason instead of what the body would say.
func TestRefusedRecordHasItsReason(t *testing.T) {
	rec := records(1)[0]
	rec.Reason = "bad_json"
	if r := rowOf(evidence.Row{}, rec); r.Reason == nil || *r.Reason != "bad_json" || r.Type != "" || r.Tool != "" {
		t.Errorf("%+v", r)
	}
}
