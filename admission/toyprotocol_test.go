package admission

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/admission/toyprotocol"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/signing"
)

const (
	toyName    = toyprotocol.Token
	toyRequest = toyprotocol.Request
)

// A further protocol is one row in admission's table: policies, evaluators beside
// the protocol's own, records and replies need nothing else (docs/adr/0023).
func TestToyProtocolDecides(t *testing.T) {
	toyprotocol.AddRow(t)
	for name, c := range map[string]struct {
		body   string
		header map[string][]string
		snap   *Config
		want   string
		reply  string
	}{
		"allow":              {toyRequest, nil, rules(t, "allow ok: protocol == 'toy' && args.to == 'a@example.com'"), "allow ok", `{"go":true,"why":"allowed_by_policy"}`},
		"deny":               {toyRequest, nil, rules(t, "deny never: tool == 'send_mail'"), "deny never", `{"go":false,"why":"denied_by_policy"}`},
		"ask":                {toyRequest, nil, rules(t, "ask hm: true"), "ask hm", `{"go":false,"why":"approval_required"}`},
		"no match":           {toyRequest, nil, rules(t, "allow ok: tool == 'x'"), "deny no_policy_match", `{"go":false,"why":"no_policy_match"}`},
		"no policy":          {toyRequest, nil, nil, "deny no_policy", `{"go":false,"why":"no_policy"}`},
		"malformed":          {`{"do":1}`, nil, allowAll(t), "deny schema_invalid@/do", `{"go":false,"why":"schema_invalid"}`},
		"no JSON":            {`{`, nil, allowAll(t), "deny not_json", `{"go":false,"why":"not_json"}`},
		"names a mandate":    {toyRequest, map[string][]string{wire.HeaderMandateID: {"aump_mnd_x"}, wire.HeaderMandateHash: {"sha256-" + strings.Repeat("0", 64)}}, allowAll(t), "deny mandate_not_found@$.mandate_ref.id ok", `{"go":false,"why":"mandate_not_found"}`},
		"carries a contract": {strings.Replace(toyRequest, "{", `{"extra":{"aana":{"contract":{}},"kept":1},`, 1), nil, rules(t, "allow ok: event.extra == {'kept': 1.0}"), "deny schema_invalid@/extra/aana/contract ok", ""},
		"policy of protocol": {toyRequest, nil, compiled(t, toyprotocol.Policy), "allow toy_only", `{"go":true,"why":"allowed_by_policy"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(toyName, c.body)
			r.Header = c.header
			out := Decide(r, c.snap, inputs())
			if got := codes(out); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if body, err := out.Reply(); err != nil || c.reply != "" && string(body) != c.reply {
				t.Errorf("reply %s %v, want %s", body, err, c.reply)
			}
			noSecrets(t, out)
		})
	}
}

// The receipt of a further protocol binds its call, and an offline decision knows
// the protocol.
func TestToyProtocolEndToEnd(t *testing.T) {
	if out := Decide(request(toyName, toyRequest), allowAll(t), inputs()); codes(out) != "deny unknown_protocol" {
		t.Fatalf("without the row: %s", codes(out))
	}
	toyprotocol.AddRow(t)
	if !slices.Contains(Protocols(), toyName) {
		t.Errorf("not listed: %v", Protocols())
	}
	out := Decide(request(toyName, toyRequest), allowAll(t), inputs())
	if d := out.Decision; d.NativeVerdict != "go" || d.Tool != "send_mail" || d.ToolCallID != "c1" || d.ArgsDigest == "" || out.Session != "s1" {
		t.Errorf("%+v", d)
	}
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := receipt.Issue(key, out.Claims)
	if err != nil {
		t.Fatal(err)
	}
	want := receipt.Expectation{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_mail",
		ArgsCanonical: []byte(`{"password":"hunter2-secret","to":"a@example.com"}`)}
	if _, err := receipt.Verify(signing.KeySet{key.ID: key.Public()}, token, want, noon.Add(time.Second)); err != nil {
		t.Error(err)
	}
	if got := ClaimedSource(toyName, []byte(`{"from":"rt7"}`)); got != "rt7" {
		t.Errorf("claimed source %q", got)
	}
	line := EvaluateLine([]byte(toyRequest), Offline{Protocol: toyName, Config: allowAll(t), Now: noon})
	if string(line) != `{"verdict":"allow","reply":{"go":true,"why":"allowed_by_policy"}}` {
		t.Errorf("%s", line)
	}
}
