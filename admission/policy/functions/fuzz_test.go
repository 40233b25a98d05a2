package functions

import (
	"path"
	"strings"
	"testing"
)

func FuzzWithin(f *testing.F) {
	for _, p := range []string{"a", "../a", "../s", "..", "/w/../x", "~", "~/../x", "//w", "/w/./x", "\x00", "é"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if !Within(p, "/w/s") {
			return
		}
		if full := path.Join("/w/s", p); strings.HasPrefix(p, "~") || !strings.HasPrefix(p, "/") && full != "/w/s" && !strings.HasPrefix(full, "/w/s/") {
			t.Errorf("%q is within", p)
		}
		if !touches(joinPaths("/w/s", p), "/w/s") {
			t.Errorf("%q is within and does not touch", p)
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"https://a.example/x?y", "http://u:p@[::1]:80/", "ssh://h", "http://127.1/", "//x", "http://a\\@b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a := ParseAddress(s); a.Known && (!plainHost(a.Host) || !strings.Contains(strings.ToLower(s), a.Host)) {
			t.Errorf("%q: %+v", s, a)
		}
		hostMatches(s, []string{s, "*." + s})
	})
}

func FuzzParseSQL(f *testing.F) {
	for _, s := range []string{"select 1", "with a as (select 1) delete from b", "select 'a''b' -- x\n; drop table \"t\"", "insert into a.b values (1)", "/* */ select `a`", "select [a] from b, c d, e"} {
		f.Add(s)
	}
	f.Add("select--")
	f.Fuzz(func(t *testing.T, s string) {
		got := parseSQL(s)
		if len(got.Statements) > maxStatements {
			t.Error(len(got.Statements))
		}
		// Where a text ends cleanly, a statement that deletes does not only read, whatever stands before it.
		for _, between := range []string{"\n", ";"} {
			if between == ";" && strings.Contains(s[strings.LastIndexByte(s, '\n')+1:], "--") {
				continue // a comment
			}
			again := parseSQL(s + between + "delete from t")
			if n := len(again.Statements); got.Known && n > 0 && n < maxStatements && again.Statements[n-1].Reads {
				t.Errorf("%q hides a delete: %+v", s+between, again)
			}
		}
	})
}

func FuzzParsePatch(f *testing.F) {
	for _, s := range []string{"*** Begin Patch\n*** Add File: a\n", "--- a/x\n+++ b/x\n@@\n", "diff --git a/x b/x\nrename from x\nrename to y\n", "--- \"a\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p := parsePatch(s); p.Known && len(p.Files) == 0 || len(p.Files) > 2*maxPatchFiles {
			t.Errorf("%+v", p)
		}
	})
}

func FuzzParseView(f *testing.F) {
	for _, s := range []string{"git push -f", "git -c a=b x", "kubectl -n p delete pod", "aws s3 rm x", "git", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, " ")
		if v := parseView(words); v.Known && strings.Contains(s, Unknown) && !strings.Contains(strings.Join(v.Globals, ""), Unknown) && len(v.Command) > 0 && strings.Contains(v.Command, Unknown) {
			t.Errorf("%q: %+v", s, v)
		}
	})
}
