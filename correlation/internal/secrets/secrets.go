// Package secrets recognises credentials by the forms that their issuers use: access keys,
// tokens, private keys. Rules use it, not redaction: it reports only what is certain, and does
// not look for personal data. The auditor's redaction searches for more, and keeps secrets out
// of evidence.
package secrets

import (
	"bytes"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// markers are texts of which every form contains one; there are at most 32. The last marker is
// the escape of a plain character, which could hide another marker in a JSON document.
var markers = [][]byte{
	[]byte("AKIA"), []byte("ASIA"), []byte("ghp_"), []byte("gho_"), []byte("ghu_"), []byte("ghs_"), []byte("ghr_"), []byte("github_pat_"),
	[]byte("sk-ant-"), []byte("sk-proj-"), []byte("sk_live_"), []byte("xoxb-"), []byte("xoxp-"), []byte("glpat-"), []byte("AIza"),
	[]byte("PRIVATE KEY-----"), []byte("eyJ"), []byte("Bearer "), []byte(`\u00`),
}

var secretForms = regexp.MustCompile(strings.Join([]string{
	`\b(AKIA|ASIA)[A-Z0-9]{16}\b`,
	`\bgh[pousr]_[A-Za-z0-9]{36,}`,
	`\bgithub_pat_[A-Za-z0-9_]{22,}`,
	`\bsk-(ant|proj)-[A-Za-z0-9_-]{20,}`,
	`\bsk_live_[A-Za-z0-9]{16,}`,
	`\bxox[bp]-[A-Za-z0-9-]{10,}`,
	`\bglpat-[A-Za-z0-9_-]{20,}`,
	`\bAIza[A-Za-z0-9_-]{35}`,
	`-----BEGIN [A-Z ]*PRIVATE KEY-----`,
	`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`,
	`\bBearer [A-Za-z0-9._~+/-]{20,}`,
}, "|"))

// markerPairs has, for two consecutive bytes, the markers that contain them: bit 2i stands for
// the first two bytes of marker i, bit 2i+1 for its second two. A search of every second pair
// of a document finds every marker.
var markerPairs = func() (pairs [2][256]uint64) {
	for i, m := range markers {
		for from := range 2 {
			bit := uint64(1) << (2*i + from)
			pairs[0][m[from]] |= bit
			pairs[1][m[from+1]] |= bit
		}
	}
	return pairs
}()

// MayContain reports whether a JSON document may hold a secret. If it returns false, no text
// of the document has one of the forms.
func MayContain(raw []byte) bool {
	for i := 0; i+1 < len(raw); i += 2 {
		for found := markerPairs[0][raw[i]] & markerPairs[1][raw[i+1]]; found != 0; found &= found - 1 {
			bit := bits.TrailingZeros64(found)
			if from := i - bit%2; from >= 0 && bytes.HasPrefix(raw[from:], markers[bit/2]) {
				return true
			}
		}
	}
	return false
}

// InText reports whether a text holds a secret.
func InText(text string) bool { return secretForms.MatchString(text) }

// Find returns the JSON pointer of the first text below v that holds a secret. It skips the
// members of v named in except.
func Find(v any, except ...string) (pointer string, found bool) {
	switch v := v.(type) {
	case string:
		return "", InText(v)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains(except, key) {
				continue
			}
			if below, found := Find(v[key]); found {
				return "/" + strictjson.EscapePointer(key) + below, true
			}
		}
	case []any:
		for i, item := range v {
			if below, found := Find(item); found {
				return "/" + strconv.Itoa(i) + below, true
			}
		}
	}
	return "", false
}
