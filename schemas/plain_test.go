package schemas

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// TestValues: a value of a document has the violations of its tree.
func TestValues(t *testing.T) {
	var doc strictjson.Document
	for _, s := range schematest.Corpus(t) {
		raw, err := strictjson.Canonical(s.Document)
		if err != nil {
			t.Fatal(err)
		}
		v, err := doc.Parse(raw, strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Default().Validate(s.Schema, v), Default().Validate(s.Schema, strictjson.FromTree(s.Document))); d != "" {
			t.Errorf("%s: %s", s.File, d)
		}
	}
}

// TestMatchers: a matcher decides what its regular expression does, and most
// patterns of the schemas have one.
func TestMatchers(t *testing.T) {
	have, all := 0, 0
	texts := []string{"", "\n"}
	for _, v := range schematest.PlainValues() {
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
	p := planner{planned: map[*librarySchema]*node{}}
	for _, schema := range libraries(t) {
		if _, err := p.planNode(schema); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range p.planned {
		for _, k := range n.keywords {
			if k, ok := k.(pattern); ok {
				each(k.re)
			}
		}
	}
	if have*2 < all {
		t.Errorf("%d of %d patterns have a matcher", have, all)
	}
	for _, odd := range []string{`a+$`, `^a+`, `^a*b$`, `^(?i)ab$`, `^é$`, `^[é]+$`, `^.$`, `^a|b$`, `(?m)^a$`, `^ab{2}c$`, `^\pL$`, `^(ab)+$`, `^[^a]+$`} {
		each(regexp.MustCompile(odd))
	}
}

// TestPlainFormats: what is certainly of a format is of it.
func TestPlainFormats(t *testing.T) {
	for _, s := range []string{"2026-11-20T10:00:00Z", "2026-11-20T10:00:00.1Z", "2026-02-28T23:59:59.123456789Z", "2026-02-29T10:00:00Z", "2026-13-01T10:00:00Z",
		"2026-00-10T10:00:00Z", "2026-01-00T10:00:00Z", "2026-01-10T24:00:00Z", "2026-01-10T10:60:00Z", "2026-01-10T10:00:60Z", "2026-01-10T10:00:00.Z",
		"2026-01-10T10:00:00,1Z", "2026-01-10T10:00:00.1234567890Z", "2026-01-10T10:00:00.12345678901Z", "0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b", "0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5g", "0d9f8b7a01c2d-4e3f-8a9b-0c1d2e3f4a5b", schematest.SignedTime} {
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
