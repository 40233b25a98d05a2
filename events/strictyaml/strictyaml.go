// Package strictyaml reads the YAML that people write for Countersign (policies, tables of
// cases) strictly: everything that a reader does not know is a mistake, and every mistake has
// its line. Begin with a Reader.
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

// Error is one mistake in a text.
type Error struct {
	File string
	Line int // from 1
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// Documents parses a text of at most bytesAtMost bytes into at most most documents, in order;
// an empty text gives none. file names the text in the mistake, which is an *Error.
func Documents(file string, text []byte, bytesAtMost, most int) (nodes []*yaml.Node, err error) {
	defer func() { // the parser has panicked on hostile input before
		if recover() != nil {
			nodes, err = nil, &Error{file, 1, "the file cannot be read as YAML"}
		}
	}()
	switch {
	case len(text) > bytesAtMost:
		return nil, &Error{file, 1, fmt.Sprintf("the file has more than %d bytes: at most so many are read", bytesAtMost)}
	case !utf8.Valid(text):
		return nil, &Error{file, 1, "the file is not UTF-8"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		switch err := dec.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nodes, nil
		case err != nil:
			return nil, &Error{file, lineOf(err), parserPrefix.ReplaceAllString(err.Error(), "")}
		case len(nodes) >= most && most == 1:
			return nil, &Error{file, max(n.Line, 1), "there is a second document; the file must hold one YAML document"}
		case len(nodes) >= most:
			return nil, &Error{file, max(n.Line, 1), fmt.Sprintf("more than %d documents", most)}
		}
		nodes = append(nodes, &n)
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
