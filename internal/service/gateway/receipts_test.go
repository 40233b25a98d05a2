package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A receipt that came with an allow holds for exactly its call and its publisher; a caller cannot name
// another tenant or publisher, and a failure is never valid.
func TestReceiptsVerify(t *testing.T) {
	r := start(t, func(f *Flags) { f.CheckpointKey = vouchedKey(t, f.Keys) })
	r.admitter()
	pre := example(t, "requests/pre-tool-use.json")
	var event struct {
		Session  string          `json:"session_id"`
		Tool     string          `json:"tool_name"`
		Input    json.RawMessage `json:"tool_input"`
		Metadata struct {
			Call string `json:"tool_call_id"`
		} `json:"metadata"`
	}
	servicetest.OK(t, json.Unmarshal(pre, &event))
	res, body := r.do("POST", "/event", "runtime", pre)
	if res.Header.Get(events.HeaderReceipt) == "" {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	request := func(change func(m, call map[string]any)) []byte {
		call := map[string]any{"session": event.Session, "tool_call_id": event.Metadata.Call, "tool": event.Tool, "arguments": event.Input}
		m := map[string]any{"receipt": res.Header.Get(events.HeaderReceipt), "key": res.Header.Get(events.HeaderKey), "call": call}
		if change != nil {
			change(m, call)
		}
		b, err := json.Marshal(m)
		servicetest.OK(t, err)
		return b
	}
	good := request(nil)
	for name, c := range map[string]struct {
		who    string
		body   []byte
		status int
		has    string
	}{
		"good":                        {"runtime", good, 200, `{"valid":true,"decision_id":"`},
		"other arguments":             {"runtime", request(func(_, call map[string]any) { call["arguments"] = map[string]any{} }), 200, `{"valid":false,"reason":"receipt_other_arguments"}`},
		"no arguments":                {"runtime", request(func(_, call map[string]any) { call["arguments"] = nil }), 200, `"reason":"receipt_other_arguments"`},
		"another session":             {"runtime", request(func(_, call map[string]any) { call["session"] = "" }), 200, `"reason":"receipt_other_session"`},
		"another call":                {"runtime", request(func(_, call map[string]any) { call["tool_call_id"] = "x" }), 200, `"reason":"receipt_other_tool_call"`},
		"another tool":                {"runtime", request(func(_, call map[string]any) { call["tool"] = "rm" }), 200, `"reason":"receipt_other_tool"`},
		"another publisher's":         {"direct", good, 200, `"reason":"receipt_other_source"`},
		"no receipt":                  {"runtime", []byte(`{"call":{}}`), 200, `"reason":"receipt_missing"`},
		"not a receipt":               {"runtime", request(func(m, _ map[string]any) { m["receipt"] = "a.b.c" }), 200, `"reason":"receipt_malformed"`},
		"a publisher in the body":     {"direct", request(func(_, call map[string]any) { call["source"] = servicetest.Runtime }), 400, `invalid_request`},
		"a member twice":              {"runtime", []byte(strings.Replace(string(good), `"call":{`, `"call":{"tool":"x",`, 1)), 400, `invalid_request`},
		"arguments with a key twice":  {"runtime", []byte(`{"receipt":"x","call":{"arguments":{"a":1,"a":2}}}`), 400, `invalid_request`},
		"not UTF-8":                   {"runtime", []byte("{\"receipt\":\"\xff\"}"), 400, `invalid_request`},
		"not an object":               {"runtime", []byte(`[]`), 400, `invalid_request`},
		"no token":                    {"", good, 401, `unauthorized`},
		"a subscriber":                {"subscriber", good, 403, `forbidden`},
		"a token of another tenant":   {"globex", good, 401, `unauthorized`},
		"arguments spelt differently": {"runtime", []byte(strings.Replace(string(good), `"arguments":{`, `"arguments": {  `, 1)), 200, `"valid":true`},
	} {
		got, out := r.do("POST", "/v1/receipts:verify", c.who, c.body)
		if got.StatusCode != c.status || !strings.Contains(string(out), c.has) {
			t.Errorf("%s: %d %s", name, got.StatusCode, out)
		}
	}
}

// A receipt of a key that an operator retires holds no longer, without a restart of the gateway.
func TestReceiptsOfRetiredKeys(t *testing.T) {
	r := start(t, func(f *Flags) { f.CheckpointKey = filepath.Join(f.Keys, keys.CheckpointPublicFile) }) // its file will do, too
	admitter := r.admitter()
	res, body := r.do("POST", "/event", "runtime", example(t, "requests/pre-tool-use.json"))
	servicetest.OK(t, admitter.Stop()) // one whose key is retired ends
	var key events.KeyRecord
	if json.Unmarshal([]byte(res.Header.Get(events.HeaderKey)), &key) != nil || key.KeyID == "" {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	request, err := json.Marshal(map[string]any{"receipt": res.Header.Get(events.HeaderReceipt), "key": res.Header.Get(events.HeaderKey), "call": map[string]any{}})
	servicetest.OK(t, err)
	reason := func() string {
		var said struct{ Reason string }
		_, out := r.do("POST", "/v1/receipts:verify", "runtime", request)
		servicetest.OK(t, json.Unmarshal(out, &said))
		return said.Reason
	}
	if got := reason(); got == "receipt_key_retired" || got == "" {
		t.Errorf("before: %q", got)
	}
	kv, err := r.nats.JS("admitter").KeyValue(t.Context(), streams.BucketKeys)
	servicetest.OK(t, err)
	_, err = kv.Put(t.Context(), keys.RetiredEntry("another"), []byte(`{"key_id":"`+key.KeyID+`"}`)) // vouched for by none
	servicetest.OK(t, err)
	signer, _, err := keys.Checkpoint(r.nats.Flags("admitter").Keys)
	servicetest.OK(t, err)
	retirement := events.KeyRetirement{KeyID: key.KeyID, Use: signing.UseReceipt, RetiredAt: events.At(time.Now())}
	retirement.Vouch, err = signing.SignRetirement(signer, retirement)
	servicetest.OK(t, err)
	record, err := json.Marshal(retirement)
	servicetest.OK(t, err)
	_, err = kv.Put(t.Context(), keys.RetiredEntry(key.KeyID), record)
	servicetest.OK(t, err)
	servicetest.Eventually(t, "the receipt is refused", func() bool { return reason() == "receipt_key_retired" })
}

// A gateway without a checkpoint key says so, and nothing is valid.
func TestReceiptsWithoutAKey(t *testing.T) {
	r := start(t)
	res, body := r.do("POST", "/v1/receipts:verify", "runtime", []byte(`{"receipt":"a.b.c","call":{}}`))
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"unverifiable"`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if _, err := (Flags{CheckpointKey: "nonsense", Tenant: "acme"}).newGuard(); err == nil {
		t.Error("a key that is none is taken")
	}
}

// vouchedKey is the checkpoint key of a key directory.
func vouchedKey(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(dir + "/" + keys.CheckpointPublicFile)
	servicetest.OK(t, err)
	text := strings.TrimSpace(string(b))
	_, err = signing.CheckpointVerifier(text)
	servicetest.OK(t, err)
	return text
}
