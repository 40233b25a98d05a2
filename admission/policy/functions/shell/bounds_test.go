package shell

import (
	"strings"
	"testing"
)

// hostileTexts are as deep, or as long, as a text may be.
var hostileTexts = []string{
	strings.Repeat("cd a&&", 255) + "a", strings.Repeat("a|", 255) + "a", strings.Repeat("(", 199) + "x" + strings.Repeat(")", 199), "a " + strings.Repeat(">b ", 9000),
	strings.Repeat("a;", 16000), strings.Repeat("a&&", 10000) + "a", "$((" + strings.Repeat("-", 30000) + "1))", strings.Repeat("<<A ", 8000), strings.Repeat("{a,", 10000),
	strings.Repeat("a()", 10000) + "{ a;}", strings.Repeat("a()", 199) + "{ " + strings.Repeat("b;", 10000) + "}", strings.Repeat("if a;then ", 199) + strings.Repeat("cd a;", 300) + strings.Repeat("fi;", 199),
	strings.Repeat("( \")\";", 1500) + "x" + strings.Repeat(")", 1500), "((a" + strings.Repeat("=a", 8000) + "))", "{ " + strings.Repeat("bash;", 400) + "} <<'A'\n" + strings.Repeat("a b;", 7000) + "\nA\n",
	strings.Repeat("bash <<A;", 100) + "\n" + strings.Repeat(strings.Repeat("a;", 100)+"\nA\n", 100), "eval eval eval '" + strings.Repeat("a b c;", 5000) + "'",
}

// What Parse does is in proportion to what it costs: the steps that a byte of the text is charged.
func TestHostileTexts(t *testing.T) {
	const charged = 64 / 16
	for _, text := range hostileTexts {
		p := newParser()
		p.parseText(text, context{dirs: []string{""}})
		if p.steps > charged*len(text)+1000 || p.parsed > maxParsed+len(text) {
			t.Errorf("%.20q of %d bytes: %d steps, %d bytes parsed", text, len(text), p.steps, p.parsed)
		}
		if s := Parse(text); s.Size() > 3*maxBytes {
			t.Errorf("%.20q: %d bytes", text, s.Size())
		}
	}
}

// A text that nests deeper than a bound never reaches the parser.
func TestBoundedBeforeTheParser(t *testing.T) {
	for _, text := range []string{strings.Repeat("a()", 201) + "{ a;}", strings.Repeat("a ( )\n", 201) + "{ a;}", strings.Repeat("(", 201), strings.Repeat("((", 201), strings.Repeat("( \")\";", 2049), strings.Repeat("function a ", 201), strings.Repeat("until a;", 201)} {
		if n := nestingOf(text); n <= maxNesting {
			t.Errorf("%.20q: nesting %d", text, n)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{"ls": "ls -la", "ordinary": "cd src && git diff --stat main | head -20 && grep -rn 'TODO' . > todo.txt", "chain": hostileTexts[0], "redirections": hostileTexts[3]} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(text)
			}
		})
	}
}
