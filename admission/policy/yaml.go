package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// reader walks the nodes of one document and collects every mistake in it.
type reader struct {
	file string
	errs []error
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, &Error{File: r.file, Line: max(n.Line, 1), Msg: fmt.Sprintf(format, args...)})
}

// fieldReader reads one key of a mapping.
type fieldReader func(*yaml.Node)

// readMapping reads an object: no unknown key, no key twice, all required keys.
func (r *reader) readMapping(n *yaml.Node, what string, fields map[string]fieldReader, required ...string) {
	strictyaml.Mapping(n, what, fields, required, r.fail)
}

// textField reads a non-empty string of at most limit characters.
func (r *reader) textField(what string, limit int, into *string) fieldReader {
	return func(n *yaml.Node) {
		switch {
		case n.Kind == yaml.AliasNode:
			r.fail(n, "%s is an alias; write the value out", what)
		case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || strictyaml.Tagged(n):
			r.fail(n, "%s must be a string; put it in quotes", what)
		case strings.TrimSpace(n.Value) == "":
			r.fail(n, "%s is empty; leave the key out or give it a value", what)
		case utf8.RuneCountInString(n.Value) > limit:
			r.fail(n, "%s has more than %d characters", what, limit)
		default:
			*into = n.Value
		}
	}
}

// boolField reads true or false.
func (r *reader) boolField(what string, into *bool) fieldReader {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || strictyaml.Tagged(n) || n.Value != "true" && n.Value != "false" || n.ShortTag() != "!!bool" {
			r.fail(n, "%s must be true or false", what)
			return
		}
		*into = n.Value == "true"
	}
}

// integerField reads a whole number, written in decimal.
func (r *reader) integerField(what string, least, most int64, into *int64) fieldReader {
	return func(n *yaml.Node) {
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || strictyaml.Tagged(n) || n.ShortTag() != "!!int" || err != nil || v < least || v > most {
			r.fail(n, "%s must be a whole number between %d and %d", what, least, most)
			return
		}
		*into = v
	}
}

// patternField reads text that must match a form.
func (r *reader) patternField(what string, limit int, form *regexp.Regexp, into *string) fieldReader {
	return func(n *yaml.Node) {
		var s string
		before := len(r.errs)
		if r.textField(what, limit, &s)(n); len(r.errs) > before {
			return
		}
		if !form.MatchString(s) {
			r.fail(n, "%s %.64q must look like %s", what, s, form)
			return
		}
		*into = s
	}
}

// listField reads a non-empty sequence.
func (r *reader) listField(what string, limit int, item func(*yaml.Node)) fieldReader {
	return func(n *yaml.Node) {
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null", n.Kind == yaml.SequenceNode && len(n.Content) == 0:
			r.fail(n, "%s is empty; leave the key out or list something", what)
		case n.Kind != yaml.SequenceNode || strictyaml.Tagged(n):
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

// operandField reads the entries of one operand of match.
func (r *reader) operandField(operand string, into *[]string) fieldReader {
	seen := map[string]bool{}
	return r.listField("match."+operand, MaxOperand, func(n *yaml.Node) {
		var p string
		before := len(r.errs)
		if r.textField("an entry of match."+operand, MaxPattern, &p)(n); len(r.errs) > before {
			return
		}
		switch {
		case strings.TrimSpace(p) != p || strings.ContainsFunc(p, unicode.IsControl):
			r.fail(n, "the entry %.64q of match.%s has white space around it or control characters in it", p, operand)
		case nameOperands[operand] != "" && !names.ValidTool(wildcardReplacer.Replace(p)):
			r.fail(n, "the entry %.64q of match.%s can match no acceptable %s name", p, operand, nameOperands[operand])
		case seen[p]:
			r.fail(n, "match.%s lists %.64q twice", operand, p)
		default:
			seen[p] = true
			*into = append(*into, p)
		}
	})
}

// nameOperands are the operands that are compared with names for which names.ValidTool must hold.
var nameOperands = map[string]string{"tools": "tool", "fromAgents": "agent", "toAgents": "agent"}

var wildcardReplacer = strings.NewReplacer("*", "_", "?", "_")

// splitDocuments splits a file. Parse errors carry the file's name and line.
func splitDocuments(file string, data []byte) ([]*yaml.Node, error) {
	nodes, err := strictyaml.Documents(data, MaxDocument, MaxPolicies)
	var bad *strictyaml.Error
	if errors.As(err, &bad) {
		return nil, &Error{File: file, Line: bad.Line, Msg: bad.Msg}
	}
	return nodes, err
}
