// Package strictyaml reads the YAML that people write for Countersign (policies, tables of
// cases) strictly: everything that a reader does not know is a mistake, and every mistake has
// its line. Begin reading with Documents and Mapping.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Error is one mistake in a text; Line counts from 1.
type Error struct {
	Line int
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// Documents parses a text of at most bytesAtMost bytes into at most most documents, in order;
// an empty text gives none. Mistakes are an *Error.
func Documents(text []byte, bytesAtMost, most int) (nodes []*yaml.Node, err error) {
	defer func() { // the parser has panicked on hostile input before
		if recover() != nil {
			nodes, err = nil, &Error{1, "the file cannot be read as YAML"}
		}
	}()
	switch {
	case len(text) > bytesAtMost:
		return nil, &Error{1, fmt.Sprintf("the file has more than %d bytes: at most so many are read", bytesAtMost)}
	case !utf8.Valid(text):
		return nil, &Error{1, "the file is not UTF-8"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		switch err := dec.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nodes, nil
		case err != nil:
			return nil, &Error{lineOf(err), parserPrefix.ReplaceAllString(err.Error(), "")}
		case len(nodes) >= most && most == 1:
			return nil, &Error{max(n.Line, 1), "there is a second document; the file must hold one YAML document"}
		case len(nodes) >= most:
			return nil, &Error{max(n.Line, 1), fmt.Sprintf("more than %d documents", most)}
		}
		nodes = append(nodes, &n)
	}
}

// Fail receives a mistake at a node.
type Fail func(n *yaml.Node, format string, args ...any)

// Mapping reads an object: no unknown key, no duplicate key, all required keys. what names the
// object in mistakes; fields read the values of the keys.
func Mapping[F ~func(*yaml.Node)](n *yaml.Node, what string, fields map[string]F, required []string, fail Fail) {
	if n.Kind != yaml.MappingNode || Tagged(n) {
		fail(n, "%s must be a mapping", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		read, known := fields[k.Value]
		switch {
		case k.Kind != yaml.ScalarNode || !known:
			fail(k, "%s has no key %.40q", what, k.Value)
		case seen[k.Value]:
			fail(k, "%s has the key %q twice", what, k.Value)
		default:
			seen[k.Value] = true
			read(v)
		}
	}
	for _, k := range required {
		if !seen[k] {
			fail(n, "%s needs %s", what, k)
		}
	}
}

// Tagged reports an explicit tag, with which a value could differ from its look.
func Tagged(n *yaml.Node) bool { return n.Style&yaml.TaggedStyle != 0 }

var parserPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

var yamlLine = regexp.MustCompile(`line (\d+)`)

func lineOf(err error) int {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return max(n, 1)
		}
	}
	return 1
}
