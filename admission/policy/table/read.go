package table

import (
	"errors"
	"math"
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
	r := &reader{Reader: strictyaml.Reader{File: file}}
	root := r.Document(data, MaxTable, ErrNoCases.Error())
	if root == nil {
		return t, errors.Join(r.Errs...)
	}
	defaults := Case{}
	var cases []*yaml.Node
	r.Mapping(root, "the table", strictyaml.Fields{
		"policies": r.textField("policies", &t.Policies),
		"ordinary": r.Bool("ordinary", &t.Ordinary),
		"defaults": func(n *yaml.Node) { r.Mapping(n, "defaults", r.settingFields(&defaults)) },
		"cases":    r.listField("cases", MaxCases, func(n *yaml.Node) { cases = append(cases, n) }),
	}, "cases")
	names := map[string]bool{}
	for _, n := range cases { // defaults may follow the cases
		c := r.readCase(n, defaults)
		if names[c.Name] {
			r.Fail(n, "two cases are named %q", c.Name)
		}
		names[c.Name] = true
		t.Cases = append(t.Cases, c)
	}
	if err := errors.Join(r.Errs...); err != nil {
		return Table{}, err
	}
	if len(t.Cases) == 0 {
		return Table{}, &Error{File: file, Line: max(root.Line, 1), Msg: ErrNoCases.Error()}
	}
	return t, nil
}

// reader reads one table.
type reader struct {
	strictyaml.Reader
	nodes int
}

func (r *reader) textField(what string, into *string) strictyaml.Field {
	return r.Text(what, MaxTable, into)
}

// listField reads a sequence, which may be empty.
func (r *reader) listField(what string, limit int, item strictyaml.Field) strictyaml.Field {
	return func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode || len(n.Content) > 0 {
			r.List(what, limit, item)(n)
		}
	}
}

func (r *reader) textsField(what string, into *[]string) strictyaml.Field {
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
func (r *reader) settingFields(c *Case) strictyaml.Fields {
	return strictyaml.Fields{
		"protocol":     r.oneOfField("protocol", admission.Protocols(), &c.Protocol),
		"tenant":       r.textField("tenant", &c.Tenant),
		"source":       r.textField("source", &c.Source),
		"headers":      func(n *yaml.Node) { r.readHeaders(n, c) },
		"now":          func(n *yaml.Node) { r.readTime(n, c) },
		"mandates":     r.textField("mandates", &c.Mandates),
		"strict":       r.Bool("strict", &c.Strict),
		"profile":      r.oneOfField("profile", []string{string(admission.ProfileHardened), string(admission.ProfileReferenceSDK)}, &c.Profile),
		"counted":      r.Int("counted", 0, math.MaxInt64, &c.Counted),
		"confirmation": r.oneOfField("confirmation", confirmationStatuses, (*string)(&c.Confirmation)),
	}
}

var confirmationStatuses = []string{string(call.ConfirmationPending), string(call.ConfirmationAccepted), string(call.ConfirmationDeclined),
	string(call.ConfirmationExpired), string(call.ConfirmationUsed), string(call.ConfirmationWithdrawn), string(call.ConfirmationAmbiguous)}

func (r *reader) oneOfField(what string, words []string, into *string) strictyaml.Field {
	return func(n *yaml.Node) {
		var s string
		if r.Read(n, r.textField(what, &s)) && !slices.Contains(words, s) {
			r.Fail(n, "%s %.40q is none of %s", what, s, strings.Join(words, ", "))
		}
		*into = s
	}
}

func (r *reader) readTime(n *yaml.Node, c *Case) {
	t, err := events.ParseTime(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		r.Fail(n, "now must be an RFC 3339 time such as 2026-11-20T09:00:00Z")
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
	r.Entries(n, "headers", func(k, v *yaml.Node) {
		var list []string
		if v.Kind == yaml.SequenceNode {
			r.textsField("header "+k.Value, &list)(v)
		} else {
			list = make([]string, 1)
			r.textField("header "+k.Value, &list[0])(v)
		}
		own[k.Value] = list
	})
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
	r.Mapping(n, "a case", fields, "name", "expect")
	given := 0
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if slices.Contains([]string{"request", "file", "raw"}, n.Content[i].Value) {
			given++
		}
	}
	switch {
	case given != 1:
		r.Fail(n, "case %q needs exactly one of request, file and raw", c.Name)
	case c.Protocol == "":
		r.Fail(n, "case %q names no protocol, and there is none in defaults", c.Name)
	}
	return c
}

func (r *reader) readExpect(n *yaml.Node, e *Expect) {
	words := make([]string, len(events.Verdicts))
	for i, v := range events.Verdicts {
		words[i] = string(v)
	}
	r.Mapping(n, "expect", strictyaml.Fields{
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
		r.Fail(n, "the request cannot be written as JSON")
	}
	return b
}

func (r *reader) readChanges(n *yaml.Node, c *Case) {
	r.Entries(n, "change", func(k, v *yaml.Node) {
		value, ok := r.readValue(v, 0)
		switch {
		case !strings.HasPrefix(k.Value, "/"):
			r.Fail(k, "%.60q is not a JSON pointer such as /tool_input/to", k.Value)
		case ok:
			c.Change = append(c.Change, Change{Path: k.Value, Value: value, Line: k.Line})
		}
	})
}
