package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/events"
)

// The second verifier and this one agree on what is well-formed.
func TestVerifiersAgree(t *testing.T) {
	w := sampleWorld(t)
	check := func(name string, file []byte, want bool) {
		t.Helper()
		rep, err := Verify(bytes.NewReader(file), int64(len(file)), w.VKey, Options{})
		code, out := second(t, w, file)
		found := strings.ReplaceAll(codes(rep), "bundle_report in report.html", "") // it shows the checkpoint
		if first := err == nil && strings.Trim(found, ", ") == ""; first != want || (code == 0) != want {
			t.Errorf("%s: %t here (%v %s), %d there: %s", name, first, err, codes(rep), code, out)
		}
	}
	file := bundle(t, w, nil)
	const signature = "— example.com/w AAAAAAAAAAAAAAAAAAAA"
	for tail, want := range map[string]bool{
		signature + "\n" + signature + "\n":         true,
		signature + "\r\n":                          false,
		signature + "\u2028— b AAAAAAAAAAAA\n":      false,
		"— example.com/w AAAA\n":                    false,
		"— example.com/\xff AAAAAAAAAAAAAAAAAAAA\n": false,
	} {
		check(fmt.Sprintf("checkpoint with %q", tail), forge(t, file, nil, func(files map[string][]byte) {
			files[memberCheckpoint] = append(bytes.Clone(files[memberCheckpoint]), tail...)
		}), want)
	}
	check("a second signature of the key, that does not hold", forge(t, file, nil, func(files map[string][]byte) {
		note := files[memberCheckpoint]
		line := note[bytes.LastIndexByte(note[:len(note)-1], '\n')+1:]
		again := bytes.Clone(line)
		again[len(again)-9] ^= 1
		files[memberCheckpoint] = append(bytes.Clone(note), again...)
	}), true)

	names, files := unzip(t, bundle(t, w, statementKey))
	var env statement.Envelope
	ok(t, json.Unmarshal(files[MemberStatement], &env))
	payload, err := base64.StdEncoding.DecodeString(env.Payload)
	ok(t, err)
	payload = append([]byte(" "), payload...)
	env.Payload = base64.StdEncoding.EncodeToString(payload)
	env.Signatures[0].Sig = base64.StdEncoding.EncodeToString(ed25519.Sign(statementKey, fmt.Appendf(nil, "DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload)))
	text, err := events.Encode(env)
	ok(t, err)
	files[MemberStatement] = append(text, '\n')
	check("a statement that is not in the form of RFC 8785", pack(t, names, files), false)

	names, files = unzip(t, written(t, w.ranged("acme", 0, w.size()+1)))
	for _, end := range []string{`.000000000"`, `.000000xyz"`} {
		m := files[memberManifest]
		i := bytes.Index(m, []byte(`"from":"`))
		changed := maps.Clone(files)
		changed[memberManifest] = append(m[:i:i], bytes.Replace(m[i:], []byte(`.000000000Z"`), []byte(end), 1)...)
		check("range from a time that ends in "+end, pack(t, names, changed), false)
	}
}
