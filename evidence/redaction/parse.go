package redaction

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Limits of a policy.
const (
	MaxBytes  = 64 << 10
	MaxRules  = 64
	maxList   = 64
	maxLength = 256 // characters of a path or a value
)

// ErrPolicy says that a text is not a redaction policy.
var ErrPolicy = errors.New("not a redaction policy")

// Error is one mistake in a policy.
type Error struct {
	File string
	Line int
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// Is makes every Error an ErrPolicy.
func (e *Error) Is(target error) bool { return target == ErrPolicy }

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)
	headerForm = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,64}$`)
)

// Parse reads a policy. All mistakes are reported, each with its line (*Error);
// an unknown key is one. file names the text in them.
func Parse(file string, text []byte) (*Policy, error) {
	r := &policyReader{file: file}
	p := &Policy{}
	if root := r.readDocument(text); root != nil {
		r.readPolicy(root, p)
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	p.id = idOf(p.name, text)
	for i := range p.rules {
		p.rules[i].id = p.id + "/" + p.rules[i].name
	}
	return p, nil
}

func (r *policyReader) readPolicy(n *yaml.Node, p *Policy) {
	version := 0
	r.readMapping(n, "a redaction policy", map[string]func(*yaml.Node){
		"version":     r.numberField("version", 1, 1, &version),
		"name":        r.nameField("name", &p.name),
		"description": r.textField("description", 1000, new(string)),
		"rules": func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode || len(n.Content) > MaxRules {
				r.addError(n, "rules must be a list of at most %d", MaxRules)
				return
			}
			for _, item := range n.Content {
				p.rules = append(p.rules, r.readRule(item, p.rules))
			}
		},
	}, "version", "name", "rules")
	if p.name == BuiltinID {
		r.addError(n, "name %q is that of the built-in policy; choose another", p.name)
	}
}

func (r *policyReader) readRule(n *yaml.Node, before []policyRule) (out policyRule) {
	var detectors, headers, protocols []string
	action, scope, last, keep := "", "", 0, 0
	r.readMapping(n, "a rule", map[string]func(*yaml.Node){
		"name":      r.nameField("name", &out.name),
		"detectors": r.listField("detectors", &detectors, r.readDetector),
		"paths":     r.listField("paths", &out.fields, func(n *yaml.Node) string { return r.readPath(n, &out) }),
		"headers":   r.listField("headers", &headers, r.readHeader),
		"protocols": r.listField("protocols", &protocols, r.readProtocol),
		"values":    r.listField("values", &out.values, r.readValue),
		"action":    r.textField("action", 20, &action),
		"scope":     r.textField("scope", 20, &scope),
		"last":      r.numberField("last", 1, redact.MaxLast, &last),
		"keep":      r.numberField("keep", 1, redact.MaxKeep, &keep),
	}, "name", "action")
	for _, b := range before {
		if b.name == out.name {
			r.addError(n, "there is a rule %q already", out.name)
		}
	}
	out.detectors, out.headers, out.protocols = expandDetectors(detectors), lowerSet(headers), stringSet(protocols)
	a, known := redact.ParseAction(action)
	out.treatment = redact.Treatment{Action: a, KeepLast: last, KeepFirst: keep, InSession: scope == scopeSession}
	if action != "" && !known {
		r.addError(n, "action must be mask, drop, hash, tokenise, truncate or allow, not %.20q", action)
	}
	if scope != "" && (a != redact.Token || scope != scopeSession && scope != scopeTenant) {
		r.addError(n, "scope is for tokenise: %s (the default) or %s", scopeTenant, scopeSession)
	}
	r.checkRule(n, &out, detectors)
	return out
}

// What equal values have the same token in.
const (
	scopeTenant  = "tenant"
	scopeSession = "session"
)

// checkRule checks what the keys of a rule mean together.
func (r *policyReader) checkRule(n *yaml.Node, out *policyRule, detectors []string) {
	t := out.treatment
	if len(detectors)+len(out.fields)+len(out.headers) == 0 {
		r.addError(n, "a rule needs detectors, paths or headers: what is it about?")
	}
	if (t.Action == redact.Truncate) != (t.KeepFirst > 0) {
		r.addError(n, "truncate needs keep, and nothing else has it")
	}
	if t.KeepLast > 0 && t.Action != redact.Mask {
		r.addError(n, "last goes with mask only")
	}
	if t.Action != redact.Allow && t.Action != redact.Truncate && t.KeepLast == 0 {
		return
	}
	for _, d := range detectors {
		if d != groupPersonal && !redact.Releasable(d) {
			r.addError(n, "what %s finds may never be released: mask it (without last), drop, hash or tokenise it", d)
		}
		if d == redact.HighEntropy && len(out.fields)+len(out.headers) == 0 {
			r.addError(n, "what %s finds may be released at named places only: add paths or headers", d)
		}
	}
}

// groupPersonal stands for all detectors of personal data.
const groupPersonal = "personal"

func expandDetectors(names []string) map[string]bool {
	out := stringSet(names)
	if out[groupPersonal] {
		for _, d := range redact.PersonalDetectors() {
			out[d] = true
		}
	}
	return out
}

func stringSet(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

func lowerSet(names []string) map[string]bool {
	for i, n := range names {
		names[i] = strings.ToLower(n)
	}
	return stringSet(names)
}

func (r *policyReader) readDetector(n *yaml.Node) string {
	s, ok := r.readScalar(n, "a detector", 64)
	if ok && s != groupPersonal && !slices.Contains(redact.Detectors(), s) {
		r.addError(n, "there is no detector %q (countersign redaction detectors lists them)", s)
	}
	return s
}

func (r *policyReader) readPath(n *yaml.Node, out *policyRule) string {
	s, ok := r.readScalar(n, "a path", maxLength)
	if at := redact.PathSegments(s); ok && len(at) > 0 {
		out.paths = append(out.paths, at)
	} else if ok {
		r.addError(n, "path %q names nothing", s)
	}
	return s
}

func (r *policyReader) readHeader(n *yaml.Node) string {
	s, ok := r.readScalar(n, "a header", 64)
	if ok && !headerForm.MatchString(s) {
		r.addError(n, "%q is not the name of a header", s)
	}
	return s
}

func (r *policyReader) readProtocol(n *yaml.Node) string {
	s, ok := r.readScalar(n, "a protocol", 64)
	if ok && !slices.Contains(subject.Protocols, s) {
		r.addError(n, "protocol must be one of %s", strings.Join(subject.Protocols, ", "))
	}
	return s
}

func (r *policyReader) readValue(n *yaml.Node) string {
	s, ok := r.readScalar(n, "a value", maxLength)
	if ok && strings.Trim(s, "*") == "" {
		r.addError(n, "value %q matches everything; leave values out instead", s)
	}
	return strings.ToLower(s)
}
