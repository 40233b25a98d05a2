package strictjson

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var flatSeeds = []string{
	`{}`, ` {"a":1} `, `{"a":"b","A":"c"}`, `{"a":1,"a":2}`, `{"b":[1,-2,0.5,"x\n\u00e9\"",true,false,null,{"c":{}}]}`,
	`{"é":1}`, `{"a":"é"}`, `{"a":1e3}`, `{"a":-0}`, `{"a":01}`, `{"a":0.10000000000000000001}`, `{"a":9007199254740993}`,
	`{"a":"\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":"\x"}`, `{"a":1}x`, `{"a":1,}`, `{"a" : [ ] , "b" :{ } }`, `{"a":[1,]}`,
	`[1]`, `"x"`, ``, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":tru}`, `{"a":"\u00"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}",
	`{"ab":1,"ba":2,"aB":3}`, `{"a":-}`, `{"a":.5}`, `{"a":5.}`, `{"a":1.5.5}`, `{"a":--1}`, `{"a":00.5}`, `{"a":1-2}`, `{"b":2,"a":1,"":0}`,
	`{"a!":1,"a":222222,"resource_kind":1,"resource":2,"resource_scope":3,"res":[{"resource!":4,"resource":5}]}`, `{"@k":1," k":2}`, `{"[":1,"{":2}`, `{"a":123456789012345,"b":1234567890123456}`, `{"a":"/\/\\"}`, `{"a":"\u+123"}`, `{"a":"\u0_12"}`,
	`{"a":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}`, `{"a":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `}`,
}

// TestSorted: as many members as there may be are put in order, and nothing else is.
func TestSorted(t *testing.T) {
	var members []string
	for i := range maxFlatMembers {
		members = append(members, fmt.Sprintf(`"member %02d":1`, maxFlatMembers-i))
	}
	var f Flat
	if !holdFlat(t, &f, []byte("{"+strings.Join(members, ",")+"}")) {
		t.Error("an object with as many members as there may be is not read")
	}
	if holdFlat(t, &f, []byte(`{"member":1,`+strings.Join(members, ",")+"}")) {
		t.Error("an object with one member more is read")
	}
	v, ok := f.Read([]byte(`{"a":[`+strings.Repeat("1,", 2*maxFlatMembers)+`1]}`), DefaultLimits)
	if !ok || len(v.Get("a").AppendSorted(nil)) != 0 || len(v.Get("b").AppendSorted(nil)) != 0 {
		t.Error("an array has members, or nothing has")
	}
}

// holdFlat fails if a Flat reads something that Parse reads otherwise.
func holdFlat(t *testing.T, f *Flat, raw []byte) bool {
	t.Helper()
	before := bytes.Clone(raw)
	v, ok := f.Read(raw, DefaultLimits)
	if !ok {
		return false
	}
	want, err := ParseObject(raw, DefaultLimits)
	if err != nil || !bytes.Equal(before, raw) {
		t.Fatalf("%q is read, and should not: %v", raw, err)
	}
	if got := v.Tree(); !reflect.DeepEqual(got, any(want)) {
		t.Fatalf("%q is read as %v, not %v", raw, got, want)
	}
	canonical, err := Canonical(want)
	if got, ok := v.AppendCanonical(nil); ok && (err != nil || !bytes.Equal(got, canonical)) {
		t.Fatalf("%q has the form %s, not %s", raw, got, canonical)
	}
	for key := range want {
		if !reflect.DeepEqual(v.Get(key).Tree(), want[key]) || v.Get(key).Key() != key {
			t.Fatalf("%q: member %q is %v", raw, key, v.Get(key).Tree())
		}
	}
	if v.Len() != len(want) || v.Get("no such member").Exists() {
		t.Fatalf("%q has %d members, not %d", raw, v.Len(), len(want))
	}
	return true
}

func TestFlat(t *testing.T) {
	var f Flat
	read := 0
	for _, s := range flatSeeds {
		if holdFlat(t, &f, []byte(s)) {
			read++
		}
	}
	if read < 10 {
		t.Errorf("only %d of the documents are read", read)
	}
	for _, s := range []string{`{"a":1.25,"b":"x\ty","c":[{"d":-17}]}`, `{"a":"é"}`} {
		if !holdFlat(t, &f, []byte(s)) {
			t.Errorf("%s is not read", s)
		}
	}
	if big := []byte(`{"a":"` + strings.Repeat("x", MaxFlat) + `"}`); holdFlat(t, &f, big) {
		t.Error("a large document is read")
	}
	if _, ok := f.Read([]byte(`{"a":1}`), Limits{MaxBytes: 6}); ok {
		t.Error("a document over the limit is read")
	}
}

func FuzzFlat(f *testing.F) {
	for _, s := range flatSeeds {
		f.Add([]byte(s))
	}
	var flat Flat
	f.Fuzz(func(t *testing.T, raw []byte) { holdFlat(t, &flat, raw) })
}

func BenchmarkFlat(b *testing.B) {
	raw := []byte(`{"schema_version":1,"event_id":"00000000-0000-4000-8000-000000000001","event_type":"PreToolUse","timestamp":"2026-11-20T12:00:00.000Z","source":"bench-agent","session_id":"s1","agent_id":"bench","tool_name":"write_file","action":"write","resource_kind":"file","resource":"/srv/reports/2026/q4.csv","resource_scope":"workspace","operation_risk":"reversible_write","metadata":{"tool_call_id":"call-1"},"evidence_phase":"pre_commit","tool_input":{"path":"/srv/reports/2026/q4.csv","mode":"append","content":"All figures are final and were checked against the ledger."}}`)
	var f Flat
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := f.Read(raw, DefaultLimits); !ok {
			b.Fatal("not read")
		}
	}
}
