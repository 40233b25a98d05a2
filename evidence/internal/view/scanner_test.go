package view

import "testing"

func TestScanMembers(t *testing.T) {
	scan := func(text string) (value []byte, ok bool) {
		s := scanner{text: []byte(text)}
		ok = s.scanOptionalMember(`,"a":`, &value) && s.atEnd()
		return value, ok
	}
	for text, want := range map[string]string{``: "", `,"a":"x"`: "x"} {
		if got, ok := scan(text); !ok || string(got) != want {
			t.Errorf("%q: %q %v", text, got, ok)
		}
	}
	for _, text := range []string{`,"a":""`, `,"a":1`, `,"a":"\n"`, `,"b":"x"`} {
		if got, ok := scan(text); ok {
			t.Errorf("%q: %q", text, got)
		}
	}
	var n uint64
	for text, want := range map[string]bool{"0": true, "12": true, "012": false, "": false, "x": false, "99999999999999999999": false} {
		s := scanner{text: []byte(text)}
		if got := s.scanCount(&n) && s.atEnd(); got != want {
			t.Errorf("count %q: %v", text, got)
		}
	}
}
