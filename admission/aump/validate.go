package aump

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Kinds of documents that Validate accepts.
const (
	KindMandate      = "mandate"
	KindProfile      = "profile"
	KindEvidence     = "evidence"
	KindMCPMeta      = "mcp_meta"
	KindMCPTool      = "mcp_tool"
	KindA2AExtension = "a2a_extension"
	KindA2AMessage   = "a2a_message"
	KindUCPReference = "ucp_reference"
)

// kinds lists the kinds.
var kinds = []string{KindMandate, KindProfile, KindEvidence, KindMCPMeta, KindMCPTool, KindA2AExtension, KindA2AMessage, KindUCPReference}

// Errors of Validate for wrong arguments.
var (
	ErrKind       = errors.New("unknown kind of document; it must be one of " + strings.Join(kinds, ", "))
	ErrNoMandate  = errors.New("a mandate says nothing about this kind of document; leave it out")
	ErrBadMandate = errors.New("the mandate to compare with cannot be read")
)

// ProfileSchema is the name of the schema that profiles must satisfy.
const ProfileSchema = "aump/profile"

// Report is the result of Validate. No list is nil.
type Report struct {
	Valid       bool     `json:"valid"`
	ReasonCodes []string `json:"reason_codes"` // each once
	Errors      []string `json:"errors"`       // for people; no values of the document
}

func (r *Report) addError(code, message string) {
	if !slices.Contains(r.ReasonCodes, code) {
		r.ReasonCodes = append(r.ReasonCodes, code)
	}
	if len(r.Errors) < schemas.MaxViolations {
		r.Errors = append(r.Errors, message)
	}
}

func (r *Report) addViolations(what string, vs []schemas.Violation) {
	for _, v := range vs {
		r.addError(CodeSchemaInvalid, what+v.String())
	}
}

func (r *Report) addFindings(found []Finding) {
	for _, f := range found {
		r.addError(f.Code, f.Code+" at "+f.Path)
	}
}

// Validate checks one document. against is the mandate to compare evidence or a reference with;
// nil omits the comparison. now is the time at which a mandate must be usable; other kinds
// ignore it.
//
// The error reports wrong arguments. Defects of doc are in the report.
func Validate(kind string, doc, against []byte, now time.Time) (Report, error) {
	r := Report{ReasonCodes: []string{}, Errors: []string{}}
	check, known := kindChecks[kind]
	if !known {
		return r, ErrKind
	}
	var m *mandate.Mandate
	if against != nil {
		if !mandateKinds[kind] {
			return r, ErrNoMandate
		}
		var err error
		if m, err = mandate.Compile(against, nil); err != nil {
			return r, errors.Join(ErrBadMandate, err)
		}
		r.addViolations("the mandate to compare with: ", m.Violations)
	}
	tree, err := strictjson.ParseObject(doc, strictjson.DefaultLimits)
	if err != nil {
		r.addError(CodeSchemaInvalid, err.Error())
	} else {
		check(&r, validationInput{raw: doc, tree: tree, mandate: m, now: now})
	}
	r.Valid = len(r.ReasonCodes) == 0
	return r, nil
}

// validationInput is the input of the checks.
type validationInput struct {
	raw     []byte
	tree    map[string]any
	mandate *mandate.Mandate
	now     time.Time
}

var kindChecks = map[string]func(*Report, validationInput){
	KindMandate:      validateMandate,
	KindProfile:      validateProfile,
	KindEvidence:     validateEvidence,
	KindMCPMeta:      bridgeCheck(mcpMeta),
	KindMCPTool:      bridgeCheck(mcpTool),
	KindA2AExtension: bridgeCheck(a2aExtension),
	KindA2AMessage:   bridgeCheck(a2aMessage),
	KindUCPReference: bridgeCheck(ucpReference),
}

// mandateKinds are the kinds that refer to a mandate.
var mandateKinds = map[string]bool{KindEvidence: true, KindMCPMeta: true, KindA2AMessage: true, KindUCPReference: true}

func validateMandate(r *Report, d validationInput) {
	m, err := wire.DecodeMandate(d.raw, strictjson.DefaultLimits)
	if vs := mandate.ValidateDocument(m, err); vs != nil {
		r.addViolations("", vs)
		return
	}
	r.addFindings(stateFindings(&mandate.Mandate{Mandate: m}, d.now))
}

func validateProfile(r *Report, d validationInput) {
	p, err := wire.DecodeProfile(d.raw, strictjson.DefaultLimits)
	vs := documentViolations(ProfileSchema, p.Doc, p.Version, err)
	if vs == nil && (wire.KeySet{}).Add(p) != nil {
		vs = []schemas.Violation{{Path: "/signing_keys", Message: "must not have two keys with one kid"}}
	}
	r.addViolations("", vs)
}

func validateEvidence(r *Report, d validationInput) {
	e, err := wire.DecodeEvidence(d.raw, strictjson.DefaultLimits)
	vs := documentViolations(EvidenceSchema, e.Doc, e.Version, err)
	if vs == nil {
		vs = unreadableTime("/created_at", e.CreatedAt)
	}
	if vs != nil {
		r.addViolations("", vs)
		return
	}
	r.addFindings(checkEvidence(d.mandate, e))
}

func bridgeCheck(check func(map[string]any) bridge) func(*Report, validationInput) {
	return func(r *Report, d validationInput) {
		b := check(d.tree)
		for _, f := range b.Findings {
			r.addError(f.Code, f.Text)
		}
		if m := d.mandate; m != nil && (b.Ref.ID != m.ID || !sameHash(b.Ref.Hash, m.Hash)) {
			r.addError(CodeHashMismatch, "the reference does not name the mandate to compare with")
		}
	}
}
