package ui

import "testing"

func TestPlural(t *testing.T) {
	for got, want := range map[string]string{
		Plural(1, "policy"): "1 policy", Plural(0, "policy"): "0 policies", Plural(2, "key"): "2 keys", Plural(2, "file"): "2 files",
		Counted(1, "file", "compiles", "compile"): "1 file compiles", Counted(3, "file", "compiles", "compile"): "3 files compile",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
