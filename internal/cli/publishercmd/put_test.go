package publishercmd

import "testing"

func TestWordPattern(t *testing.T) {
	for text, want := range map[string]bool{
		"fs.read": true, "tools: [fs.read]\n": true, `"fs.read"`: true, "a\nfs.read\nb": true, "xfs.read fs.read": true, "fs.reads, fs.read, fs.reads": true,
		"fsxread": false, "fs.reads": false, "fs.read.all": false, "fs.read-all": false, "my_fs.read": false, "9fs.read": false, "FS.read": false, "": false,
	} {
		if got := wordPattern("fs.read").MatchString(text); got != want {
			t.Errorf("%q has the word: %v", text, got)
		}
	}
}
