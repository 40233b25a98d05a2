package correlate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/judge"
)

// ValidateCmd is `countersign validate`.
type ValidateCmd struct {
	JSON     bool   `name:"json" help:"Print JSON, one line for each document."`
	Protocol string `arg:"" help:"Protocol of the documents, such as agenthook; an unknown name is answered with the list."`
	File     string `arg:"" help:"One event or request, a JSON array or JSON Lines of them; - for standard input."`
}

// validated is what is printed of one document.
type validated struct {
	Document   int                 `json:"document"` // its number in the file, from 1
	Valid      bool                `json:"valid"`
	Error      string              `json:"error,omitempty"` // the reason why it cannot be read
	Violations []schemas.Violation `json:"violations"`
}

// Run judges each document by itself. What only several documents together can break is left to check.
func (c *ValidateCmd) Run(_ context.Context, io ui.Stdio) error {
	if !slices.Contains(schemas.Tokens(), c.Protocol) {
		return ui.UsageError{Err: fmt.Errorf("the protocol must be one of %s", strings.Join(schemas.Tokens(), ", "))}
	}
	input, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	list := documents(input)
	if len(list) == 0 {
		return ui.UsageError{Err: fmt.Errorf("%s holds no document", c.File)}
	}
	valid := true
	for i, document := range list {
		v := c.judge(i+1, document)
		valid = valid && v.Valid
		if err := c.print(io, v, len(list)); err != nil {
			return err
		}
	}
	if !valid {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

func (c *ValidateCmd) judge(number int, document []byte) validated {
	found, err := judge.Judge(c.Protocol, document)
	if err != nil {
		return validated{Document: number, Error: err.Error(), Violations: []schemas.Violation{}}
	}
	return validated{Document: number, Valid: !schemas.HasErrors(found), Violations: append([]schemas.Violation{}, found...)}
}

func (c *ValidateCmd) print(io ui.Stdio, v validated, of int) error {
	if c.JSON {
		line, err := json.Marshal(v)
		if err == nil {
			_, err = fmt.Fprintf(io.Out, "%s\n", line)
		}
		return err
	}
	name := ""
	switch {
	case of > 1:
		name = fmt.Sprintf("document %d: ", v.Document)
	case !v.Valid && c.File != "-":
		name = ui.Clean(c.File, 200) + ": "
	}
	var out strings.Builder
	switch {
	case v.Error != "":
		fmt.Fprintf(&out, "%scannot be read: %s\n", name, ui.Clean(v.Error, 300))
	case v.Valid:
		fmt.Fprintf(&out, "%svalid\n", name)
	default:
		fmt.Fprintf(&out, "%snot valid\n", name)
	}
	for _, found := range v.Violations {
		by := ""
		if found.Check != "" {
			by = " (" + found.Check + ")"
		}
		fmt.Fprintf(&out, "  %s: %s%s\n", found.Level, ui.Clean(found.String(), 300), by)
	}
	_, err := io.Out.Write([]byte(out.String()))
	return err
}

// documents splits the input. What is neither a list nor JSON Lines is one document, even if it cannot be
// read.
func documents(input []byte) []json.RawMessage {
	whole := bytes.TrimSpace(input)
	if len(whole) == 0 {
		return nil
	}
	list, err := correlation.ParseRecording(whole)
	object := func(l json.RawMessage) bool { return len(l) > 0 && l[0] == '{' && json.Valid(l) }
	if err != nil || len(list) > 0 && !slices.ContainsFunc(list, object) {
		return []json.RawMessage{whole}
	}
	return list
}
