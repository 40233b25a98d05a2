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
	r := &reader{file: file}
	p := &Policy{}
	if root := r.document(text); root != nil {
		r.policy(root, p)
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

func (r *reader) policy(n *yaml.Node, p *Policy) {
	version := 0
	r.mapping(n, "a redaction policy", map[string]func(*yaml.Node){
		"version":     r.number("version", 1, 1, &version),
		"name":        r.name("name", &p.name),
		"description": r.text("description", 1000, new(string)),
		"rules": func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode || len(n.Content) > MaxRules {
				r.fail(n, "rules must be a list of at most %d", MaxRules)
				return
			}
			for _, item := range n.Content {
				p.rules = append(p.rules, r.rule(item, p.rules))
			}
		},
	}, "version", "name", "rules")
	if p.name == BuiltinID {
		r.fail(n, "name %q is that of the built-in policy; choose another", p.name)
	}
}

func (r *reader) rule(n *yaml.Node, before []rule) (out rule) {
	var detectors, headers, protocols []string
	action, scope, last, keep := "", "", 0, 0
	r.mapping(n, "a rule", map[string]func(*yaml.Node){
		"name":      r.name("name", &out.name),
		"detectors": r.list("detectors", &detectors, r.detector),
		"paths":     r.list("paths", &out.fields, func(n *yaml.Node) string { return r.path(n, &out) }),
		"headers":   r.list("headers", &headers, r.header),
		"protocols": r.list("protocols", &protocols, r.protocol),
		"values":    r.list("values", &out.values, r.value),
		"action":    r.text("action", 20, &action),
		"scope":     r.text("scope", 20, &scope),
		"last":      r.number("last", 1, redact.MaxLast, &last),
		"keep":      r.number("keep", 1, redact.MaxKeep, &keep),
	}, "name", "action")
	for _, b := range before {
		if b.name == out.name {
			r.fail(n, "there is a rule %q already", out.name)
		}
	}
	out.detectors, out.headers, out.protocols = expand(detectors), lowered(headers), set(protocols)
	a, known := redact.ParseAction(action)
	out.treatment = redact.Treatment{Action: a, Last: last, Keep: keep, InSession: scope == scopeSession}
	if action != "" && !known {
		r.fail(n, "action must be mask, drop, hash, tokenise, truncate or allow, not %.20q", action)
	}
	if scope != "" && (a != redact.Token || scope != scopeSession && scope != scopeTenant) {
		r.fail(n, "scope is for tokenise: %s (the default) or %s", scopeTenant, scopeSession)
	}
	r.sense(n, &out, detectors)
	return out
}

// What equal values have the same token in.
const (
	scopeTenant  = "tenant"
	scopeSession = "session"
)

// sense checks what the keys of a rule mean together.
func (r *reader) sense(n *yaml.Node, out *rule, detectors []string) {
	t := out.treatment
	if len(detectors)+len(out.fields)+len(out.headers) == 0 {
		r.fail(n, "a rule needs detectors, paths or headers: what is it about?")
	}
	if (t.Action == redact.Truncate) != (t.Keep > 0) {
		r.fail(n, "truncate needs keep, and nothing else has it")
	}
	if t.Last > 0 && t.Action != redact.Mask {
		r.fail(n, "last goes with mask only")
	}
	if t.Action != redact.Allow && t.Action != redact.Truncate && t.Last == 0 {
		return
	}
	for _, d := range detectors {
		if d != groupPersonal && !redact.Releasable(d) {
			r.fail(n, "what %s finds may never be released: mask it (without last), drop, hash or tokenise it", d)
		}
		if d == redact.HighEntropy && len(out.fields)+len(out.headers) == 0 {
			r.fail(n, "what %s finds may be released at named places only: add paths or headers", d)
		}
	}
}

// groupPersonal stands for all detectors of personal data.
const groupPersonal = "personal"

func expand(names []string) map[string]bool {
	out := set(names)
	if out[groupPersonal] {
		for _, d := range redact.PersonalDetectors() {
			out[d] = true
		}
	}
	return out
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

func lowered(names []string) map[string]bool {
	for i, n := range names {
		names[i] = strings.ToLower(n)
	}
	return set(names)
}

func (r *reader) detector(n *yaml.Node) string {
	s, ok := r.scalar(n, "a detector", 64)
	if ok && s != groupPersonal && !slices.Contains(redact.Detectors(), s) {
		r.fail(n, "there is no detector %q (countersign redaction detectors lists them)", s)
	}
	return s
}

func (r *reader) path(n *yaml.Node, out *rule) string {
	s, ok := r.scalar(n, "a path", maxLength)
	if at := redact.Segments(s); ok && len(at) > 0 {
		out.paths = append(out.paths, at)
	} else if ok {
		r.fail(n, "path %q names nothing", s)
	}
	return s
}

func (r *reader) header(n *yaml.Node) string {
	s, ok := r.scalar(n, "a header", 64)
	if ok && !headerForm.MatchString(s) {
		r.fail(n, "%q is not the name of a header", s)
	}
	return s
}

func (r *reader) protocol(n *yaml.Node) string {
	s, ok := r.scalar(n, "a protocol", 64)
	if ok && !slices.Contains(subject.Protocols, s) {
		r.fail(n, "protocol must be one of %s", strings.Join(subject.Protocols, ", "))
	}
	return s
}

func (r *reader) value(n *yaml.Node) string {
	s, ok := r.scalar(n, "a value", maxLength)
	if ok && strings.Trim(s, "*") == "" {
		r.fail(n, "value %q matches everything; leave values out instead", s)
	}
	return strings.ToLower(s)
}
