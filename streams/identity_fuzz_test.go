package streams

import (
	"encoding/json"
	"testing"
)

// FuzzRequestIdentity: an identity is what one stamp says, or none.
func FuzzRequestIdentity(f *testing.F) {
	f.Add(`{"acc":"tenant-acme","user":"rt1"}`, "", false)
	f.Add(`{"acc":"tenant-acme","user":"rt1","acc":"tenant-evil"}`, `{"acc":"a","user":"b"}`, true)
	f.Add(`{"ACC":"tenant-acme","User":"rt1"}`, "", true)
	f.Add(`null`, "x", false)
	f.Fuzz(func(t *testing.T, first, second string, two bool) {
		h := map[string][]string{headerRequestInfo: {first}, "nats-request-info": {second}}
		if two {
			h[headerRequestInfo] = append(h[headerRequestInfo], second)
		}
		id, err := RequestIdentity(h)
		if err != nil {
			if id != (Identity{}) {
				t.Fatalf("%+v beside %v", id, err)
			}
			return
		}
		if two || id.Account == "" || id.User == "" || !json.Valid([]byte(first)) {
			t.Fatalf("%+v of %q", id, h)
		}
	})
}
