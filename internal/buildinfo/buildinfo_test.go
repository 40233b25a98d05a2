package buildinfo

import "testing"

func TestSemVer(t *testing.T) {
	for given, want := range map[string]string{
		"v0.1.0": "0.1.0", "v0.1.0-3-gabcdef0-dirty": "0.1.0-3-gabcdef0-dirty", "abcdef0": "0.0.0-devel", "(devel)": "0.0.0-devel",
	} {
		version = given
		if got := SemVer(); got != want {
			t.Errorf("SemVer of %q = %q, want %q", given, got, want)
		}
	}
}
