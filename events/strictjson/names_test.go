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
	for size := range len(all) {
		known := map[string]int{}
		for i, name := range all[:size] {
			known[name] = i
		}
		names := NamesOf(known)
		for _, docNames := range [][]string{all[:len(all)/2], all[len(all)/2:]} { // a Flat takes 64 members
			part := map[string]bool{}
			for _, name := range docNames {
				part[name] = true
			}
			text, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			var f Flat
			v, ok := f.Read(text, DefaultLimits)
			if !ok {
				t.Fatalf("%s is not read flat", text)
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
}
