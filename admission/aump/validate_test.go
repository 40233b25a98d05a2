package aump

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

const (
	uri  = extensionURI
	meta = `"org.agentic-user-mandate-protocol/aump_mandate_id":"aump_mnd_courier_01","org.agentic-user-mandate-protocol/aump_mandate_hash":"HASH","org.agentic-user-mandate-protocol/aump_version":"0.1.0"`
	card = `{"name":"n","version":"1","url":"https://a.example","skills":[{}],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"capabilities":{"extensions":[{"uri":"other"},{"uri":"` + uri + `","required":false,"params":{"versions":["0.1.0"]}}]}}`
	tool = `{"name":"aump.evaluate_action","inputSchema":{},"outputSchema":{},"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true}}`
	a2a  = `{"headers":{"A2A-Extensions":"urn:x, ` + uri + `"},"message":{"messageId":"m","extensions":["` + uri + `"],"metadata":{"` + uri + `":{"mandate_id":"aump_mnd_courier_01","mandate_hash":"HASH","version":"0.1.0"}}}}`
	ucp  = `{"meta":{"ucp-agent":{"profile":"https://p.example"},"aump":{"mandate_id":"aump_mnd_courier_01","mandate_hash":"HASH","version":"0.1.0"}}}`
)

// bridges are messages of other protocols, and what is wrong with them.
var bridges = []struct {
	kind, document, codes string
}{
	{KindMCPMeta, `{"params":{"_meta":{` + meta + `}}}`, "[]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"progressToken":1,"com.example.x-1/a_b.c":2}}`, "[]"},
	{KindMCPMeta, `{"params":{}}`, "[bridge_reference_missing]"},
	{KindMCPMeta, `{"params":{"_meta":{}}}`, "[bridge_reference_missing]"},
	{KindMCPMeta, `{"params":{"_meta":[]}}`, "[bridge_reference_missing]"},
	{KindMCPMeta, strings.Replace(`{"_meta":{`+meta+`}}`, `"0.1.0"`, `""`, 1), "[bridge_reference_missing]"},
	{KindMCPMeta, strings.Replace(`{"_meta":{`+meta+`}}`, `"HASH"`, `{"a":1}`, 1), "[bridge_reference_missing]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"io.modelcontextprotocol/x":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"tools.mcp.com/x":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"tools.MCP/x":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"com.example.mcp/x":1}}`, "[]"}, // the third label
	{KindMCPMeta, `{"_meta":{` + meta + `,"mcp/x":1}}`, "[]"},             // one label only
	{KindMCPMeta, `{"_meta":{` + meta + `,"-x":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"a b":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"1com/x":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"com./x":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"com/x/y":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"":1}}`, "[bridge_metadata_key]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"org.agentic-user-mandate-protocol/mandate":{}}}`, "[bridge_mandate_embedded]"},
	{KindMCPMeta, `{"_meta":{` + meta + `,"x":{"deep":[{"aump":{"type":"mandate"}}]}}}`, "[bridge_mandate_embedded]"},

	{KindMCPTool, tool, "[]"},
	{KindMCPTool, `{}`, "[bridge_invalid]"},
	{KindMCPTool, strings.Replace(tool, "aump.evaluate_action", "evaluate_action", 1), "[bridge_invalid]"},
	{KindMCPTool, strings.Replace(tool, `"inputSchema":{}`, `"inputSchema":true`, 1), "[bridge_invalid]"},
	{KindMCPTool, strings.Replace(tool, `"outputSchema":{},`, ``, 1), "[bridge_invalid]"},
	{KindMCPTool, strings.Replace(tool, `"readOnlyHint":true`, `"readOnlyHint":"true"`, 1), "[bridge_invalid]"},
	{KindMCPTool, strings.Replace(tool, `"destructiveHint":false,`, ``, 1), "[bridge_invalid]"},
	{KindMCPTool, strings.Replace(tool, `"idempotentHint":true`, `"idempotentHint":false`, 1), "[bridge_invalid]"},

	{KindA2AExtension, card, "[]"},
	{KindA2AExtension, `{}`, "[bridge_invalid bridge_extension_undeclared]"},
	{KindA2AExtension, strings.Replace(card, `"required":false`, `"required":true`, 1), "[bridge_invalid]"},
	{KindA2AExtension, strings.Replace(card, `"required":false,`, ``, 1), "[bridge_invalid]"},
	{KindA2AExtension, strings.Replace(card, `"0.1.0"`, `"0.2.0"`, 1), "[bridge_invalid]"},
	{KindA2AExtension, strings.Replace(card, `[{}]`, `[]`, 1), "[bridge_invalid]"},
	{KindA2AExtension, strings.Replace(card, `"url":"https://a.example",`, ``, 1), "[bridge_invalid]"},
	{KindA2AExtension, strings.Replace(card, uri, "urn:y", 1), "[bridge_extension_undeclared]"},

	{KindA2AMessage, a2a, "[]"},
	{KindA2AMessage, strings.Replace(a2a, "A2A-Extensions", "a2a-extensions", 1), "[]"},
	{KindA2AMessage, `{}`, "[bridge_invalid bridge_extension_undeclared bridge_reference_missing]"},
	{KindA2AMessage, strings.Replace(a2a, `"messageId":"m",`, ``, 1), "[bridge_invalid]"},
	{KindA2AMessage, strings.Replace(a2a, `, `+uri+`"},"message"`, `"},"message"`, 1), "[bridge_extension_undeclared]"},
	{KindA2AMessage, strings.Replace(a2a, `"extensions":["`+uri+`"]`, `"extensions":["`+uri+`",1]`, 1), "[bridge_extension_undeclared]"},
	{KindA2AMessage, strings.Replace(a2a, `"mandate_id"`, `"mandate":{},"mandate_id"`, 1), "[bridge_mandate_embedded]"},
	{KindA2AMessage, strings.Replace(a2a, `"mandate_id"`, `"mandate":null,"mandate_id"`, 1), "[bridge_mandate_embedded]"},
	{KindA2AMessage, strings.Replace(a2a, `"metadata":{`, `"metadata":{"other":{"authority":{},"preferences":{}},`, 1), "[bridge_mandate_embedded]"},
	{KindA2AMessage, strings.Replace(a2a, `"mandate_hash"`, `"hash"`, 1), "[bridge_reference_missing]"},

	{KindUCPReference, ucp, "[]"},
	{KindUCPReference, `{}`, "[bridge_invalid bridge_reference_missing]"},
	{KindUCPReference, strings.Replace(ucp, `"profile":"https://p.example"`, ``, 1), "[bridge_invalid]"},
	{KindUCPReference, strings.Replace(ucp, `{"meta"`, `{"ap2":{"aump":{}},"meta"`, 1), "[bridge_invalid]"},
	{KindUCPReference, strings.Replace(ucp, `"mandate_id"`, `"mandate":"x","mandate_id"`, 1), "[bridge_mandate_embedded]"},
	{KindUCPReference, strings.Replace(ucp, `{"meta"`, `{"checkout":{"m":{"aump":{"type":"mandate"}}},"meta"`, 1), "[bridge_mandate_embedded]"},
	{KindUCPReference, strings.Replace(ucp, `"version":"0.1.0"`, `"version":1`, 1), "[bridge_reference_missing]"},
}

func TestBridges(t *testing.T) {
	m := compiled(t, courier)
	mandateFile := corpusFile(t, "mandate/valid/"+courier)
	for _, tc := range bridges {
		doc := strings.ReplaceAll(tc.document, "HASH", m.Hash)
		r, err := Validate(tc.kind, []byte(doc), nil, noon)
		if got := fmt.Sprint(r.ReasonCodes); err != nil || got != tc.codes || r.Valid != (tc.codes == "[]") {
			t.Errorf("%s %s: %s %v %v, want %s", tc.kind, doc, got, r.Errors, err, tc.codes)
		}
		if tc.codes != "[]" || !mandateKinds[tc.kind] {
			continue
		}
		if r, err := Validate(tc.kind, []byte(doc), mandateFile, noon); err != nil || !r.Valid {
			t.Errorf("%s beside its mandate: %+v %v", tc.kind, r, err)
		}
		for _, wrong := range []string{strings.ReplaceAll(doc, "courier_01", "courier_09"), strings.ReplaceAll(doc, m.Hash, "sha256-example")} {
			if r, _ := Validate(tc.kind, []byte(wrong), mandateFile, noon); fmt.Sprint(r.ReasonCodes) != "[mandate_hash_mismatch]" {
				t.Errorf("%s of another mandate: %+v", tc.kind, r)
			}
		}
	}
}

func TestValidateMandate(t *testing.T) {
	day := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		edits []string
		now   time.Time
		codes string
	}{
		"good":               {nil, noon, "[]"},
		"expired":            {nil, day, "[mandate_expired]"},
		"not yet":            {nil, day.Add(-25 * time.Hour), "[mandate_inactive]"},
		"draft and expired":  {[]string{"status", `"draft"`}, day, "[mandate_inactive mandate_expired]"},
		"without a bound":    {[]string{"authority.budget", ""}, noon, "[scope_violation]"},
		"broken":             {[]string{"status", `"paused"`, "authority.mode", "1"}, noon, "[schema_invalid]"},
		"of another version": {[]string{"aump.version", `"0.2.0"`}, noon, "[schema_invalid]"},
		"leap second":        {[]string{"expires_at", `"2026-12-31T23:59:60Z"`}, noon, "[schema_invalid]"},
		"of no form":         {[]string{"id", `"mnd_1"`}, noon, "[schema_invalid]"},
	} {
		r, err := Validate(KindMandate, edit(t, corpusFile(t, "mandate/valid/"+courier), tc.edits...), nil, tc.now)
		if err != nil || fmt.Sprint(r.ReasonCodes) != tc.codes || r.Valid != (tc.codes == "[]") || r.Valid != (len(r.Errors) == 0) {
			t.Errorf("%s: %+v %v, want %s", name, r, err, tc.codes)
		}
	}
	for _, raw := range []string{"", "null", "[]", "{", `{"a":1,"a":2}`} {
		for _, kind := range kinds {
			if r, err := Validate(kind, []byte(raw), nil, noon); err != nil || fmt.Sprint(r.ReasonCodes) != "[schema_invalid]" || len(r.Errors) != 1 {
				t.Errorf("%s %q: %+v %v", kind, raw, r, err)
			}
		}
	}
}

func TestValidateProfile(t *testing.T) {
	good := corpusFile(t, "profile/valid/full.json")
	key := `{"kid":"k1","kty":"OKP","crv":"Ed25519","x":"%s"}`
	for name, tc := range map[string]struct {
		edits []string
		valid bool
	}{
		"good":                  {nil, true},
		"a key that is no key":  {[]string{"signing_keys", `[{"kid":"k","kty":"EC"}]`}, true},
		"of another version":    {[]string{"aump.version", `"1.0.0"`}, false},
		"two keys with one kid": {[]string{"signing_keys", "[" + fmt.Sprintf(key, "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo") + "," + fmt.Sprintf(key, strings.Repeat("B", 42)+"A") + "]"}, false},
		"no bindings":           {[]string{"bindings", ""}, false},
	} {
		if r, err := Validate(KindProfile, edit(t, good, tc.edits...), nil, noon); err != nil || r.Valid != tc.valid {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}

func TestEvidence(t *testing.T) {
	m := compiled(t, courier)
	base := edit(t, corpusFile(t, "evidence-event/valid/minimal.json"), "mandate_ref.hash", `"`+m.Hash+`"`)
	full := func() string {
		tree, err := strictjson.ParseObject(edit(t, base, "hashes", `{"previous_event_hash":"`+m.Hash+`"}`), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		h, err := wire.EventHash(tree)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}()
	for name, tc := range map[string]struct {
		mandate, event []string
		alone          bool // without the mandate
		codes          string
	}{
		"good":                               {codes: "[]"},
		"hash in upper case":                 {event: []string{"mandate_ref.hash", `"` + upperHash(m.Hash) + `"`}, codes: "[]"},
		"of another mandate":                 {event: []string{"mandate_ref.id", `"aump_mnd_x"`}, codes: "[evidence_mandate_mismatch]"},
		"of another mandate, with its hash":  {event: []string{"mandate_ref.id", `"aump_mnd_x"`, "mandate_ref.hash", `"sha256-` + strings.Repeat("0", 64) + `"`}, codes: "[evidence_mandate_mismatch]"},
		"of another edition":                 {event: []string{"mandate_ref.hash", `"sha256-` + strings.Repeat("0", 64) + `"`}, codes: "[evidence_mandate_hash_mismatch]"},
		"a type that is wanted":              {mandate: []string{"evidence.events_required", `["courier_booked"]`}, codes: "[]"},
		"a type that is not":                 {mandate: []string{"evidence.events_required", `["deal_accepted"]`}, codes: "[evidence_event_type_not_required]"},
		"kept otherwise":                     {event: []string{"privacy.retention", `"summary_only"`}, codes: "[evidence_retention_mismatch]"},
		"private":                            {event: []string{"privacy.contains_private_fields", "true"}, codes: "[evidence_private_field_leak]"},
		"private, in a transcript":           {mandate: []string{"evidence.retention", `"full_transcript"`}, event: []string{"privacy.contains_private_fields", "true", "privacy.retention", `"full_transcript"`}, codes: "[]"},
		"calls itself a transcript":          {event: []string{"privacy.contains_private_fields", "true", "privacy.retention", `"full_transcript"`}, codes: "[evidence_retention_mismatch evidence_private_field_leak]"},
		"private, and does not say so":       {mandate: []string{"preferences.private_notes", `["Empty by Friday."]`}, event: []string{"metadata", `{"n":1,"note":"they are EMPTY by friday."}`}, codes: "[evidence_private_field_leak]"},
		"private in its summary":             {mandate: []string{"preferences.private_notes", `["Empty by Friday."]`}, event: []string{"action", `{"type":"t","summary":"Empty by Friday."}`}, codes: "[evidence_private_field_leak]"},
		"allowed before the mandate":         {event: []string{"created_at", `"2026-11-20T07:00:00Z"`}, codes: "[mandate_inactive]"},
		"allowed after expiry":               {event: []string{"created_at", `"2026-11-21T08:00:00Z"`}, codes: "[mandate_expired]"},
		"denied after expiry":                {event: []string{"created_at", `"2026-11-21T08:00:00Z"`, "result", `"denied"`}, codes: "[]"},
		"allowed while suspended":            {mandate: []string{"status", `"suspended"`}, codes: "[mandate_inactive]"},
		"recorded while suspended":           {mandate: []string{"status", `"suspended"`}, event: []string{"result", `"recorded"`}, codes: "[]"},
		"its own hash":                       {event: []string{"hashes", `{"previous_event_hash":"` + m.Hash + `","event_hash":"` + full + `"}`}, codes: "[]"},
		"another's hash":                     {event: []string{"hashes", `{"event_hash":"` + full + `"}`}, codes: "[evidence_event_hash_mismatch]"},
		"alone":                              {alone: true, event: []string{"mandate_ref.id", `"aump_mnd_x"`, "event_type", `"x"`}, codes: "[]"},
		"private, alone":                     {alone: true, event: []string{"privacy.contains_private_fields", "true"}, codes: "[evidence_private_field_leak]"},
		"of another version":                 {event: []string{"aump.version", `"9"`}, codes: "[schema_invalid]"},
		"in a leap second":                   {event: []string{"created_at", `"2026-12-31T23:59:60Z"`}, codes: "[schema_invalid]"},
		"with a member of its own":           {event: []string{"secret", `"x"`}, codes: "[schema_invalid]"},
		"under a mandate that breaks schema": {mandate: []string{"status", `"paused"`}, codes: "[schema_invalid]"},
	} {
		against := edit(t, corpusFile(t, "mandate/valid/"+courier), tc.mandate...)
		event := base
		if tc.mandate != nil { // the mandate has another hash now
			event = edit(t, event, "mandate_ref.hash", `"`+compileTree(t, against).Hash+`"`)
		}
		if tc.alone {
			against = nil
		}
		r, err := Validate(KindEvidence, edit(t, event, tc.event...), against, noon)
		if err != nil || fmt.Sprint(r.ReasonCodes) != tc.codes || r.Valid != (len(r.Errors) == 0) {
			t.Errorf("%s: %v %v %v, want %s", name, r.ReasonCodes, r.Errors, err, tc.codes)
		}
	}
}

func TestValidateIsCalledWrongly(t *testing.T) {
	good := corpusFile(t, "mandate/valid/"+courier)
	if _, err := Validate("contract", good, nil, noon); !errors.Is(err, ErrKind) {
		t.Error(err)
	}
	for kind := range mandateKinds {
		if _, err := Validate(kind, []byte("{}"), []byte("{"), noon); !errors.Is(err, ErrBadMandate) {
			t.Error(err)
		}
		if _, err := Validate(kind, []byte("{}"), []byte("{}"), noon); !errors.Is(err, mandate.ErrNoID) {
			t.Error(err)
		}
	}
	for _, kind := range []string{KindMandate, KindProfile, KindMCPTool, KindA2AExtension} {
		if _, err := Validate(kind, good, good, noon); !errors.Is(err, ErrNoMandate) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
