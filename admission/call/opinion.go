package call

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Reason codes of more than one protocol. Codes of undecodable JSON are those of package
// strictjson.
const (
	CodeSchemaInvalid  = "schema_invalid"         // the request does not follow its protocol's schema
	CodeUnknownVersion = "unknown_schema_version" // the request names a version of its protocol that is not supported
	CodeFieldTooLong   = "field_too_long"         // an identifier or a word of a vocabulary has more than 512 bytes
	CodeHeaderConflict = "header_conflict"        // a header of the message contradicts its body
	CodeNoToolCallID   = "tool_call_id_missing"   // without a tool_call_id the receipt is bound to no single call; denied only if a registration demands admission-bound
	CodeWeakScope      = "weak_scope"             // changes no verdict: without a session the receipt is bound to none
)

// MaxField is the longest identifier or vocabulary word of a request, in bytes.
const MaxField = 512

// maxReported bounds how many violations become reasons, so that a hostile document cannot
// cause a long record.
const maxReported = 16

// maxPath bounds the length of a reason's path in bytes: a longer path is cut to that of a
// parent value.
const maxPath = 256

// AddReason adds a reason to an opinion; the verdict can only become stricter.
func (o *Opinion) AddReason(verdict events.Verdict, evaluator, code, path string) {
	if verdict.Strictness() > o.Verdict.Strictness() {
		o.Verdict, o.DecidingCode = verdict, code
	}
	switch {
	case verdict == events.Ask && !slices.Contains(o.AskCodes, code):
		o.AskCodes = append(o.AskCodes, code)
	case verdict.Strictness() > events.Ask.Strictness():
		o.Unapprovable = stricterVerdict(o.Unapprovable, verdict)
	}
	if len(path) > maxPath { // part of a name could hide a credential from redaction
		path = path[:max(0, strings.LastIndexByte(path[:maxPath+1], '/'))]
	}
	o.Reasons = append(o.Reasons, events.Reason{Evaluator: evaluator, Code: code, Path: path})
}

// stricterVerdict returns the stricter of two verdicts; "" is none.
func stricterVerdict(a, b events.Verdict) events.Verdict {
	if a == "" || b != "" && b.Strictness() > a.Strictness() {
		return b
	}
	return a
}

// Refuse adds a reason why the request is not valid for its protocol.
func (o *Opinion) Refuse(evaluator, code, path string) {
	o.AddReason(events.Deny, evaluator, code, path)
	o.Malformed, o.Verdict = true, events.Deny
}

// RefuseUndecodable adds the reason for an error of a protocol's Decode: the code of a
// *strictjson.Error, or schema_invalid with the path of a field of the wrong type.
func (o *Opinion) RefuseUndecodable(evaluator string, err error) {
	var (
		syntax *strictjson.Error
		field  *events.FieldError
	)
	switch {
	case errors.As(err, &syntax):
		o.Refuse(evaluator, string(syntax.Code), syntax.Path)
		o.Unread = true
	case errors.As(err, &field):
		o.Refuse(evaluator, CodeSchemaInvalid, field.Path)
	default:
		o.Refuse(evaluator, CodeSchemaInvalid, "")
	}
}

// RefuseViolations adds a refusal for every violation that is more than a warning. codes maps
// keywords and check identifiers of violations to reason codes; the rest is schema_invalid. The
// mapped ones come first because they are more specific.
func (o *Opinion) RefuseViolations(evaluator string, vs []schemas.Violation, codes map[string]string) {
	code := func(v schemas.Violation) string {
		for _, k := range []string{v.Keyword, v.Check} {
			if c, ok := codes[k]; ok {
				return c
			}
		}
		return CodeSchemaInvalid
	}
	vs = slices.DeleteFunc(slices.Clone(vs), func(v schemas.Violation) bool { return v.Level == schemas.LevelWarning })
	for _, mapped := range []bool{true, false} {
		for _, v := range vs {
			c := code(v)
			said := slices.ContainsFunc(o.Reasons, func(r events.Reason) bool { return r.Code == c && r.Path == v.Path })
			if (c != CodeSchemaInvalid) == mapped && !said && len(o.Reasons) < maxReported {
				o.Refuse(evaluator, c, v.Path)
			}
		}
	}
}

// BodyOrHeader returns the body's value or, if it has none, the header's. Contradicting values
// are two identities, so the request is refused. So is a header that is not UTF-8: records and
// digests are JSON, in which all such texts would become one.
func (o *Opinion) BodyOrHeader(evaluator string, r Request, header, body string) string {
	values := HeaderValues(r.Header, header)
	if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
		o.Refuse(evaluator, string(strictjson.InvalidUTF8), "")
		return body
	}
	if body != "" {
		values = append([]string{body}, values...)
	}
	if len(values) == 0 {
		return ""
	}
	if slices.ContainsFunc(values, func(v string) bool { return v != values[0] }) {
		o.Refuse(evaluator, CodeHeaderConflict, "")
	}
	return values[0]
}

// HeaderValues are the values of a header: those under its exact name and, if there are any,
// those under other spellings of it. A reader that folds case sees all of them, so they must
// not contradict each other. A header that is only there in another spelling is ignored.
func HeaderValues(header map[string][]string, name string) []string {
	values := header[name]
	if len(values) == 0 {
		return nil
	}
	var others []string
	for other := range header {
		if other != name && strings.EqualFold(other, name) {
			others = append(others, other)
		}
	}
	slices.Sort(others)
	for _, other := range others {
		values = append(slices.Clip(values), header[other]...)
	}
	return values
}

// RefuseLongFields refuses identifiers that are too long and clears them.
func (o *Opinion) RefuseLongFields(evaluator string, fields map[string]*string) {
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if f := fields[path]; len(*f) > MaxField {
			o.Refuse(evaluator, CodeFieldTooLong, path)
			*f = ""
		}
	}
}

// Merge merges another opinion into o: the stricter verdict, all reasons, the shorter limits.
// Malformed and Observational stay those of the request's own protocol.
func (o *Opinion) Merge(other Opinion) {
	if other.Verdict.Strictness() > o.Verdict.Strictness() {
		o.Verdict, o.DecidingCode = other.Verdict, other.DecidingCode
	}
	o.Unapprovable = stricterVerdict(o.Unapprovable, other.Unapprovable)
	for _, code := range other.AskCodes {
		if !slices.Contains(o.AskCodes, code) {
			o.AskCodes = append(slices.Clip(o.AskCodes), code)
		}
	}
	if len(other.Reasons) > 0 {
		o.Reasons = slices.Concat(o.Reasons, other.Reasons)
	}
	if o.NotAfter.IsZero() || !other.NotAfter.IsZero() && other.NotAfter.Before(o.NotAfter) {
		o.NotAfter = other.NotAfter
	}
	if o.ApprovalWindow == 0 || other.ApprovalWindow != 0 && other.ApprovalWindow < o.ApprovalWindow {
		o.ApprovalWindow = other.ApprovalWindow
	}
}

// callLevelCodes are the codes of reasons about a call as such: the protocol that carries a
// document for another protocol has added them itself.
var callLevelCodes = map[string]bool{CodeNoToolCallID: true, CodeWeakScope: true}

// MergeCarried merges another protocol's opinion of a document at a JSON pointer of the
// request; "" is a document that the request does not have. An invalid document denies, but
// does not make the request malformed. Paths into the document become paths into the request.
func (o *Opinion) MergeCarried(inner Opinion, at string) {
	adopted := Opinion{Verdict: inner.Verdict, DecidingCode: inner.DecidingCode, NotAfter: inner.NotAfter, ApprovalWindow: inner.ApprovalWindow,
		Unapprovable: inner.Unapprovable, AskCodes: inner.AskCodes}
	for _, r := range inner.Reasons {
		if !callLevelCodes[r.Code] {
			adopted.AddReason(events.Allow, r.Evaluator, r.Code, rebasePath(r.Path, at))
		}
	}
	o.Merge(adopted)
}

// requestParts are the roots of AUMP's JSONPaths that lead into the request and not into the
// mandate.
var requestParts = []string{"$.proposed_action", "$.mandate_ref", "$.context"}

// rebasePath turns a path into a document at a JSON pointer of the request into a path into the
// request.
func rebasePath(path, at string) string {
	if at == "" {
		return path
	}
	for _, part := range requestParts {
		if strings.HasPrefix(path, part) {
			return "$" + strings.ReplaceAll(at, "/", ".") + path[1:]
		}
	}
	if strings.HasPrefix(path, "$") {
		return path
	}
	return at + path
}
