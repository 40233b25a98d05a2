package shell

import (
	"strings"
	"testing"
)

// hostileTexts are as deep, or as long, as a text may be.
var hostileTexts = []string{
	strings.Repeat("cd a&&", 255) + "a", strings.Repeat("a|", 255) + "a", strings.Repeat("(", 199) + "x" + strings.Repeat(")", 199), "a " + strings.Repeat(">b ", 9000),
	strings.Repeat("a;", 16000), strings.Repeat("a&&", 10000) + "a", "$((" + strings.Repeat("-", 30000) + "1))", strings.Repeat("<<A ", 8000), strings.Repeat("{a,", 10000),
}

func TestHostileTexts(t *testing.T) {
	for _, text := range hostileTexts {
		if s := Parse(text); s.Size() > 3*maxBytes {
			t.Errorf("%.20q: %d bytes", text, s.Size())
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
