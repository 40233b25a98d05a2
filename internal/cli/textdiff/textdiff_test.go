package textdiff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"both empty", "", "", ""},
		{"new", "", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"gone", "a\n", "", "@@ -1,1 +0,0 @@\n-a\n"},
		{"one line", "a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"context", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
		{"two hunks", "a\n1\n2\n3\n4\n5\n6\n7\nb\n", "x\n1\n2\n3\n4\n5\n6\n7\ny\n",
			"@@ -1,4 +1,4 @@\n-a\n+x\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+y\n"},
		{"line end", "a\n", "a", "@@ -1,1 +1,1 @@\n-a\n+a  (no line end)\n"},
		{"moved", "a\nb\nc\n", "b\nc\na\n", "@@ -1,3 +1,3 @@\n-a\n b\n c\n+a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			for _, l := range Compare(c.from, c.to) {
				got += l + "\n"
			}
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// What the hunks keep and remove is in the old text, what they keep and add in the new one, at
// the lines that their headers name; with the lines between hunks they give both texts.
func TestHunksGiveBothTexts(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "c", "d", "@@ -1,1 +1,1 @@", "-x", ""})
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.SliceOfN(line, 0, 30).Draw(t, "from"), rapid.SliceOfN(line, 0, 30).Draw(t, "to")
		text := func(l []string) string { return strings.Join(append(slices.Clone(l), ""), "\n") }
		var patched []string
		at := 0 // lines of from that are in patched, or removed
		for _, l := range Compare(text(from), text(to)) {
			var start, length int
			switch {
			case l[0] == '@':
				if n, err := fmt.Sscanf(l, "@@ -%d,%d +", &start, &length); n != 2 {
					t.Fatalf("header %q: %v", l, err)
				}
				if length > 0 {
					start--
				}
				patched = append(patched, from[at:start]...)
				at = start
				continue
			case l[0] != '+':
				if from[at] != l[1:] {
					t.Fatalf("%q is %q", l, from[at])
				}
				at++
			}
			if l[0] != '-' {
				patched = append(patched, l[1:])
			}
		}
		if patched = append(patched, from[at:]...); !slices.Equal(patched, to) {
			t.Fatalf("%q, want %q", patched, to)
		}
	})
}
