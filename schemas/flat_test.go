package schemas

import (
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// TestPasses: a document that was read flat passes a schema exactly if its tree
// does, and what passes all checks at once passes them one by one.
func TestPasses(t *testing.T) {
	var flat strictjson.Flat
	mutators := map[string]mutator{}
	read, passed := 0, 0
	for _, s := range corpus(t) {
		if _, known := mutators[s.schema]; !known {
			mutators[s.schema] = newMutator(schemaTrees(t, Default(), s.schema)...)
		}
		mutators[s.schema].each(s.document, func(what func() string) {
			raw, err := strictjson.Canonical(s.document)
			if err != nil {
				return
			}
			v, ok := flat.Read(raw, strictjson.DefaultLimits)
			if !ok {
				return
			}
			tree := v.Tree()
			read++
			if got, want := Default().entries[s.schema].root.validateFlat(v), Default().Validate(s.schema, tree) == nil; got != want {
				t.Errorf("%s, %s: flat %v, as a tree %v: %s", s.file, what(), got, want, raw)
			}
			passed += holdPasses(t, v, tree.(map[string]any))
		})
	}
	if read < 10_000 || passed < 500 {
		t.Errorf("%d documents were read flat, %d passed", read, passed)
	}
}

func holdPasses(t *testing.T, v strictjson.Value, tree map[string]any) (passed int) {
	t.Helper()
	if Default().PassesAAEP(v) {
		passed++
		if vs := Default().StrictAAEP(tree); vs != nil {
			t.Errorf("AAEP: %v of %v", vs, tree)
		}
	}
	if Default().PassesAgentHook(v) {
		passed++
		if vs := Default().StrictAgentHook(tree); vs != nil {
			t.Errorf("AgentHook: %v of %v", vs, tree)
		}
	}
	kind, _ := tree["event_type"].(string)
	meta, _ := tree["metadata"].(map[string]any)
	if _, governed := meta["tool_identity"]; governed && ProfileCovers(kind) && Default().PassesAgentHookProfile(v) {
		passed++
		if vs := Default().AgentHookProfile(tree, FormEvidence); vs != nil {
			t.Errorf("action governance: %v of %v", vs, tree)
		}
	}
	return passed
}

// TestUsualPasses: what nearly all events look like takes the short way.
func TestUsualPasses(t *testing.T) {
	var flat strictjson.Flat
	for text, passes := range map[string]func(strictjson.Value) bool{benchAAEP: Default().PassesAAEP, benchProfile: Default().PassesAgentHook} {
		if v, ok := flat.Read([]byte(text), strictjson.DefaultLimits); !ok || !passes(v) {
			t.Errorf("read %v: %.80s", ok, text)
		}
	}
}

func FuzzPasses(f *testing.F) {
	for _, text := range []string{benchAAEP, benchProfile, `{}`, `{"type":"aaep:agent.tool.invoked"}`,
		strings.Replace(benchAAEP, `"1.0.0"`, `"1.0.9"`, 1), strings.Replace(benchAAEP, `.250Z`, `.25Z`, 1),
		strings.Replace(benchAAEP, `"tool"`, `"tool_"`, 1), strings.Replace(benchProfile, `"source":"`, `"source":"é`, 1),
		strings.Replace(benchProfile, `"schema_version":1`, `"schema_version":2`, 1), strings.Replace(benchProfile, `30Z`, `30+01:00`, 1)} {
		f.Add([]byte(text))
	}
	var flat strictjson.Flat
	f.Fuzz(func(t *testing.T, raw []byte) {
		if v, ok := flat.Read(raw, strictjson.DefaultLimits); ok {
			holdPasses(t, v, v.Tree().(map[string]any))
		}
	})
}

// TestMatchers: a matcher decides what its regular expression does, and most
// patterns of the schemas have one.
func TestMatchers(t *testing.T) {
	have, all := 0, 0
	texts := []string{"", "\n"}
	for _, v := range plainValues() {
		if s, ok := v.(string); ok {
			texts = append(texts, s, s+"\n", s+strings.Repeat("a", 63), s+strings.Repeat("a", 64))
		}
	}
	each := func(re *regexp.Regexp) {
		m := matcherOf(re)
		if all++; m == nil {
			return
		}
		have++
		for _, s := range texts {
			if m.match(s) != re.MatchString(s) {
				t.Errorf("%s of %q: %v", re, s, m.match(s))
			}
		}
	}
	for _, e := range Default().entries {
		for _, k := range e.root.patterns(map[*node]bool{}) {
			each(k.re)
		}
	}
	if have*2 < all {
		t.Errorf("%d of %d patterns have a matcher", have, all)
	}
	for _, odd := range []string{`a+$`, `^a+`, `^a*b$`, `^(?i)ab$`, `^é$`, `^[é]+$`, `^.$`, `^a|b$`, `(?m)^a$`, `^ab{2}c$`, `^\pL$`, `^(ab)+$`, `^[^a]+$`} {
		each(regexp.MustCompile(odd))
	}
}

// patterns are those of a node and all below it.
func (n *node) patterns(seen map[*node]bool) (found []pattern) {
	if n == nil || seen[n] {
		return nil
	}
	seen[n] = true
	for _, k := range n.keywords {
		var below []*node
		switch k := k.(type) {
		case pattern:
			found = append(found, k)
		case properties:
			for _, sub := range k.known {
				below = append(below, sub)
			}
			below = append(below, k.additional)
		case itemSchemas:
			below = append(k.prefix, k.rest)
		case allOf:
			below = k
		case anyOf:
			below = k.nodes
		case conditional:
			below = []*node{k.test, k.then, k.otherwise}
		}
		for _, sub := range below {
			found = append(found, sub.patterns(seen)...)
		}
	}
	return found
}

// TestPlainFormats: what is certainly of a format is of it.
func TestPlainFormats(t *testing.T) {
	for _, s := range []string{"2026-11-20T10:00:00Z", "2026-11-20T10:00:00.1Z", "2026-02-28T23:59:59.123456789Z", "2026-02-29T10:00:00Z", "2026-13-01T10:00:00Z",
		"2026-00-10T10:00:00Z", "2026-01-00T10:00:00Z", "2026-01-10T24:00:00Z", "2026-01-10T10:60:00Z", "2026-01-10T10:00:60Z", "2026-01-10T10:00:00.Z",
		"2026-01-10T10:00:00,1Z", "2026-01-10T10:00:00.1234567890Z", "2026-01-10T10:00:00.12345678901Z", "0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b", "0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5g", "0d9f8b7a01c2d-4e3f-8a9b-0c1d2e3f4a5b", signedTime} {
		for name, f := range formats {
			if f.plain != nil && f.plain(s) && !f.test(s) {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
	if !plainTime("2026-11-20T10:00:00.250Z") || !plainUUID("0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b") {
		t.Error("the usual ones are not certain")
	}
}
