package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// Parse reads a table. All mistakes are reported at once, each as an *Error.
func Parse(file string, data []byte) (t Table, err error) {
	t.File = file
	r := &reader{file: file}
	root, err := r.readDocument(data)
	if err != nil {
		return t, err
	}
	defaults := Case{}
	var cases []*yaml.Node
	r.readMapping(root, "the table", map[string]fieldReader{
		"policies": r.textField("policies", &t.Policies),
		"ordinary": func(n *yaml.Node) { r.readFlag(n, &t.Ordinary) },
		"defaults": func(n *yaml.Node) { r.readMapping(n, "defaults", r.settingFields(&defaults)) },
		"cases":    r.listField("cases", MaxCases, func(n *yaml.Node) { cases = append(cases, n) }),
	}, "cases")
	names := map[string]bool{}
	for _, n := range cases { // defaults may follow the cases
		c := r.readCase(n, defaults)
		if names[c.Name] {
			r.fail(n, "two cases are named %q", c.Name)
		}
		names[c.Name] = true
		t.Cases = append(t.Cases, c)
	}
	if err := errors.Join(r.errs...); err != nil {
		return Table{}, err
	}
	if len(t.Cases) == 0 {
		return Table{}, &Error{file, max(root.Line, 1), ErrNoCases.Error()}
	}
	return t, nil
}

// reader walks the nodes and collects every mistake.
type reader struct {
	file  string
	errs  []error
	nodes int
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, &Error{r.file, max(n.Line, 1), fmt.Sprintf(format, args...)})
}

// readDocument decodes the one YAML document of a file.
func (r *reader) readDocument(data []byte) (root *yaml.Node, err error) {
	nodes, err := strictyaml.Documents(data, MaxTable, 1)
	var bad *strictyaml.Error
	switch {
	case errors.As(err, &bad):
		return nil, &Error{r.file, bad.Line, bad.Msg}
	case err != nil:
		return nil, err
	case len(nodes) == 0 || len(nodes[0].Content) != 1:
		return nil, &Error{r.file, 1, ErrNoCases.Error()}
	}
	return nodes[0].Content[0], nil
}

// fieldReader reads one key of a mapping.
type fieldReader func(*yaml.Node)

// readMapping reads an object: no unknown key, no key twice, all required keys.
func (r *reader) readMapping(n *yaml.Node, what string, fields map[string]fieldReader, required ...string) {
	strictyaml.Mapping(n, what, fields, required, r.fail)
}

func (r *reader) textField(what string, into *string) fieldReader {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || strings.TrimSpace(n.Value) == "" {
			r.fail(n, "%s must be a text that is not empty; put it in quotes", what)
			return
		}
		*into = n.Value
	}
}

func (r *reader) listField(what string, limit int, item func(*yaml.Node)) fieldReader {
	return func(n *yaml.Node) {
		switch {
		case n.Kind != yaml.SequenceNode:
			r.fail(n, "%s must be a list", what)
		case len(n.Content) > limit:
			r.fail(n, "%s has more than %d entries", what, limit)
		default:
			for _, c := range n.Content {
				item(c)
			}
		}
	}
}

func (r *reader) textsField(what string, into *[]string) fieldReader {
	return func(n *yaml.Node) {
		*into = []string{}
		r.listField(what, 1_000, func(n *yaml.Node) {
			var s string
			r.textField("an entry of "+what, &s)(n)
			*into = append(*into, s)
		})(n)
	}
}

// settingFields are the settings of a case, which defaults can set too.
func (r *reader) settingFields(c *Case) map[string]fieldReader {
	return map[string]fieldReader{
		"protocol":     r.oneOfField("protocol", admission.Protocols(), &c.Protocol),
		"tenant":       r.textField("tenant", &c.Tenant),
		"source":       r.textField("source", &c.Source),
		"headers":      func(n *yaml.Node) { r.readHeaders(n, c) },
		"now":          func(n *yaml.Node) { r.readTime(n, c) },
		"mandates":     r.textField("mandates", &c.Mandates),
		"strict":       func(n *yaml.Node) { r.readFlag(n, &c.Strict) },
		"profile":      r.oneOfField("profile", []string{string(admission.ProfileHardened), string(admission.ProfileReferenceSDK)}, &c.Profile),
		"counted":      func(n *yaml.Node) { r.readCount(n, &c.Counted) },
		"confirmation": func(n *yaml.Node) { r.oneOfField("confirmation", confirmationStatuses, (*string)(&c.Confirmation))(n) },
	}
}

var confirmationStatuses = []string{string(call.ConfirmationPending), string(call.ConfirmationAccepted), string(call.ConfirmationDeclined),
	string(call.ConfirmationExpired), string(call.ConfirmationUsed), string(call.ConfirmationWithdrawn), string(call.ConfirmationAmbiguous)}

func (r *reader) oneOfField(what string, words []string, into *string) fieldReader {
	return func(n *yaml.Node) {
		var s string
		before := len(r.errs)
		if r.textField(what, &s)(n); len(r.errs) == before && !slices.Contains(words, s) {
			r.fail(n, "%s %.40q is none of %s", what, s, strings.Join(words, ", "))
		}
		*into = s
	}
}

func (r *reader) readFlag(n *yaml.Node, into *bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(into) != nil {
		r.fail(n, "it must be true or false")
	}
}

func (r *reader) readCount(n *yaml.Node, into *int64) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(into) != nil || *into < 0 {
		r.fail(n, "counted must be a whole number from 0 on")
	}
}

func (r *reader) readTime(n *yaml.Node, c *Case) {
	t, err := events.ParseTime(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		r.fail(n, "now must be an RFC 3339 time such as 2026-11-20T09:00:00Z")
		return
	}
	c.Now = t
}

// readHeaders adds headers to those of the defaults; one of the same name replaces the default.
func (r *reader) readHeaders(n *yaml.Node, c *Case) {
	own := map[string][]string{}
	for k, v := range c.Headers {
		own[k] = v
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "headers must be a mapping of names to texts")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, v := n.Content[i].Value, n.Content[i+1]
		var list []string
		if v.Kind == yaml.SequenceNode {
			r.textsField("header "+name, &list)(v)
		} else {
			list = make([]string, 1)
			r.textField("header "+name, &list[0])(v)
		}
		own[name] = list
	}
	c.Headers = own
}

func (r *reader) readCase(n *yaml.Node, defaults Case) Case {
	c := defaults
	c.Line = max(n.Line, 1)
	fields := r.settingFields(&c)
	fields["name"] = r.textField("name", &c.Name)
	fields["file"] = r.textField("file", &c.RequestFile)
	fields["raw"] = func(n *yaml.Node) {
		var s string
		r.textField("raw", &s)(n)
		c.Request = []byte(s)
	}
	fields["request"] = func(n *yaml.Node) { c.Request = r.readRequest(n) }
	fields["change"] = func(n *yaml.Node) { r.readChanges(n, &c) }
	fields["expect"] = func(n *yaml.Node) { r.readExpect(n, &c.Expect) }
	r.readMapping(n, "a case", fields, "name", "expect")
	given := 0
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if slices.Contains([]string{"request", "file", "raw"}, n.Content[i].Value) {
			given++
		}
	}
	switch {
	case given != 1:
		r.fail(n, "case %q needs exactly one of request, file and raw", c.Name)
	case c.Protocol == "":
		r.fail(n, "case %q names no protocol, and there is none in defaults", c.Name)
	}
	return c
}

func (r *reader) readExpect(n *yaml.Node, e *Expect) {
	words := make([]string, len(events.Verdicts))
	for i, v := range events.Verdicts {
		words[i] = string(v)
	}
	r.readMapping(n, "expect", map[string]fieldReader{
		"verdict": r.oneOfField("verdict", words, (*string)(&e.Verdict)),
		"reasons": r.textsField("reasons", &e.Reasons),
		"not":     r.textsField("not", &e.Not),
		"rules":   r.textsField("rules", &e.Rules),
		"policy":  r.textField("policy", &e.Policy),
	}, "verdict")
}

func (r *reader) readRequest(n *yaml.Node) []byte {
	v, ok := r.readValue(n, 0)
	if !ok {
		return nil
	}
	b, err := strictjson.Canonical(v)
	if err != nil {
		r.fail(n, "the request cannot be written as JSON")
	}
	return b
}

func (r *reader) readChanges(n *yaml.Node, c *Case) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "change must be a mapping of JSON pointers to values")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		v, ok := r.readValue(n.Content[i+1], 0)
		switch {
		case !strings.HasPrefix(k.Value, "/"):
			r.fail(k, "%.60q is not a JSON pointer such as /tool_input/to", k.Value)
		case ok:
			c.Change = append(c.Change, Change{Path: k.Value, Value: v, Line: k.Line})
		}
	}
}
