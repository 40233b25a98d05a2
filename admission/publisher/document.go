package publisher

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Kinds of documents.
const (
	KindManifest     = "manifest"
	KindRegistration = "registration"
	KindTools        = "tools"
)

// Errors of documents.
var (
	ErrKind = errors.New(`publisher: the document's "schema" names none of: ` + manifestSchema + ", " + RegistrationSchema + ", " + toolsSchema)
	ErrKey  = errors.New("publisher: the key names no tenant and document")
)

// Values of the member schema. RegistrationSchema is that of a registration.
const (
	manifestSchema     = "https://agenthook.org/schemas/publisher-manifest.v1.json"
	RegistrationSchema = schemas.Base + "countersign/publisher-registration/v1"
	toolsSchema        = schemas.Base + "countersign/tool-catalogue/v1"
)

// Parsed is a document that satisfies its schema.
type Parsed struct {
	Kind string
	Name string // of the document within its tenant: "<kind>.<name>"

	declaration *Declaration // nil for a registration without a manifest
	tools       []toolDoc
	reached     reach // of a registration
}

// reach says what a registration does beside the manifest; the zero value says nothing.
type reach struct {
	publisher, gateway string // the gateway through which it is reached
	answers            bool   // its replies to confirmations count in the tenant
}

// documentKinds maps the member schema of a document to its schema here and to its reader.
var documentKinds = map[string]struct {
	schema string
	read   func([]byte) (Parsed, error)
}{
	manifestSchema:     {"agenthook/publisher-manifest", readManifest},
	RegistrationSchema: {"countersign/publisher-registration", readRegistration},
	toolsSchema:        {"countersign/tool-catalogue", readTools},
}

// Parse reads one document and validates it by its schema. The error quotes no value of the
// document. Compile checks for conflicts between documents.
func Parse(data []byte) (Parsed, error) {
	v, err := strictjson.ReadObject(data, strictjson.DefaultLimits)
	if err != nil {
		return Parsed{}, err
	}
	kind, known := documentKinds[v.MemberText("schema")]
	if !known {
		return Parsed{}, ErrKind
	}
	if vs := schemas.Default().Validate(kind.schema, v); len(vs) > 0 {
		return Parsed{}, fmt.Errorf("publisher: %s", violationList(vs))
	}
	return kind.read(data)
}

const maxReported = 8

func violationList(vs []schemas.Violation) string {
	var list []string
	for _, v := range vs[:min(len(vs), maxReported)] {
		list = append(list, v.String())
	}
	if len(vs) > maxReported {
		list = append(list, fmt.Sprintf("and %d more", len(vs)-maxReported))
	}
	return strings.Join(list, "; ")
}

type manifestDoc struct {
	PublisherID string `json:"publisher_id"`
	AgentHook   struct {
		Source string            `json:"source"`
		Events map[string]string `json:"events"`
	} `json:"agenthook"`
	Limitations []string        `json:"limitations"`
	HookTrust   json.RawMessage `json:"hook_trust"`
}

type hookDoc struct {
	HookID      string `json:"hook_id"`
	Fingerprint string `json:"fingerprint"`
	Expected    string `json:"expected_fingerprint"`
}

func readManifest(data []byte) (Parsed, error) {
	var m manifestDoc
	if err := json.Unmarshal(data, &m); err != nil {
		return Parsed{}, errors.New("publisher: the manifest cannot be read")
	}
	d, err := m.toDeclaration()
	return Parsed{Kind: KindManifest, Name: KindManifest + "." + m.PublisherID, declaration: d}, err
}

func (m manifestDoc) toDeclaration() (*Declaration, error) {
	d := &Declaration{ID: m.PublisherID, Source: m.AgentHook.Source, Limitations: m.Limitations, events: m.AgentHook.Events, hooks: map[string]string{}}
	var list []hookDoc
	if len(m.HookTrust) > 0 && m.HookTrust[0] == '{' {
		m.HookTrust = append(append([]byte{'['}, m.HookTrust...), ']')
	}
	if len(m.HookTrust) > 0 && json.Unmarshal(m.HookTrust, &list) != nil {
		return nil, errors.New("publisher: hook_trust cannot be read")
	}
	for _, h := range list {
		want := h.Expected
		if want == "" {
			want = h.Fingerprint
		}
		if want == "" {
			continue
		}
		if !fingerprintPattern.MatchString(want) { // AH-C-133
			return nil, errors.New("publisher: a fingerprint in hook_trust is not sha256: and 64 hexadecimal digits")
		}
		if _, twice := d.hooks[h.HookID]; twice {
			return nil, errors.New("publisher: hook_trust names one hook twice")
		}
		d.hooks[h.HookID] = strings.ToLower(want)
	}
	return d, nil
}

var fingerprintPattern = regexp.MustCompile(`^sha256:[0-9A-Fa-f]{64}$`)

func readRegistration(data []byte) (Parsed, error) {
	var r struct {
		Publisher string       `json:"publisher"`
		Profiles  []string     `json:"profiles"`
		Agents    []string     `json:"agents"`
		FailMode  string       `json:"fail_mode"`
		Gateway   string       `json:"gateway"`
		Answers   bool         `json:"answers_confirmations"`
		Manifest  *manifestDoc `json:"manifest"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Parsed{}, errors.New("publisher: the registration cannot be read")
	}
	p := Parsed{Kind: KindRegistration, Name: KindRegistration + "." + keyToken(r.Publisher)}
	if r.Gateway != "" || r.Answers {
		p.reached = reach{r.Publisher, r.Gateway, r.Answers}
	}
	if r.Manifest == nil { // it says how the publisher is reached, and nothing about its events
		if len(r.Profiles)+len(r.Agents) > 0 || r.FailMode != "" {
			return Parsed{}, errors.New("publisher: profiles, agents and fail_mode need a manifest in the same registration")
		}
		return p, nil
	}
	d, err := r.Manifest.toDeclaration()
	if err != nil {
		return Parsed{}, err
	}
	d.Publisher, d.Agents, d.FailMode = r.Publisher, r.Agents, r.FailMode
	for _, p := range r.Profiles {
		d.AdmissionBound = d.AdmissionBound || p == "admission-bound"
		d.ActionGovernance = d.ActionGovernance || p == "action-governance"
	}
	p.Name, p.declaration = p.Name+"."+d.ID, d
	return p, nil
}

type toolDoc struct {
	Name         string     `json:"name"`
	Category     string     `json:"category"`
	Risk         string     `json:"risk"`
	Irreversible bool       `json:"irreversible"`
	SchemaHashes []string   `json:"schema_hashes"`
	Aliases      []aliasDoc `json:"aliases"`
	Requires     []string   `json:"requires"`
	Mandate      struct {
		Action     string `json:"action"`
		TotalMinor string `json:"total_minor"`
		Currency   string `json:"currency"`
	} `json:"mandate"`
}

// aliasDoc is a name that one publisher uses, or, with publisher "", every publisher.
type aliasDoc struct{ name, publisher string }

// UnmarshalJSON implements json.Unmarshaler.
func (a *aliasDoc) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &a.name)
	}
	var scoped struct{ Name, Publisher string }
	err := json.Unmarshal(b, &scoped)
	a.name, a.publisher = scoped.Name, scoped.Publisher
	return err
}

func readTools(data []byte) (Parsed, error) {
	var c struct {
		Name  string    `json:"name"`
		Tools []toolDoc `json:"tools"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return Parsed{}, errors.New("publisher: the catalogue cannot be read")
	}
	return Parsed{Kind: KindTools, Name: KindTools + "." + c.Name, tools: c.Tools}, nil
}

// Key is the key under which a store keeps a tenant's document.
func Key(tenant, name string) string {
	kind, rest, _ := strings.Cut(name, ".")
	if strings.Contains(rest, "..") || strings.HasPrefix(rest, ".") || strings.HasSuffix(rest, ".") {
		rest = "=" + escapeToken(rest) // a key has no empty token
	}
	return keyToken(tenant) + "." + kind + "." + rest
}

// ParseKey is the reverse of Key.
func ParseKey(key string) (tenant, name string, err error) {
	first, rest, _ := strings.Cut(key, ".")
	kind, tail, _ := strings.Cut(rest, ".")
	tenant, known := unescapeToken(first)
	if code, escaped := strings.CutPrefix(tail, "="); escaped && strings.HasPrefix(code, "=") {
		tail, escaped = unescapeToken(code)
		known = known && escaped
	}
	name = kind + "." + tail
	if !known || tenant == "" || tail == "" || Key(tenant, name) != key {
		return "", "", ErrKey
	}
	return tenant, name, nil
}

var plainToken = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// keyToken encodes any text as one token of a key.
func keyToken(s string) string {
	if plainToken.MatchString(s) {
		return s
	}
	return escapeToken(s)
}

func escapeToken(s string) string { return "=" + base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unescapeToken(s string) (string, bool) {
	code, escaped := strings.CutPrefix(s, "=")
	if !escaped {
		return s, true
	}
	b, err := base64.RawURLEncoding.DecodeString(code)
	return string(b), err == nil
}

// Alias is a name under which a tool is offered by every publisher or, if Publisher is set, by
// one.
type Alias struct{ Name, Publisher, Tool string }

// Aliases lists the aliases that a catalogue defines; nil for other documents.
func (p Parsed) Aliases() (list []Alias) {
	for _, t := range p.tools {
		for _, a := range t.Aliases {
			list = append(list, Alias{a.name, a.publisher, t.Name})
		}
	}
	return list
}

func (r reach) summary() string {
	var says []string
	if r.gateway != "" {
		says = append(says, "is reached through the gateway "+r.gateway)
	}
	if r.answers {
		says = append(says, "answers confirmations")
	}
	if says == nil {
		return ""
	}
	return "publisher " + r.publisher + " " + strings.Join(says, " and ")
}

// Summary describes a document in a few words.
func (p Parsed) Summary() string {
	switch d := p.declaration; {
	case p.Kind == KindTools:
		return fmt.Sprintf("%d tools, %d aliases", len(p.tools), len(p.Aliases()))
	case d == nil:
		return p.reached.summary()
	case d.Publisher == "":
		return "events that say they are from " + d.Source
	default:
		return "publisher " + d.Publisher + " as " + d.Source
	}
}
