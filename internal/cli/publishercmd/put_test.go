package publishercmd

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
)

func TestAliasWarnings(t *testing.T) {
	for text, want := range map[string]bool{
		"fs.read": true, "tools: [fs.read]\n": true, `"fs.read"`: true, "a\nfs.read\nb": true, "xfs.read fs.read": true, "fs.reads, fs.read, fs.reads": true,
		"fs.readfs.read": false, "fsxread": false, "fs.reads": false, "fs.read.all": false, "fs.read-all": false, "my_fs.read": false, "9fs.read": false, "FS.read": false, "": false,
	} {
		docs := []policy.Document{{Name: "a.yaml", Data: []byte(text)}}
		if got := AliasWarnings(docs, []publisher.Alias{{Name: "fs.read", Tool: "files.read"}}); got == nil || (len(got) == 1) != want {
			t.Errorf("%q gives %q", text, got)
		}
	}
}

// TestAliasOfTwoTenants: an alias that several tenants have is one warning of a file.
func TestAliasOfTwoTenants(t *testing.T) {
	docs := []policy.Document{{Name: "b.yaml", Data: []byte("[fs.read]")}, {Name: "a.yaml", Data: []byte("[fs.read, fs.write]")}}
	aliases := []publisher.Alias{{Name: "fs.read", Tool: "files.read"}, {Name: "fs.write", Tool: "files.write"}, {Name: "fs.read", Tool: "files.read"}}
	want := []string{
		"the policy file a.yaml mentions fs.read: policies see that tool as files.read",
		"the policy file a.yaml mentions fs.write: policies see that tool as files.write",
		"the policy file b.yaml mentions fs.read: policies see that tool as files.read",
	}
	if got := AliasWarnings(docs, aliases); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
