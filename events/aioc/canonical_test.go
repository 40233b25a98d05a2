package aioc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events/strictjson"
)

func tree(t testing.TB, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text)) // strictjson refuses 1e21
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want, sum string }{
		{`{}`, `{}`, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
		{`{"b":1,"10":2,"9":3,"a":4}`, `{"9":3,"10":2,"a":4,"b":1}`, "2db3b5003136913b1cca2e6a407da548179f6d73d67f7a371178a8801f57c314"},
		{`{"__proto__":{"x":1},"a":1}`, `{"a":1}`, "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"},
		{`{"\uE000":1,"\ud83d\ude00":2,"z":3}`, "{\"z\":3,\"\U0001F600\":2,\"\ue000\":1}", "cd0e192e95f5e545c193788e80b08ab3d6fb48a5d20fed4af175061ec107847b"},
		{`{"s":"\u00e9 \u2028 <&> \u0007 \b \f \n \" \\ /","u":"\u00e9","e":"\ud83d\ude00"}`, "", "7ea8328b869d2b75610c1b6d453f3728e12c196d0f03c596c0663a0f1401a00f"},
		{`{"a":1.0,"b":1e21,"c":1e-7,"d":-0,"f":0.1,"g":1E2}`, `{"a":1,"b":1e+21,"c":1e-7,"d":0,"f":0.1,"g":100}`, ""},
		{`[{"2":[{"1":0,"0":"<"}],"1":null,"01":true,"-1":false,"1.0":1}]`, `[{"1":null,"2":[{"0":"<","1":0}],"-1":false,"01":true,"1.0":1}]`, ""},
		{`{"4294967295":1,"4294967294":2,"0":3}`, `{"0":3,"4294967294":2,"4294967295":1}`, ""},
		{`{"5":1,"\uE000":1,"\ud83d\ude00":2}`, "{\"5\":1,\"\U0001F600\":2,\"\ue000\":1}", ""},
		{`"x"`, `"x"`, ""}, {`null`, `null`, ""}, {`{"1":{},"__proto__":1}`, `{"1":{}}`, ""}, {`{"__proto__":1}`, `{}`, ""},
	} {
		got, err := canonicalForm(tree(t, c.in))
		if err != nil || c.want != "" && string(got) != c.want {
			t.Errorf("%s: %s %v", c.in, got, err)
		}
		if sum := sha256.Sum256(got); c.sum != "" && hex.EncodeToString(sum[:]) != c.sum {
			t.Errorf("%s: %x", c.in, sum)
		}
	}
	if _, err := canonicalForm(map[string]any{"1": func() {}}); err == nil {
		t.Error("a function has a canonical form")
	}
}

func TestAmbiguous(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":[{"b/c~":{"7":1}}]}`: "/a/0/b~1c~0/7", `{"10":1,"9":1,"a":{"1":1}}`: "/10", `{"__proto__":1}`: "/__proto__", `[{},{"0":1}]`: "/1/0",
		`{"b":{"1":1},"a":{"2":2}}`: "/a/2",
	} {
		if path, odd := FindAmbiguousKey(tree(t, in)); !odd || path != want {
			t.Errorf("%s: %q", in, path)
		}
	}
	for _, in := range []string{`{}`, `[1,2,3]`, `{"01":1,"-1":1,"1.0":1,"4294967295":1,"1e3":1,"":1,"proto":1,"+1":1," 1":1}`, `"__proto__"`, `null`} {
		if path, odd := FindAmbiguousKey(tree(t, in)); odd {
			t.Errorf("%s: %q", in, path)
		}
	}
}

func TestHashes(t *testing.T) {
	for _, c := range []struct{ kind, a, b, payload, proposal, hash string }{
		{"tool", "Policy unit agent", "ping", `{}`, "486e7d858f077daf704366bd7f7742a58955c40c0e173da363ab9fa5f47f4a41", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
		{"tool", "Finance Agent", "export_report", `{"reportId":"rpt-1"}`, "f198e59aabb5bc2d82b2e1784d0333a193c392c8412bf510169db9f9fa58a6d0", "84e3dfd8193e396a68d8e4d0a3e12f21f27b6dd44bbbc053dcc41bfe267e202e"},
		{"tool", "A", "t", `{"b":1,"a":[3,{"d":null,"c":"\u00e9\u2028"}],"n":1.0,"e":1e21}`, "6fce52116eb829400ef8a143aff023209719ba278130e6276f3746d804df8996", "917430df2bf195bb9375d30d1fa1468629ff525ab8c5dd52c545049d19c9ce9f"},
		{"tool", "A", "t", `{"__raw":"{bad"}`, "7aa266692363589d32da92c4f84851cf7f78950b861de75737f85ec628c8bdf8", ""},
		{"handoff", "Source Agent", "Target Agent", `{"reason":"route"}`, "40070bc4293c7ea858c49a49b59b74010f516f1060d5eac023a5283c33acfb37", ""},
		{"handoff", "Source Agent", "Target Agent", `{}`, "90e9cee058113d9e05b11975e94ff8424a18eb8cbc7864f6511f190055f7a290", ""},
	} {
		hash := HashTool
		if c.kind == "handoff" {
			hash = HashHandoff
		}
		got, err := hash(c.a, c.b, tree(t, c.payload))
		if err != nil || got.Proposal != c.proposal || c.hash != "" && got.Payload != c.hash {
			t.Errorf("%s %s: %+v %v", c.kind, c.payload, got, err)
		}
	}
	for _, hash := range []func(string, string, any) (Hashes, error){HashTool, HashHandoff} {
		if h, err := hash("a", "b", func() {}); err == nil || h != (Hashes{}) {
			t.Error("hashed a function")
		}
	}
}

// Parts of a hash's input must not run into each other.
func TestHashInputsCannotBeShifted(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][3]string{{"a", "b", `{}`}, {"ab", "", `{}`}, {"", "ab", `{}`}, {`a","toolName":"b`, "", `{}`}, {"a", "b", `{"c":1}`}, {"a", `b","x":"`, `{}`}, {"a", "b", `"{}"`}} {
		tool, _ := HashTool(c[0], c[1], tree(t, c[2]))
		handoff, _ := HashHandoff(c[0], c[1], tree(t, c[2]))
		for _, h := range []string{tool.Proposal, handoff.Proposal} {
			if other, there := seen[h]; there {
				t.Errorf("%q and %s have one hash", c, other)
			}
			seen[h] = strings.Join(c[:], "|")
		}
	}
}

// Where nothing is ambiguous aioc's form is RFC 8785; where something is, the
// other walk gives valid JSON that says the same, less what JavaScript loses.
func TestCanonicalProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := value(rt, 0)
		got, err := canonicalForm(v)
		if err != nil {
			rt.Fatal(err)
		}
		slow, err := appendCanonical(nil, v)
		if err != nil || !bytes.Equal(slow, got) {
			rt.Fatalf("%s and %s", got, slow)
		}
		parsed, err := strictjson.Parse(got, strictjson.Limits{})
		if err != nil {
			rt.Fatalf("%v: %s", err, got)
		}
		again, err := canonicalForm(parsed)
		if err != nil || !bytes.Equal(again, got) {
			rt.Fatalf("%s is not its own form: %s", got, again)
		}
		jcs, err := strictjson.Canonical(v)
		if _, odd := FindAmbiguousKey(v); err != nil || !odd && !bytes.Equal(jcs, got) {
			rt.Fatalf("%s, RFC 8785 %s", got, jcs)
		}
	})
}

func value(rt *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 6).Draw(rt, "kind")
	if depth > 2 {
		kind %= 4
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(rt, "word")
	case 1:
		return json.Number(rapid.SampledFrom([]string{"0", "-0", "1.0", "1e3", "0.5", "-7"}).Draw(rt, "number"))
	case 2, 3:
		return rapid.StringOfN(rapid.RuneFrom([]rune("a<\"\\\u2028\U0001F600\ue000")), 0, 4, -1).Draw(rt, "text")
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(rt, "length"))
		for i := range list {
			list[i] = value(rt, depth+1)
		}
		return list
	}
	m := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(rt, "members") {
		m[rapid.SampledFrom([]string{"a", "b", "10", "9", "0", "01", "__proto__", "\ue000", "\U0001F600", "4294967295", "4294967294", ""}).Draw(rt, "name")] = value(rt, depth+1)
	}
	return m
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"10":2}`, `{"__proto__":{}}`, `[{"1":[{"0":"x"}]}]`, `{"a":1e-7,"b":-0}`, `"\ud83d\ude00"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := strictjson.Parse(raw, strictjson.DefaultLimits)
		if err != nil {
			return
		}
		got, err := canonicalForm(v)
		if err != nil || !json.Valid(got) {
			t.Fatalf("%v: %s", err, got)
		}
		jcs, err := strictjson.Canonical(v)
		if _, odd := FindAmbiguousKey(v); err != nil || !odd && !bytes.Equal(jcs, got) {
			t.Fatalf("%s, RFC 8785 %s", got, jcs)
		}
	})
}
