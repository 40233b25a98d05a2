package strictjson

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestNames: they find what a map finds, names that share a sign included.
func TestNames(t *testing.T) {
	all := []string{"", "a", "aa", "axa", "aya", "abbbc", "abxxc", "tool_name", "tool_input", "session_id"}
	for i := range 40 {
		all = append(all, fmt.Sprintf("n%02dxxxx%02dz", i, i), fmt.Sprintf("n%02dyxxx%02dz", i, i)) // in pairs of one sign
	}
	if nameHashOf(all[10]) != nameHashOf(all[11]) {
		t.Fatalf("%q and %q differ in their sign", all[10], all[11])
	}
	for size := range all {
		known := map[string]int{}
		for i, name := range all[:size] {
			known[name] = i
		}
		names := NamesOf(known)
		members := map[string]bool{}
		for _, name := range all {
			members[name] = true
		}
		text, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		var d Document
		v, err := d.Parse(text, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		for m := range v.All() {
			want, there := known[m.Key()]
			if got, found := names.Of(m); found != there || got != want {
				t.Fatalf("%d names: %q is %d, %v, want %d, %v", size, m.Key(), got, found, want, there)
			}
			if got, found := names.Get(m.Key()); found != there || got != want {
				t.Fatalf("%d names, by name: %q is %d, %v, want %d, %v", size, m.Key(), got, found, want, there)
			}
		}
	}
}
