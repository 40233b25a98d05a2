package aump

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Request is an action evaluation request.
type Request struct {
	Version string // aump.version
	Type    string // aump.type
	Ref     Ref
	Action  Action
	Context Context

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that DecodeRequest was given, not a copy
}

// Action is an agent's proposed action.
type Action struct {
	Type            string
	Summary         string
	Counterparty    *string
	Amount          *Amount
	Disclosures     []DisclosedField
	DownstreamRefs  []DownstreamRef
	Commitment      bool
	Attributes      map[string]any // nil if absent
	Terms           map[string]any // nil if absent
	DecisionFactors []string       // nil if absent

	Tree map[string]any // nil if absent
}

// Amount is money, in minor units.
type Amount struct {
	Currency string
	Total    int64
}

// DisclosedField is a field that an action discloses to the counterparty.
type DisclosedField struct{ Field, Content string }

// Context describes the circumstances. All of it is the agent's claim.
type Context struct {
	Conditions        []string
	Confidence        *float64
	TrustedUIApproved bool
	Approval          any // of any type; nil if absent
}

// DecodeRequest reads one request. Its errors are those of DecodeMandate.
func DecodeRequest(raw []byte, lim strictjson.Limits) (*Request, error) {
	r := &Request{Raw: raw}
	doc, env, err := decodeDocument(raw, lim, r.readFields)
	if !doc.Exists() {
		return nil, err
	}
	r.Doc, r.Version, r.Type = doc, env.version, env.kind
	return r, err
}

// Tree is the whole document, as strictjson.Parse gives it. Each call makes it anew.
func (r *Request) Tree() map[string]any { return r.Doc.ObjectTree() }

func (r *Request) readFields(o field.Object) {
	r.Ref = readChild(o, "mandate_ref", readRef)
	r.Action = readChild(o, "proposed_action", readAction)
	r.Context = readChild(o, "context", readContext)
}

func readAction(o field.Object) Action {
	return Action{
		Type: o.Text("type"), Summary: o.Text("summary"), Counterparty: o.TextPtr("counterparty"),
		Amount:         readOptional(o, "amount", readAmount),
		Disclosures:    readEach(o, "disclosures", readDisclosed),
		DownstreamRefs: readDownstream(o),
		Commitment:     isTrue(o.Bool("commitment")),
		Attributes:     o.Map("attributes"), Terms: o.Map("terms"),
		DecisionFactors: o.Texts("decision_factors"),
		Tree:            o.Value().ObjectTree(),
	}
}

func readAmount(o field.Object) Amount {
	return Amount{Currency: o.Text("currency"), Total: intOrZero(o.Int("total_minor"))}
}

func readDisclosed(o field.Object) DisclosedField {
	return DisclosedField{Field: o.Text("field"), Content: o.Text("content")}
}

func readContext(o field.Object) Context {
	return Context{
		Conditions: o.Texts("conditions"), Confidence: o.Number("confidence"),
		TrustedUIApproved: isTrue(o.Bool("trusted_ui_approved")), Approval: o.Get("approval").Tree(),
	}
}

// Response is an action evaluation response.
type Response struct {
	AUMP               Header              `json:"aump"`
	Ref                ResponseRef         `json:"mandate_ref"`
	Decision           string              `json:"decision"`
	ReasonCodes        []string            `json:"reason_codes"`
	Paths              []string            `json:"paths"`
	Summary            string              `json:"summary"`
	RequiredEscalation *RequiredEscalation `json:"required_escalation,omitempty"`
}

// Header is the head of a written document.
type Header struct {
	Version string `json:"version"`
	Type    string `json:"type"`
}

// ResponseRef names the mandate that decided, with all three members.
type ResponseRef struct {
	ID      string `json:"id"`
	Hash    string `json:"hash"`
	Version string `json:"version"`
}

// RequiredEscalation states whom to ask, what, and until when.
type RequiredEscalation struct {
	Channel   string `json:"channel,omitempty"`
	Prompt    string `json:"prompt,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

// Encode writes the response. Lists that are nil are written as empty ones.
func (r Response) Encode() ([]byte, error) {
	r.AUMP = Header{Version: Version, Type: TypeResponse}
	if r.ReasonCodes == nil {
		r.ReasonCodes = []string{}
	}
	if r.Paths == nil {
		r.Paths = []string{}
	}
	return json.Marshal(r)
}
