package textdiff

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func text(hunks []Hunk) string {
	var b strings.Builder
	for _, h := range hunks {
		fmt.Fprintln(&b, h.Header())
		for _, l := range h.Lines {
			fmt.Fprintf(&b, "%c%s\n", l.Op, l.Text)
		}
	}
	return b.String()
}

func TestCompare(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"both empty", "", "", ""},
		{"new", "", "a\nb\n", "@@ -1,0 +1,2 @@\n+a\n+b\n"},
		{"gone", "a\n", "", "@@ -1,1 +1,0 @@\n-a\n"},
		{"one line", "a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"context", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
		{"two hunks", "a\n1\n2\n3\n4\n5\n6\n7\nb\n", "x\n1\n2\n3\n4\n5\n6\n7\ny\n",
			"@@ -1,4 +1,4 @@\n-a\n+x\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+y\n"},
		{"line end", "a\n", "a", "@@ -1,1 +1,1 @@\n-a\n+a  (no line end)\n"},
		{"moved", "a\nb\nc\n", "b\nc\na\n", "@@ -1,3 +1,3 @@\n-a\n b\n c\n+a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text(Compare(c.from, c.to)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// What the edits keep and remove is the old text, what they keep and add the new
// one, and no hunk hides a change.
func TestEditsGiveBothTexts(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(line, 0, 30).Draw(t, "a"), rapid.SliceOfN(line, 0, 30).Draw(t, "b")
		var from, to []string
		changes := 0
		for _, l := range shortestEdits(a, b) {
			if l.Op != Add {
				from = append(from, l.Text)
			}
			if l.Op != Remove {
				to = append(to, l.Text)
			}
			if l.Op != Keep {
				changes++
			}
		}
		if fmt.Sprint(from) != fmt.Sprint(a) || fmt.Sprint(to) != fmt.Sprint(b) {
			t.Fatalf("%v -> %v, want %v -> %v", from, to, a, b)
		}
		shown := 0
		end := func(l []string) string { return strings.Join(append(l, ""), "\n") }
		for _, h := range Compare(end(a), end(b)) {
			for _, l := range h.Lines {
				if l.Op != Keep {
					shown++
				}
			}
		}
		if shown != changes {
			t.Fatalf("%d changes shown, %d made", shown, changes)
		}
	})
}

func TestLargeDifferencesAreReplacedWhole(t *testing.T) {
	many := func(word string) string { return strings.Repeat(word+"\n", 3*maxEdits) }
	hunks := Compare("same\n"+many("a"), "same\n"+many("b"))
	if len(hunks) != 1 || hunks[0].OldLines != 3*maxEdits+1 || hunks[0].NewLines != 3*maxEdits+1 {
		t.Errorf("%d hunks, the first %s", len(hunks), hunks[0].Header())
	}
}
