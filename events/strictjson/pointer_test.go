package strictjson

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestPointerTokens(t *testing.T) {
	for name, token := range map[string]string{"": "", "a": "a", "a/b": "a~1b", "~": "~0", "~1": "~01", "~0/": "~00~1", "é": "é"} {
		if got := EscapePointer(name); got != token {
			t.Errorf("%q is written %q, want %q", name, got, token)
		}
		if got := UnescapePointer(token); got != name {
			t.Errorf("%q means %q, want %q", token, got, name)
		}
		if want := jsontext.Pointer("").AppendToken(name); string(want) != "/"+token {
			t.Errorf("the library writes %q as %q", name, want)
		}
	}
}
