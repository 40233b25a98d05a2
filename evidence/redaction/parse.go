package redaction

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictyaml"
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
type Error = strictyaml.Error

// policyError is an ErrPolicy with the text of its mistakes.
type policyError struct{ error }

func (policyError) Is(target error) bool { return target == ErrPolicy }

func (e policyError) Unwrap() error { return e.error }

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)
	headerForm = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,64}$`)
)

// Parse parses a policy. It reports all mistakes, each as an *Error with its line; an unknown key
// is a mistake. file is the name of the text in them.
func Parse(file string, text []byte) (*Policy, error) {
	r := &policyReader{strictyaml.Reader{File: file}}
	p := &Policy{}
	if root := r.Document(text, MaxBytes, "the file is empty"); root != nil {
		r.readPolicy(root, p)
	}
	if len(r.Errs) > 0 {
		return nil, policyError{errors.Join(r.Errs...)}
	}
	p.id = idOf(p.name, text)
	for i := range p.rules {
		p.rules[i].id = p.id + "/" + p.rules[i].name
	}
	return p, nil
}

// policyReader reads one policy.
type policyReader struct{ strictyaml.Reader }

func (r *policyReader) readPolicy(n *yaml.Node, p *Policy) {
	r.Mapping(n, "a redaction policy", strictyaml.Fields{
		"version":     r.Int("version", 1, 1, new(int64)),
		"name":        r.Form("name", 40, nameForm, &p.name),
		"description": r.Text("description", 1000, new(string)),
		"rules": func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode || len(n.Content) > MaxRules {
				r.Fail(n, "rules must be a list of at most %d", MaxRules)
				return
			}
			for _, item := range n.Content {
				p.rules = append(p.rules, r.readRule(item, p.rules))
			}
		},
	}, "version", "name", "rules")
	if p.name == BuiltinID {
		r.Fail(n, "name %q is that of the built-in policy; choose another", p.name)
	}
}

func (r *policyReader) readRule(n *yaml.Node, before []policyRule) (out policyRule) {
	var detectors, headers, protocols []string
	var action, scope string
	var last, keep int64
	r.Mapping(n, "a rule", strictyaml.Fields{
		"name":      r.Form("name", 40, nameForm, &out.name),
		"detectors": r.listField("detectors", &detectors, r.checkDetector),
		"paths":     r.listField("paths", &out.fields, func(n *yaml.Node) { r.readPath(n, &out) }),
		"headers":   r.listField("headers", &headers, r.checkHeader),
		"protocols": r.listField("protocols", &protocols, r.checkProtocol),
		"values":    r.listField("values", &out.values, r.checkValue),
		"action":    r.Text("action", 20, &action),
		"scope":     r.Text("scope", 20, &scope),
		"last":      r.Int("last", 1, redact.MaxLast, &last),
		"keep":      r.Int("keep", 1, redact.MaxKeep, &keep),
	}, "name", "action")
	for _, b := range before {
		if b.name == out.name {
			r.Fail(n, "there is a rule %q already", out.name)
		}
	}
	out.detectors, out.headers, out.protocols, out.values = expandDetectors(detectors), stringSet(lower(headers)), stringSet(protocols), lower(out.values)
	a, known := redact.ParseAction(action)
	out.treatment = redact.Treatment{Action: a, KeepLast: int(last), KeepFirst: int(keep), InSession: scope == scopeSession}
	if action != "" && !known {
		r.Fail(n, "action must be mask, drop, hash, tokenise, truncate or allow, not %.20q", action)
	}
	if scope != "" && (a != redact.Token || scope != scopeSession && scope != scopeTenant) {
		r.Fail(n, "scope is for tokenise: %s (the default) or %s", scopeTenant, scopeSession)
	}
	r.checkRule(n, &out, detectors)
	return out
}

// Scopes of a token: equal values have the same token within a tenant, or within a session.
const (
	scopeTenant  = "tenant"
	scopeSession = "session"
)

// checkRule checks the combination of the keys of a rule.
func (r *policyReader) checkRule(n *yaml.Node, out *policyRule, detectors []string) {
	t := out.treatment
	if len(detectors)+len(out.fields)+len(out.headers) == 0 {
		r.Fail(n, "a rule needs detectors, paths or headers: what is it about?")
	}
	if (t.Action == redact.Truncate) != (t.KeepFirst > 0) {
		r.Fail(n, "truncate needs keep, and nothing else has it")
	}
	if t.KeepLast > 0 && t.Action != redact.Mask {
		r.Fail(n, "last goes with mask only")
	}
	if t.Action != redact.Allow && t.Action != redact.Truncate && t.KeepLast == 0 {
		return
	}
	for _, d := range detectors {
		if d != groupPersonal && !redact.Releasable(d) {
			r.Fail(n, "what %s finds may never be released: mask it (without last), drop, hash or tokenise it", d)
		}
		if d == redact.HighEntropy && len(out.fields)+len(out.headers) == 0 {
			r.Fail(n, "what %s finds may be released at named places only: add paths or headers", d)
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

func lower(list []string) []string {
	for i, s := range list {
		list[i] = strings.ToLower(s)
	}
	return list
}

// listField reads a list of texts. check sees each that is one.
func (r *policyReader) listField(what string, into *[]string, check strictyaml.Field) strictyaml.Field {
	return r.List(what, maxList, func(n *yaml.Node) {
		s := ""
		if r.Read(n, r.Text("an entry of "+what, maxLength, &s)) {
			check(n)
		}
		*into = append(*into, s)
	})
}

func (r *policyReader) checkDetector(n *yaml.Node) {
	if n.Value != groupPersonal && !slices.Contains(redact.Detectors(), n.Value) {
		r.Fail(n, "there is no detector %q (countersign redaction detectors lists them)", n.Value)
	}
}

func (r *policyReader) readPath(n *yaml.Node, out *policyRule) {
	if at := redact.PathSegments(n.Value); len(at) > 0 {
		out.paths = append(out.paths, at)
	} else {
		r.Fail(n, "path %q names nothing", n.Value)
	}
}

func (r *policyReader) checkHeader(n *yaml.Node) {
	if !headerForm.MatchString(n.Value) {
		r.Fail(n, "%q is not the name of a header", n.Value)
	}
}

func (r *policyReader) checkProtocol(n *yaml.Node) {
	if !slices.Contains(subject.Protocols, n.Value) {
		r.Fail(n, "protocol must be one of %s", strings.Join(subject.Protocols, ", "))
	}
}

func (r *policyReader) checkValue(n *yaml.Node) {
	if strings.Trim(n.Value, "*") == "" {
		r.Fail(n, "value %q matches everything; leave values out instead", n.Value)
	}
}
