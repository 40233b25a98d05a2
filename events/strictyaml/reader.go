package strictyaml

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Reader walks the nodes of a text and collects every mistake in it. What a method reads is named
// in mistakes by what.
type Reader struct {
	File string
	Errs []error // each an *Error
}

// Field reads the value of a key.
type Field = func(*yaml.Node)

// Fields are the keys of an object.
type Fields = map[string]Field

// Fail adds a mistake at a node.
func (r *Reader) Fail(n *yaml.Node, format string, args ...any) {
	r.Errs = append(r.Errs, &Error{r.File, max(n.Line, 1), fmt.Sprintf(format, args...)})
}

// Read reads a node, and reports whether that found no mistake.
func (r *Reader) Read(n *yaml.Node, field Field) bool {
	before := len(r.Errs)
	field(n)
	return len(r.Errs) == before
}

// Document parses a text of one document; nil after a mistake. empty is what is wrong with a text
// without one.
func (r *Reader) Document(text []byte, bytesAtMost int, empty string) *yaml.Node {
	nodes, err := Documents(r.File, text, bytesAtMost, 1)
	switch {
	case err != nil:
		r.Errs = append(r.Errs, err)
	case len(nodes) == 0 || len(nodes[0].Content) != 1:
		r.Fail(&yaml.Node{}, "%s", empty)
	default:
		return nodes[0].Content[0]
	}
	return nil
}

// Mapping reads an object: no unknown key, no key twice, all required keys.
func (r *Reader) Mapping(n *yaml.Node, what string, fields Fields, required ...string) {
	seen := r.Entries(n, what, func(k, v *yaml.Node) {
		if read, known := fields[k.Value]; known {
			read(v)
		} else {
			r.Fail(k, "%s has no key %.40q (its keys: %s)", what, k.Value, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
	})
	for _, k := range required {
		if seen != nil && !seen[k] {
			r.Fail(n, "%s needs %s", what, k)
		}
	}
}

// Entries reads an object whose keys are not known, none of them twice, and returns the keys; nil if
// it is no object.
func (r *Reader) Entries(n *yaml.Node, what string, entry func(k, v *yaml.Node)) map[string]bool {
	if n.Kind != yaml.MappingNode || Tagged(n) {
		r.Fail(n, "%s must be a mapping", what)
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch k := n.Content[i]; {
		case k.Kind != yaml.ScalarNode:
			r.Fail(k, "%s has a key that is no text", what)
		case seen[k.Value]:
			r.Fail(k, "%s has the key %.40q twice", what, k.Value)
		default:
			seen[k.Value] = true
			entry(k, n.Content[i+1])
		}
	}
	return seen
}

// Text reads a non-empty string of at most limit characters.
func (r *Reader) Text(what string, limit int, into *string) Field {
	return func(n *yaml.Node) {
		switch {
		case n.Kind == yaml.AliasNode:
			r.Fail(n, "%s is an alias; write the value out", what)
		case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || Tagged(n):
			r.Fail(n, "%s must be a string; put it in quotes", what)
		case strings.TrimSpace(n.Value) == "":
			r.Fail(n, "%s is empty; leave the key out or give it a value", what)
		case utf8.RuneCountInString(n.Value) > limit:
			r.Fail(n, "%s has more than %d characters", what, limit)
		default:
			*into = n.Value
		}
	}
}

// Form reads a text that must match a form.
func (r *Reader) Form(what string, limit int, form *regexp.Regexp, into *string) Field {
	return func(n *yaml.Node) {
		var s string
		switch {
		case !r.Read(n, r.Text(what, limit, &s)):
		case !form.MatchString(s):
			r.Fail(n, "%s %.64q must look like %s", what, s, form)
		default:
			*into = s
		}
	}
}

// Bool reads true or false.
func (r *Reader) Bool(what string, into *bool) Field {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || Tagged(n) || n.Value != "true" && n.Value != "false" || n.ShortTag() != "!!bool" {
			r.Fail(n, "%s must be true or false", what)
			return
		}
		*into = n.Value == "true"
	}
}

// Int reads a whole number, written in decimal.
func (r *Reader) Int(what string, least, most int64, into *int64) Field {
	return func(n *yaml.Node) {
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || Tagged(n) || n.ShortTag() != "!!int" || err != nil || v < least || v > most {
			r.Fail(n, "%s must be a whole number between %d and %d", what, least, most)
			return
		}
		*into = v
	}
}

// Duration reads a duration in Go's form.
func (r *Reader) Duration(what string, least, most time.Duration, into *time.Duration) Field {
	return func(n *yaml.Node) {
		var s string
		if !r.Read(n, r.Text(what, 32, &s)) {
			return
		}
		d, err := time.ParseDuration(strings.TrimSpace(s))
		if err != nil || d < least || d > most {
			r.Fail(n, "%s must be a duration between %s and %s, such as 60s", what, least, most)
			return
		}
		*into = d
	}
}

// List reads a non-empty sequence.
func (r *Reader) List(what string, limit int, item Field) Field {
	return func(n *yaml.Node) {
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null", n.Kind == yaml.SequenceNode && len(n.Content) == 0:
			r.Fail(n, "%s is empty; leave the key out or list something", what)
		case n.Kind != yaml.SequenceNode || Tagged(n):
			r.Fail(n, "%s must be a list", what)
		case len(n.Content) > limit:
			r.Fail(n, "%s has more than %d entries", what, limit)
		default:
			for _, c := range n.Content {
				item(c)
			}
		}
	}
}
