package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	jsonv1 "encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/casefold"
)

// oracle reads a document with the tokens of jsontext. It says which trees and refusals Read
// must give.
type oracle struct {
	dec *jsontext.Decoder
	lim Limits
}

func oracleParse(raw []byte, lim Limits) (any, error) {
	if e := checkBytes(raw, lim); e != nil {
		return nil, e
	}
	p := oracle{dec: jsontext.NewDecoder(bytes.NewReader(raw)), lim: lim}
	v, err := p.value()
	if err != nil {
		return nil, ownError(err, p.dec.StackPointer(), p.dec.InputOffset())
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &Error{Code: TrailingData}
	}
	return v, nil
}

func (p *oracle) fail(code Code) error {
	return &Error{Code: code, Path: string(p.dec.StackPointer()), Offset: p.dec.InputOffset()}
}

func (p *oracle) value() (any, error) {
	tok, err := p.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{', '[':
		if p.lim.MaxDepth > 0 && p.dec.StackDepth() > p.lim.MaxDepth {
			return nil, p.fail(TooDeep)
		}
		if tok.Kind() == '{' {
			return p.object()
		}
		return p.array()
	case '"':
		return tok.String(), nil
	case '0':
		if code, _ := checkNumber(tok.String()); code != "" {
			return nil, p.fail(code)
		}
		return jsonv1.Number(tok.String()), nil
	case 't', 'f':
		return tok.Bool(), nil
	}
	return nil, nil
}

func (p *oracle) object() (any, error) {
	m := map[string]any{}
	folded := map[string]bool{}
	for p.dec.PeekKind() != '}' {
		tok, err := p.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := tok.String()
		if folded[casefold.String(key)] {
			return nil, p.fail(CaseCollision)
		}
		folded[casefold.String(key)] = true
		if m[key], err = p.value(); err != nil {
			return nil, err
		}
	}
	_, err := p.dec.ReadToken()
	return m, err
}

func (p *oracle) array() (any, error) {
	list := []any{}
	for p.dec.PeekKind() != ']' {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := p.dec.ReadToken()
	return list, err
}

var documentSeeds = []string{
	`{}`, ` {"a":1} `, `{"a":"b","A":"c"}`, `{"a":1,"a":2}`, `{"b":[1,-2,0.5,"x\n\u00e9\"",true,false,null,{"c":{}}]}`,
	`{"é":1}`, `{"a":"é"}`, `{"a":1e3}`, `{"a":-0}`, `{"a":01}`, `{"a":0.10000000000000000001}`, `{"a":9007199254740993}`,
	`{"a":"\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":"\x"}`, `{"a":1}x`, `{"a":1,}`, `{"a" : [ ] , "b" :{ } }`, `{"a":[1,]}`,
	`[1]`, `"x"`, ``, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":tru}`, `{"a":"\u00"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}",
	`{"ab":1,"ba":2,"aB":3}`, `{"a":-}`, `{"a":.5}`, `{"a":5.}`, `{"a":1.5.5}`, `{"a":--1}`, `{"a":00.5}`, `{"a":1-2}`, `{"b":2,"a":1,"":0}`,
	`{"a!":1,"a":222222,"resource_kind":1,"resource":2,"resource_scope":3,"res":[{"resource!":4,"resource":5}]}`, `{"@k":1," k":2}`, `{"[":1,"{":2}`, `{"a":123456789012345,"b":1234567890123456}`, `{"a":"/\/\\"}`, `{"a":"\u+123"}`, `{"a":"\u0_12"}`,
	`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, `{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`,
	`{"\ue000":1,"\ud83d\ude00":2,"z":3,"é":4,"\"":5,"\u0001":6}`, `{"s":1,"ſ":2}`, `{"ſ":1,"s":2}`, `{"\u212a":1,"k":2}`, `{"İ":1,"i":2}`, `{"a":1,"b":2,"\u0041":3}`,
	`[1 2]`, `[1:2]`, `[,1]`, `[1,,2]`, `[1}`, `[1,}`, `{1:2}`, `{"a" 1}`, `{"a",1}`, `{"a":,}`, `{"a":}`, `{"a":]`, `{"a":1]`, `{,"a":1}`, `{"a":1,,}`, `{"a":1:2}`, `{"a":1 "b":2}`,
	`]`, `}`, `,`, `:`, `[`, `[1`, `[1,`, `{"a":1`, `{"a":1,`, `{"a":t`, `tru`, `nul`, `nulL`, `fals}`, `-`, `1e`, `1e+`, `1.`, `[1.`, `[-`, `[1.x`, `"\`, `"\u`, `"\u1`, `"\ud800`, `"\ud800\`, `"\ud800\u`, `"\ud800\udc0`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u00"`, `"\ud800\u0041"`, `["\udc00"]`, `{"\ud800":1}`, `{"\q":1}`, `{"a/b~":{"c":x}}`, `[[1],[2,x]]`,
	`{"a":0e999999999999,"b":1E2,"c":-0.0,"d":1e-7,"e":5e-324}`, `1e400`, `1 2`, `"x" x`, `[] []`,
}

// holdDocument fails if Read gives another tree or another refusal than the oracle.
func holdDocument(t *testing.T, raw []byte, lim Limits) {
	t.Helper()
	before := bytes.Clone(raw)
	v, err := Read(raw, lim)
	want, wantErr := oracleParse(raw, lim)
	if !bytes.Equal(before, raw) {
		t.Fatalf("%q was changed", before)
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: %v, want %v", raw, err, wantErr)
	}
	if err != nil {
		var got, want *Error
		if !errors.As(err, &got) || !errors.As(wantErr, &want) {
			t.Fatalf("%q: %T, want %T", raw, err, wantErr)
		}
		if got.Code != want.Code || got.Path != want.Path {
			t.Errorf("%q: %s at %q, want %s at %q (%v)", raw, got.Code, got.Path, want.Code, want.Path, wantErr)
		}
		if got.Detail == "" || got.Offset < 0 || got.Offset > int64(len(raw)) {
			t.Fatalf("%q: %v", raw, got)
		}
		return
	}
	if got := v.Tree(); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q is read as %v, not %v", raw, got, want)
	}
	canonical, err := CanonicalBytes(raw)
	if got := v.AppendCanonical(nil); err != nil || !bytes.Equal(got, canonical) {
		t.Fatalf("%q has the form %s, not %s, %v", raw, got, canonical, err)
	}
	members, _ := want.(map[string]any)
	for key := range members {
		if !reflect.DeepEqual(v.Get(key).Tree(), members[key]) || v.Get(key).Key() != key {
			t.Fatalf("%q: member %q is %v", raw, key, v.Get(key).Tree())
		}
	}
	if members != nil && v.Len() != len(members) || v.Get("no such member").Exists() {
		t.Fatalf("%q has %d members, not %d", raw, v.Len(), len(members))
	}
}

// largeDocuments are long ones, and beyond the bound up to which keys are compared one by one.
func largeDocuments() []string {
	var members []string
	for i := range 3 * maxScannedMembers {
		members = append(members, fmt.Sprintf(`"member %02d":"text\n%d"`, 3*maxScannedMembers-i, i))
	}
	many := strings.Join(members, ",")
	long := `"long":"` + strings.Repeat("x", 8<<10) + `"`
	return []string{"{" + many + "}", "{" + many + "," + long + "}", "{" + many + `,"member 01":1}`, "{" + many + `,"MEMBER 01":1}`, "{" + many + `,"é":1,"É":2}`,
		"{" + long + `,"a":{` + many + `},"b":[` + strings.Repeat("1.5,", 4<<10) + `1]}`, "[" + strings.Repeat(`"",`, 4<<10) + "x]",
		"{" + long + `,"a":[1,{"b":01}]}`}
}

func TestDocument(t *testing.T) {
	for _, s := range append(largeDocuments(), documentSeeds...) {
		holdDocument(t, []byte(s), DefaultLimits)
		for end := range min(len(s), 200) {
			holdDocument(t, []byte(s[:end]), DefaultLimits)
		}
	}
	holdDocument(t, []byte(`{"a":1}`), Limits{MaxBytes: 6})
	holdDocument(t, []byte(`{"a":[[]]}`), Limits{MaxDepth: 2})
}

// TestTokenSequences: every short sequence of tokens, valid or not, is read as the oracle reads it.
func TestTokenSequences(t *testing.T) {
	tokens := []string{"[", "]", "{", "}", ",", ":", "1", `"a"`, `"b"`, "t", " "}
	var extend func(text string, more int)
	extend = func(text string, more int) {
		holdDocument(t, []byte(text), DefaultLimits)
		for _, token := range tokens {
			if more > 0 {
				extend(text+token, more-1)
			}
		}
	}
	longest := 4
	if testing.Short() { // the race detector makes it ten times slower
		longest = 3
	}
	extend("", longest)
	for _, start := range []string{`{"a":`, `{"a":1,`, `[1,`, `[{"a":[`, `[{"a":1`, `{"a":[1`, `"\ud83d`} {
		extend(start, longest)
	}
}

// TestNesting: the parser bounds its recursion where Limits do not.
func TestNesting(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, err := Parse(deep(maxNesting), Limits{}); err != nil {
		t.Error(err)
	}
	_, err := Parse(deep(maxNesting+1), Limits{MaxDepth: 1 << 30})
	var e *Error
	if !errors.As(err, &e) || e.Code != TooDeep {
		t.Errorf("%v", err)
	}
}

// TestUnmarshalKeepsCases: keys that differ in case are two keys for Unmarshal, and one key that
// is there twice is refused.
func TestUnmarshalKeepsCases(t *testing.T) {
	var into map[string]int
	if err := Unmarshal([]byte(`{"a":1,"A":2}`), &into); err != nil || into["a"] != 1 || into["A"] != 2 {
		t.Errorf("%v, %v", into, err)
	}
	if err := Unmarshal([]byte(`{"a":1,"a":2}`), &into); err == nil {
		t.Error("a key that is there twice is accepted")
	}
}

func FuzzDocument(f *testing.F) {
	for _, s := range append(largeDocuments(), documentSeeds...) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		holdDocument(t, raw, DefaultLimits)
		if _, err := Read(raw, DefaultLimits); err == nil && !jsonv1.Valid(raw) {
			t.Fatalf("%q is accepted", raw)
		}
	})
}

func BenchmarkDocument(b *testing.B) {
	raw := []byte(`{"schema_version":1,"event_id":"00000000-0000-4000-8000-000000000001","event_type":"PreToolUse","timestamp":"2026-11-20T12:00:00.000Z","source":"bench-agent","session_id":"s1","agent_id":"bench","tool_name":"write_file","action":"write","resource_kind":"file","resource":"/srv/reports/2026/q4.csv","resource_scope":"workspace","operation_risk":"reversible_write","metadata":{"tool_call_id":"call-1"},"evidence_phase":"pre_commit","tool_input":{"path":"/srv/reports/2026/q4.csv","mode":"append","content":"All figures are final and were checked against the ledger."}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(raw, DefaultLimits); err != nil {
			b.Fatal(err)
		}
	}
}
