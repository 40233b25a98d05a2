package secret

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestFound(t *testing.T) {
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("MIIEvQIBADANBgkq", 8) + "\n-----END PRIVATE KEY-----"
	for name, c := range map[string]struct {
		value any
		want  bool
	}{
		"a token":                {"curl -H 'Authorization: Bearer " + token + "' https://a.example", true},
		"a key":                  {key, true},
		"an encoded key":         {base64.StdEncoding.EncodeToString([]byte(key)), true},
		"a password in a URL":    {"postgres://app:hunter2-Very@db.example/x", true},
		"an assignment":          {"export API_KEY=" + token, true},
		"in a list":              {[]any{"a", []any{token}}, true},
		"in a map":               {map[string]any{"a": map[string]any{"b": token}}, true},
		"by the name of a field": {map[string]any{"password": "hunter2"}, true},
		"a number in such":       {map[string]any{"api_key": json.Number("12345678")}, true},
		"plain words":            {"go test ./... && git status", false},
		"an address":             {"dana@acme.example", false},
		"a card":                 {"4111 1111 1111 1111", false},
		"a random text":          {"commit=3f786850e387550fdab836ed7e6dc881de23001b", false},
		"a placeholder":          {"[redacted:github_token]", false},
		"empty":                  {"", false},
		"nothing":                {nil, false},
		"values of all kinds":    {map[string]any{"n": json.Number("1"), "b": true, "l": []any{nil}}, false},
	} {
		if got := Found(c.value); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// More findings than a record may have are found, and hostile nesting of near misses ends.
func TestFoundIsBounded(t *testing.T) {
	list := make([]any, 600)
	for i := range list {
		list[i] = "password=hunter2-hunter2"
	}
	if !Found(list) {
		t.Error("600 credentials are none")
	}
	Found(strings.Repeat("Basic Basic AKIA ghp_ -----BEGIN ", 20_000))
}

func BenchmarkFound(b *testing.B) {
	for name, text := range map[string]string{"clean": strings.Repeat("The quick brown fox. ", 5_000), "near misses": strings.Repeat("Basic AKIA ghp_ password= ", 4_000)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for range b.N {
				Found(map[string]any{"t": text})
			}
		})
	}
}
