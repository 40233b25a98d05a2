package publisher

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

// Names are exact bytes; one that is known in another case is refused.
func TestLookup(t *testing.T) {
	s := mail(t)
	for name, c := range map[string]struct {
		tenant, source, tool string
		standing             NameStatus
		canonical            string
	}{
		"canonical":                       {"acme", "rt1", "email.send_message", Known, "email.send_message"},
		"alias":                           {"acme", "rt2", "send_mail", Known, "email.send_message"},
		"two aliases that fold to two":    {"acme", "rt2", "sendMail", Known, "email.send_message"},
		"alias of this publisher":         {"acme", "rt1", "Send", Known, "email.send_message"},
		"alias of another publisher":      {"acme", "rt2", "Send", Unknown, ""},
		"alias in another case":           {"acme", "rt2", "Send_Mail", CaseDiffers, ""},
		"canonical in another case":       {"acme", "rt2", "Email.Send_Message", CaseDiffers, ""},
		"publisher's in another case":     {"acme", "rt1", "SEND", CaseDiffers, ""},
		"kelvin sign for k":               {"acme", "rt1", "email.\u212Aelvin", Unknown, ""},
		"long s folds to s":               {"acme", "rt1", "\u017Fend_mail", CaseDiffers, ""},
		"homoglyph":                       {"acme", "rt1", "s\u0435nd_mail", Unknown, ""},
		"full width":                      {"acme", "rt1", "\uff53end_mail", Unknown, ""},
		"trailing blank":                  {"acme", "rt1", "send_mail ", Unknown, ""},
		"NUL":                             {"acme", "rt1", "send_mail\x00", Unknown, ""},
		"zero width":                      {"acme", "rt1", "send\u200b_mail", Unknown, ""},
		"unknown":                         {"acme", "rt1", "rocket.launch", Unknown, ""},
		"no tool":                         {"acme", "rt1", "", Unknown, ""},
		"another tenant has no catalogue": {"globex", "rt1", "send_mail", NoCatalogue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.Lookup(c.tenant, c.source, c.tool)
			canonical := ""
			if got.Entry != nil {
				canonical = got.Entry.Name
			}
			if got.Status != c.standing || canonical != c.canonical || (got.Entry != nil) != (got.Status == Known) {
				t.Errorf("standing %d, %q", got.Status, canonical)
			}
			if got.Facts()["known"] != (c.standing == Known) || got.Facts()["name"] != c.canonical {
				t.Errorf("policies see %v", got.Facts())
			}
		})
	}
}

// Policies can rely on every member of catalog.
func TestFacts(t *testing.T) {
	s := mail(t)
	for tool, want := range map[string]obj{
		"send_mail":   {"known": true, "name": "email.send_message", "category": "write", "risk": "external_side_effect", "irreversible": false, "requires": list{}},
		"email.purge": {"known": true, "name": "email.purge", "category": "unknown", "risk": "unknown", "irreversible": false, "requires": list{}},
		"x":           {"known": false, "name": "", "category": "", "risk": "", "irreversible": false, "requires": list{}},
		"email.pay_invoice": {"known": true, "name": "email.pay_invoice", "category": "write", "risk": "unknown", "irreversible": false,
			"requires": list{"mandate", "contract", "schema_hash"}},
	} {
		if d := cmp.Diff(want, s.Lookup("acme", "rt1", tool).Facts()); d != "" {
			t.Errorf("%s: %s", tool, d)
		}
	}
	if d := cmp.Diff(unknownFacts, Tool{}.Facts()); d != "" {
		t.Error(d)
	}
}

func said(found []Finding) string {
	var words []string
	for _, f := range found {
		words = append(words, string(f.Verdict)+" "+strings.TrimSuffix(f.Code+"@"+f.Path, "@"))
	}
	return strings.Join(words, ", ")
}

func TestJudge(t *testing.T) {
	right, wrong := Field{"sha256:" + digits, "/h"}, Field{"sha256:" + strings.Repeat("a", 64), "/w"}
	s := mail(t)
	for name, c := range map[string]struct {
		tool  string
		claim Claim
		want  string
	}{
		"nothing claimed":                 {"send_mail", Claim{}, ""},
		"unknown":                         {"x", Claim{Name: "x"}, "allow tool_not_catalogued"},
		"unknown that claims to be known": {"x", Claim{Name: "x", Canonical: Field{"email.purge", "/c"}}, "allow tool_not_catalogued, deny tool_identity_mismatch@/c"},
		"unknown with a name of its own":  {"x", Claim{Name: "x", Canonical: Field{"x.y", "/c"}}, "allow tool_not_catalogued"},
		"no tool that claims to be one":   {"", Claim{Canonical: Field{"email.purge", "/c"}}, "deny tool_identity_mismatch@/c"},
		"case":                            {"SEND_MAIL", Claim{Name: "SEND_MAIL"}, "deny tool_name_case"},
		"identity right":                  {"send_mail", Claim{Name: "send_mail", Canonical: Field{"email.send_message", "/c"}, Provider: Field{"send_mail", "/p"}}, ""},
		"provider by another alias":       {"send_mail", Claim{Name: "send_mail", Provider: Field{"sendMail", "/p"}}, ""},
		"another canonical name":          {"send_mail", Claim{Name: "send_mail", Canonical: Field{"email.purge", "/c"}}, "deny tool_identity_mismatch@/c"},
		"canonical name in another case":  {"send_mail", Claim{Name: "send_mail", Canonical: Field{"email.Send_message", "/c"}}, "deny tool_identity_mismatch@/c"},
		"another provider name":           {"send_mail", Claim{Name: "send_mail", Provider: Field{"email.purge", "/p"}}, "deny tool_identity_mismatch@/p"},
		"another publisher's name":        {"send_mail", Claim{Name: "send_mail", Provider: Field{"Send", "/p"}}, "deny tool_identity_mismatch@/p"},
		"schema right, in any case":       {"send_mail", Claim{Hashes: []Field{right, {}}}, ""},
		"one of two schemas wrong":        {"send_mail", Claim{Hashes: []Field{right, wrong}}, "deny tool_schema_mismatch@/w"},
		"schema of a tool without any":    {"email.purge", Claim{Hashes: []Field{wrong}}, ""},
		"requirements not met":            {"email.pay_invoice", Claim{}, "deny mandate_required, deny contract_required, deny schema_hash_required"},
		"requirements met":                {"email.pay_invoice", Claim{Evaluated: []string{RequireMandate, RequireContract}, Hashes: []Field{right}}, ""},
		"an empty hash is none":           {"email.pay_invoice", Claim{Evaluated: []string{RequireMandate, RequireContract}, Hashes: []Field{{"", "/h"}}}, "deny schema_hash_required"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(Judge(s.Lookup("acme", "rt1", c.tool), c.claim)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	if got := said(Judge(Tool{}, Claim{Name: "x", Canonical: Field{"a.b", ""}})); got != "" {
		t.Errorf("without a catalogue: %s", got)
	}
}

// A contract cannot say that a tool does less than the catalogue knows.
func TestUnderstates(t *testing.T) {
	s := mail(t)
	for _, c := range []struct {
		tool, category string
		want           bool
	}{
		{"send_mail", "public_read", true}, {"send_mail", "private_read", true}, {"send_mail", "write", false}, {"send_mail", "unknown", false},
		{"send_mail", "", false}, {"email.list_messages", "public_read", true}, {"email.list_messages", "write", false},
		{"email.purge", "public_read", false}, {"x", "public_read", false},
	} {
		if got := s.Lookup("acme", "rt1", c.tool).Entry.Understates(c.category); got != c.want {
			t.Errorf("%s as %q: %v", c.tool, c.category, got)
		}
	}
}

// No word of the request is lost to those of the catalogue.
func TestRaise(t *testing.T) {
	entry := func(risk string, final bool) *Entry {
		return toolDoc{Name: "a.b", Risk: risk, Irreversible: final}.newEntry()
	}
	for name, c := range map[string]struct {
		entry      *Entry
		have, want obj
	}{
		"unknown tool":     {nil, obj{"level": "low"}, obj{"level": "low"}},
		"silent catalogue": {entry("", false), obj{"level": "low"}, obj{"level": "low"}},
		"silent request":   {entry("destructive_write", false), nil, obj{"level": "high", "irreversible": true}},
		"milder request": {entry("destructive_write", false), obj{"level": "low", "risk_class": "read_only", "operation_risk": "write", "irreversible": false},
			obj{"level": "high", "risk_class": "read_only", "operation_risk": "write", "irreversible": true}},
		"stricter request": {entry("read_only", false), obj{"level": "high", "risk_class": "publication", "operation_risk": "write", "irreversible": true},
			obj{"level": "high", "risk_class": "publication", "operation_risk": "write", "irreversible": true}},
		"unknown word": {entry("destructive_write", false), obj{"level": "high", "risk_class": "nuke"},
			obj{"level": "high", "risk_class": "nuke", "irreversible": true}},
		"only final":       {entry("", true), obj{"level": "low"}, obj{"level": "low", "irreversible": true}},
		"never taken back": {entry("read_only", false), obj{"irreversible": true}, obj{"irreversible": true, "level": "low"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := string(text(t, c.have))
			if d := cmp.Diff(c.want, c.entry.RaiseRisk(c.have)); d != "" {
				t.Error(d)
			}
			if string(text(t, c.have)) != before {
				t.Error("the request's own was changed")
			}
		})
	}
}

func TestStated(t *testing.T) {
	n := func(s string) json.Number { return json.Number(s) }
	both := Binding{TotalMinor: "/total/minor", Currency: "/total/currency"}
	for name, c := range map[string]struct {
		binding   Binding
		args      obj
		want      Amount
		there, ok bool
	}{
		"no money":            {Binding{Action: "x"}, obj{}, Amount{}, false, true},
		"by pointers":         {both, obj{"total": obj{"minor": n("700"), "currency": "USD"}}, Amount{700, "USD"}, true, true},
		"written otherwise":   {both, obj{"total": obj{"minor": n("7.0e2"), "currency": "USD"}}, Amount{700, "USD"}, true, true},
		"fixed currency":      {Binding{TotalMinor: "/m", Currency: "EUR"}, obj{"m": n("0")}, Amount{0, "EUR"}, true, true},
		"any currency":        {Binding{TotalMinor: "/m"}, obj{"m": n("1")}, Amount{1, ""}, true, true},
		"escaped pointer":     {Binding{TotalMinor: "/a~1b/c~0d"}, obj{"a/b": obj{"c~d": n("1")}}, Amount{1, ""}, true, true},
		"no arguments":        {both, nil, Amount{}, true, false},
		"no currency":         {both, obj{"total": obj{"minor": n("700")}}, Amount{700, ""}, true, false},
		"text":                {both, obj{"total": obj{"minor": "700", "currency": "USD"}}, Amount{0, "USD"}, true, false},
		"a fraction":          {both, obj{"total": obj{"minor": n("7.5"), "currency": "USD"}}, Amount{0, "USD"}, true, false},
		"negative":            {both, obj{"total": obj{"minor": n("-1"), "currency": "USD"}}, Amount{0, "USD"}, true, false},
		"a list on the way":   {both, obj{"total": list{n("1")}}, Amount{}, true, false},
		"a number beyond all": {both, obj{"total": obj{"minor": n("1e300"), "currency": "USD"}}, Amount{0, "USD"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, there, ok := c.binding.AmountIn(c.args)
			if got != c.want || there != c.there || ok != c.ok {
				t.Errorf("%+v %v %v", got, there, ok)
			}
		})
	}
}

func TestDeclared(t *testing.T) {
	s := set(t, manifest(t, "com.example.codex", "codex"),
		registration(t, "rt1", "com.example.claude", "claude-code", obj{"profiles": list{"admission-bound"}, "fail_mode": "fail_closed"}),
		registration(t, "rt1", "com.example.gem", "gemini", obj{"profiles": list{"action-governance"}, "agents": list{"a1", "a2"}}),
		registration(t, "rt1", "com.example.kimi", "kimi", obj{"agents": list{"a3"}}))
	for name, c := range map[string]struct {
		source, family string
		registered     bool
		id             string
	}{
		"nobody":                           {"rt2", "aider", false, ""},
		"a manifest":                       {"rt2", "codex", false, "com.example.codex"},
		"a registration":                   {"rt1", "claude-code", true, "com.example.claude"},
		"another of the same publisher":    {"rt1", "gemini", true, "com.example.gem"},
		"registered, but not as this":      {"rt1", "codex", true, ""},
		"a registration is nobody else's":  {"rt2", "claude-code", false, ""},
		"a family in another case is none": {"rt2", "Codex", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.Declared("acme", c.source, c.family)
			id := ""
			if d.Declaration != nil {
				id = d.ID
			}
			if d.Registered != c.registered || id != c.id {
				t.Errorf("%+v", d)
			}
		})
	}
	for source, want := range map[string]string{"rt1": "[a1 a2 a3]", "rt2": "[]"} {
		ids := s.Agents("acme", source)
		if slices.Sort(ids); fmt.Sprint(ids) != want || s.Agents("globex", source) != nil {
			t.Errorf("%s acts for %v, want %s", source, ids, want)
		}
	}
	d := s.Declared("acme", "rt1", "claude-code")
	if !d.AdmissionBound || d.ActionGovernance || d.FailMode != "fail_closed" || d.Support("PreToolUse") != Supported ||
		d.Support("PreLLMCall") != NotExposed || d.Support("WebActionRequested") != "" || d.Limitations[0] != "Sees Bash only." {
		t.Errorf("%+v", d.Declaration)
	}
	if d := s.Declared("globex", "rt1", "claude-code"); d.Declaration != nil || d.Registered {
		t.Error("another tenant's")
	}
}

// Documents that cannot be used deny everything of their tenant, and of no other.
func TestBroken(t *testing.T) {
	good := tools(t, "mail", obj{"name": "email.purge"})
	other := Document{Tenant: "globex", Name: good.Name, Data: good.Data}
	broken := Document{Tenant: "acme", Name: "tools.x", Data: []byte(`{"schema":`)}
	s := Compile([]Document{good, other, broken}, 1)
	if s.Err() == nil || s.Lookup("acme", "rt1", "email.purge").Status != Broken || s.Lookup("acme", "rt1", "").Status != Broken {
		t.Error("a broken document was overlooked")
	}
	if got := said(Judge(s.Lookup("acme", "rt1", "x"), Claim{Name: "x"})); got != "deny catalogue_error" {
		t.Error(got)
	}
	if s.Lookup("globex", "rt1", "email.purge").Status != Known {
		t.Error("it broke another tenant's")
	}
	if s := Compile([]Document{good}, 1, "what.is.this"); s.Err() == nil || s.Lookup("globex", "rt1", "x").Status != Broken {
		t.Error("a key of nobody knows whom was overlooked")
	}
}

// The same documents give the same state in any order; every change another.
func TestState(t *testing.T) {
	a, b := tools(t, "a", obj{"name": "a.b"}), manifest(t, "com.example.x", "x")
	one, two := Compile([]Document{a, b}, 4), Compile([]Document{b, a}, 4)
	if one.Digest() != two.Digest() || one.State("acme").Digest != two.State("acme").Digest || one.State("acme").Revision != 4 {
		t.Error("the order shows")
	}
	if d := cmp.Diff(one.Documents(), two.Documents()); d != "" || len(one.Documents()) != 2 {
		t.Error(d)
	}
	for name, docs := range map[string][]Document{
		"one less": {a}, "renamed": {{Tenant: "acme", Name: "tools.b", Data: a.Data}, b}, "changed": {{Tenant: "acme", Name: a.Name, Data: append([]byte(" "), a.Data...)}, b},
		"another tenant's": {{Tenant: "globex", Name: a.Name, Data: a.Data}, b},
	} {
		if Compile(docs, 4).Digest() == one.Digest() {
			t.Errorf("%s does not show", name)
		}
	}
	if one.State("globex") != nil || one.Err() != nil {
		t.Error("state of a tenant without documents")
	}
	var none *events.SnapshotRef
	if Compile(nil, 0).State("acme") != none {
		t.Error("state of nothing")
	}
}

// The log is told of a manifest what events are held against, of what cannot be
// used why, and of a catalogue nothing.
func TestRecord(t *testing.T) {
	broken := Document{Tenant: "acme", Name: KindManifest + ".com.example.z", Data: []byte(`{"schema":"` + manifestSchema + `","secret":"hunter2"}`)}
	docs := []Document{
		tools(t, "a", obj{"name": "a.b"}), manifest(t, "com.example.x", "x"), broken,
		registration(t, "rt1", "com.example.y", "y", obj{"fail_mode": "fail_closed", "profiles": list{"admission-bound"}, "answers_confirmations": true}),
		{Tenant: "acme", Name: "registration.front1", Data: []byte(`{"schema": "` + RegistrationSchema + `", "publisher": "front1", "answers_confirmations": true}`)},
		{Tenant: "acme", Name: "registration.web1", Data: []byte(`{"schema": "` + RegistrationSchema + `", "publisher": "web1", "gateway": "gw1"}`)},
	}
	absent, partial := []string{"AgentHandoff", "PreLLMCall"}, []string{"ModelResponse"}
	want := map[string]*events.PublisherDeclares{
		"tools.a": nil, broken.Name: nil,
		"manifest.com.example.x": {Source: "x", Absent: absent, Limitations: 1, Partial: partial},
		"registration.rt1.com.example.y": {Publisher: "rt1", Source: "y", Absent: absent, FailMode: "fail_closed", Limitations: 1,
			Profiles: []string{events.ProfileAdmissionBound}, Partial: partial, Answers: true},
		"registration.front1": {Publisher: "front1", Answers: true}, "registration.web1": nil,
	}
	for _, d := range Compile(docs, 1).Documents() {
		if diff := cmp.Diff(d.Declares, want[d.Name]); diff != "" {
			t.Errorf("%s: %s", d.Name, diff)
		}
		if (d.Error != "") != (d.Name == broken.Name) || strings.Contains(d.Error, "hunter2") || len(d.Error) > maxRecordError {
			t.Errorf("%s: %q", d.Name, d.Error)
		}
	}
}

// A registration names the gateway that may speak for a publisher. Two that differ, and documents
// that cannot be used, let no gateway speak.
func TestGateway(t *testing.T) {
	doc := func(name, gateway string) Document {
		return Document{Tenant: "acme", Name: "registration." + name, Data: []byte(`{"schema": "` + RegistrationSchema + `", "publisher": "` + name + `", "gateway": "` + gateway + `"}`)}
	}
	s := Compile([]Document{doc("web1", "gw1")}, 1)
	for _, c := range []struct{ tenant, source, want string }{{"acme", "web1", "gw1"}, {"acme", "rt1", ""}, {"globex", "web1", ""}} {
		if got := s.Gateway(c.tenant, c.source); got != c.want || s.Err() != nil {
			t.Errorf("%s %s: %q, %v", c.tenant, c.source, got, s.Err())
		}
	}
	if d := s.Declared("acme", "web1", "anything"); d.Registered {
		t.Error("a registration without a manifest says something about events")
	}
	broken := Compile([]Document{doc("web1", "gw1"), {Tenant: "acme", Name: "registration.web2", Data: []byte(`{}`)}}, 1)
	if got := broken.Gateway("acme", "web1"); got != "" {
		t.Errorf("a tenant with an unusable document: %q", got)
	}
	if _, err := Parse([]byte(`{"schema": "` + RegistrationSchema + `", "publisher": "web1"}`)); err == nil {
		t.Error("a registration that says nothing is usable")
	}
	if _, err := Parse([]byte(`{"schema": "` + RegistrationSchema + `", "publisher": "web1", "gateway": "gw1", "fail_mode": "fail_open"}`)); err == nil {
		t.Error("a fail mode without a manifest is dropped silently")
	}
}
