package redact

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var planted = []string{awsID, github, gitlab, slack, stripe, openai, claude, google, jwtToken, natsUser, noteKey}

// FuzzText plants a secret between any two texts, and looks for it, or for
// anything else that a second pass would find, in what comes out.
func FuzzText(f *testing.F) {
	for i, in := range inputs() {
		f.Add(in.text[:200], in.text[:60], uint8(i))
	}
	f.Add(`{"password":"`, `"}`, uint8(0))
	f.Add("-----BEGIN PRIVATE KEY", "-----END ", uint8(1))
	f.Add("token=\\\\\\\"", "\\\"", uint8(2))
	f.Fuzz(func(t *testing.T, before, after string, which uint8) {
		secret := planted[int(which)%len(planted)]
		s := before + " " + secret + " " + after
		out, spans := maskText(s)
		if strings.Contains(out, secret) {
			t.Errorf("%q still holds %q", out, secret)
		}
		at := 0
		for _, sp := range spans {
			if sp.Start < at || sp.End <= sp.Start || sp.End > len(s) || !IsPlaceholder(Placeholder(sp.Detector)) {
				t.Fatalf("span %+v of %d bytes", sp, len(s))
			}
			at = sp.End
		}
		if again, _ := maskText(s); again != out {
			t.Error("two scans differ")
		}
		if utf8.ValidString(s) && !utf8.ValidString(out) {
			t.Error("redaction cut a character")
		}
	})
}

// FuzzDocument plants a secret in every text of any document.
func FuzzDocument(f *testing.F) {
	f.Add(`{"a":["x",{"b":1}],"metadata":{"redaction":{"fields":["a","a[0].b"]}}}`, uint8(0))
	f.Add(`{"name":"password","value":"x"}`, uint8(1))
	f.Add(`["--token","x",{"reply_token":"rpl_1"}]`, uint8(2))
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		secret := planted[int(which)%len(planted)]
		build := func() any {
			var v any
			if json.Unmarshal([]byte(text), &v) != nil {
				t.Skip()
			}
			return plant(v, secret)
		}
		fields := DeclaredFields(build())
		out, hits, err := Document(build(), "/b", fields, Config{})
		if err != nil {
			return
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), secret) {
			t.Errorf("%s still holds %s", b, secret)
		}
		for _, h := range hits {
			if strings.Contains(h.Path, secret) || !strings.HasPrefix(h.Path, "/b") {
				t.Errorf("path %q", h.Path)
			}
		}
		_, again, _ := Document(build(), "/b", fields, Config{})
		if !slices.EqualFunc(hits, again, func(a, b Hit) bool { return a.Path == b.Path && a.Detector == b.Detector && a.Text == b.Text }) {
			t.Errorf("two runs differ:\n%v\n%v", hits, again)
		}
	})
}

func plant(v any, secret string) any {
	switch v := v.(type) {
	case string:
		return v + " " + secret
	case map[string]any:
		out := map[string]any{}
		for k, child := range v {
			if len(k)%3 == 0 {
				k += " " + secret
			}
			out[k] = plant(child, secret)
		}
		return out
	case []any:
		for i := range v {
			v[i] = plant(v[i], secret)
		}
	}
	return v
}
