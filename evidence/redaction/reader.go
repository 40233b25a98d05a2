package redaction

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictyaml"
)

// policyReader walks the nodes of a policy and gathers every mistake in it.
type policyReader struct {
	file string
	errs []error
}

func (r *policyReader) addError(n *yaml.Node, format string, args ...any) {
	line := 1
	if n != nil {
		line = max(n.Line, 1)
	}
	r.errs = append(r.errs, &Error{r.file, line, fmt.Sprintf(format, args...)})
}

// readDocument reads the one document of a text.
func (r *policyReader) readDocument(text []byte) *yaml.Node {
	nodes, err := strictyaml.Documents(text, MaxBytes, 1)
	var bad *strictyaml.Error
	switch {
	case errors.As(err, &bad):
		r.errs = append(r.errs, &Error{r.file, bad.Line, bad.Msg})
	case err != nil:
		r.errs = append(r.errs, err)
	case len(nodes) == 0 || len(nodes[0].Content) != 1:
		r.addError(nil, "the file is empty")
	default:
		return nodes[0].Content[0]
	}
	return nil
}

// readMapping reads an object: no unknown key, no key twice, all required keys.
func (r *policyReader) readMapping(n *yaml.Node, what string, fields map[string]func(*yaml.Node), required ...string) {
	strictyaml.Mapping(n, what, fields, required, r.addError)
}

// readScalar gives the text of a node that is a plain string.
func (r *policyReader) readScalar(n *yaml.Node, what string, limit int) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || strictyaml.Tagged(n):
		r.addError(n, "%s must be a string; put it in quotes", what)
	case strings.TrimSpace(n.Value) == "":
		r.addError(n, "%s is empty; leave it out or give it a value", what)
	case len(n.Value) > limit:
		r.addError(n, "%s has more than %d bytes", what, limit)
	default:
		return n.Value, true
	}
	return "", false
}

func (r *policyReader) textField(what string, limit int, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if s, ok := r.readScalar(n, what, limit); ok {
			*into = s
		}
	}
}

func (r *policyReader) nameField(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if s, ok := r.readScalar(n, what, 40); ok && !nameForm.MatchString(s) {
			r.addError(n, "%s must be a-z, 0-9, - and _, at most 40 of them", what)
		} else if ok {
			*into = s
		}
	}
}

func (r *policyReader) numberField(what string, low, high int, into *int) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < low || v > high {
			r.addError(n, "%s must be a number from %d to %d", what, low, high)
			return
		}
		*into = v
	}
}

func (r *policyReader) listField(what string, into *[]string, item func(*yaml.Node) string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxList {
			r.addError(n, "%s must be a list of 1 to %d", what, maxList)
			return
		}
		for _, c := range n.Content {
			*into = append(*into, item(c))
		}
	}
}
