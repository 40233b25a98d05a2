package call

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Reason codes that more than one protocol gives. Codes of undecodable JSON are
// those of package strictjson.
const (
	CodeSchemaInvalid  = "schema_invalid"         // the request does not follow its protocol's schema
	CodeUnknownVersion = "unknown_schema_version" // the request names a version of its protocol that is not supported
	CodeFieldTooLong   = "field_too_long"         // an identifier or a word of a vocabulary has more than 512 bytes
	CodeHeaderConflict = "header_conflict"        // a header of the message contradicts its body
	CodeNoToolCallID   = "tool_call_id_missing"   // changes no verdict: without a tool_call_id the receipt is bound to no single call
	CodeWeakScope      = "weak_scope"             // changes no verdict: without a session the receipt is bound to none
)

// MaxField is the longest identifier or vocabulary word of a request, in bytes.
const MaxField = 512

// maxReported bounds how many violations become reasons: a hostile document
// must not buy a long record.
const maxReported = 16

// maxPath bounds the length of a reason's path in bytes: of a longer one the path
// of a value above it is said.
const maxPath = 256

// AddReason adds a reason to an opinion; the verdict only ever becomes stricter.
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
	if len(path) > maxPath { // half a name could hide a credential from redaction
		path = path[:max(0, strings.LastIndexByte(path[:maxPath+1], '/'))]
	}
	o.Reasons = append(o.Reasons, events.Reason{Evaluator: evaluator, Code: code, Path: path})
}

// stricterVerdict is the stricter of two verdicts, of which "" is none.
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
// *strictjson.Error, or schema_invalid with the path of a field of the wrong
// type.
func (o *Opinion) RefuseUndecodable(evaluator string, err error) {
	var (
		syntax *strictjson.Error
		field  *agenthook.FieldError // one type for all protocols
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

// RefuseViolations refuses for every violation that is more than a warning. codes maps
// keywords and check identifiers of violations to reason codes; the rest is
// schema_invalid. The mapped ones come first: they say more.
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

// BodyOrHeader gives what the body says or, if it says nothing, what a header says.
// Two that contradict each other are one identity too many: the request is
// refused. So is a header that is not UTF-8: records and digests are JSON, in which
// all such texts would become one.
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

// HeaderValues are the values of a header: those under its name to the letter, and, where
// there are any, those under other spellings of it. A reader that folds case sees all of
// them, so they must not contradict each other. A header that is there in another
// spelling alone says nothing.
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

// RefuseLongFields refuses identifiers that are too long and empties them.
func (o *Opinion) RefuseLongFields(evaluator string, fields map[string]*string) {
	for _, path := range sortedPaths(fields) {
		if f := fields[path]; len(*f) > MaxField {
			o.Refuse(evaluator, CodeFieldTooLong, path)
			*f = ""
		}
	}
}

func sortedPaths(fields map[string]*string) []string {
	paths := make([]string, 0, len(fields))
	for p := range fields {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// Merge makes one opinion of two: the stricter verdict, all reasons, the shorter
// of what limits them. Whether a request is malformed or observational is for its
// own protocol to say.
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

// callLevelCodes are the codes of what a protocol notes of a call as such: whoever
// carries a document for another protocol has noted it itself.
var callLevelCodes = map[string]bool{CodeNoToolCallID: true, CodeWeakScope: true}

// MergeCarried takes over another protocol's opinion of a document that stands at a JSON
// pointer of the request; "" is a document that the request does not have. A
// document that is not valid denies; the request is no less valid for it. Paths
// into the document become paths into the request.
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

// requestParts are where the JSONPaths of AUMP lead into the request and not
// into the mandate.
var requestParts = []string{"$.proposed_action", "$.mandate_ref", "$.context"}

// rebasePath makes a path into a document a path into the request that has the
// document at a JSON pointer.
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
