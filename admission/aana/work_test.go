package aana

import (
	"runtime"
	"strings"
	"testing"
	"time"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// TestToolNameIsReadOnce fails if the time for a tool's name grows with the number of ways to
// compose it: a name of 512 bytes would then take for ever.
func TestToolNameIsReadOnce(t *testing.T) {
	names := map[string]string{ // a name, and whether it is bound to an identity
		"hints":              strings.Repeat("user", 127) + "q",
		"hints and fillers":  strings.Repeat("usersubscriptionidshow", 23) + "q",
		"composed to an end": strings.Repeat("userids", 72) + "show",
	}
	for what, name := range names {
		t.Run(what, func(t *testing.T) {
			done := make(chan bool, 1)
			go func() { done <- identityByWords(&wire.Event{ToolName: name}) }()
			select {
			case bound := <-done:
				if bound != strings.HasSuffix(name, "show") {
					t.Errorf("bound to an identity: %v", bound)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("a name of 512 bytes is not read after 30 s")
			}
		})
	}
}

func TestComposedWords(t *testing.T) {
	for word, want := range map[string]bool{
		"user": true, "users": true, "userss": false, "getuserprofile": true, "usersprofiles": true, "myorder": true, "orderstatus": true, "ordersstatus": true,
		"border": false, "get": false, "getdetails": false, "s": false, "": false, "userx": false, "xuser": false, "iduser": true, "idsuser": true,
	} {
		if isComposed(word) != want {
			t.Errorf("%q is composed: %v", word, !want)
		}
	}
}

// TestArgumentNamesAreReadOnce counts what the scan of arguments allocates: a long name must
// not be split again for every text of its array.
func TestArgumentNamesAreReadOnce(t *testing.T) {
	name := strings.Repeat("n", 64<<10)
	items := make([]any, 1024)
	for i := range items {
		items[i] = "b"
	}
	for what, args := range map[string]map[string]any{
		"a list":          {name: items},
		"lists in a list": {name: []any{items, items}},
		"a credential":    {name + "_password": items},
	} {
		t.Run(what, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if hasSecretArgument(args) {
				t.Error("b is a secret")
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
				t.Errorf("arguments of 70 KiB make %d MiB of garbage", grown>>20)
			}
		})
	}
}
