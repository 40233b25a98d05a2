package mcpcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/cli/textdiff"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/mcpgate"
	"github.com/countersign-dev/countersign/mcp"
)

type pinsCmd struct {
	Show   showCmd   `cmd:"" help:"List the accepted tools of a server, and what has changed."`
	Accept acceptCmd `cmd:"" help:"Accept the changed definitions of a server's tools."`
}

type server struct {
	Server string `arg:"" help:"The server's name, as mcp wrap has it."`
	Pin    string `help:"The file that --pin names for the gate." placeholder:"FILE" xor:"pins"`
	Caller string `help:"The user of 'mcp serve' whose pins they are." placeholder:"USER" xor:"pins"`
}

func (s server) open() (mcpgate.PinFile, error) {
	if err := mcp.CheckServerName(s.Server); err != nil {
		return mcpgate.PinFile{}, ui.UsageError{Err: err}
	}
	if s.Caller != "" {
		return mcpgate.OpenCallerPins(s.Server, s.Caller, "")
	}
	return mcpgate.OpenPins(s.Server, s.Pin)
}

type showCmd struct {
	server
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *showCmd) Run(io ui.Stdio) error {
	f, err := c.open()
	if err != nil {
		return err
	}
	pins, err := f.Read()
	if err != nil {
		return err
	}
	if c.JSON {
		return ui.WriteJSON(io, pins)
	}
	for _, name := range slices.Sorted(maps.Keys(pins)) {
		pin := pins[name]
		state := "accepted"
		if pin.Changed != nil {
			state = "CHANGED "
		}
		fmt.Fprintf(io.Out, "%s  %s  %s\n", state, ui.Clean(name, 130), ui.Clean(pin.Digest, 80))
		if pin.Changed != nil {
			printChange(io, pin)
			where := c.Server
			if c.Caller != "" {
				where += " --caller " + ui.Clean(c.Caller, 130)
			}
			fmt.Fprintf(io.Out, "to accept it: countersign mcp pins accept %s %s=%s\n", where, ui.Clean(name, 130), ui.Clean(pin.Changed.Digest, 80))
		}
	}
	return nil
}

// printChange shows what a person is asked to accept.
func printChange(io ui.Stdio, pin mcp.Pin) {
	for _, l := range textdiff.Compare(indented(pin.Definition), indented(pin.Changed.Definition)) {
		fmt.Fprintln(io.Out, ui.Clean(l, len(l)+1))
	}
}

func indented(definition json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, definition, "", "  ") != nil {
		return string(definition) + "\n"
	}
	return b.String() + "\n"
}

type acceptCmd struct {
	server
	Tools []string `arg:"" help:"Which definitions: TOOL=DIGEST, the digest as 'mcp pins show' prints it." placeholder:"TOOL=DIGEST"`
}

func (c *acceptCmd) Run(io ui.Stdio) error {
	f, err := c.open()
	if err != nil {
		return err
	}
	return f.Edit(func(pins mcp.Pins) (bool, error) {
		for _, text := range c.Tools {
			name, digest, found := strings.Cut(text, "=")
			if !found {
				return false, ui.UsageError{Err: fmt.Errorf("%s names no digest: write TOOL=DIGEST, as 'countersign mcp pins show' prints it", ui.Clean(text, 130))}
			}
			if err := pins.Accept(name, digest); err != nil {
				return false, err
			}
			fmt.Fprintf(io.Err, "accepted %s %s\n", ui.Clean(name, 130), pins[name].Digest)
		}
		return true, nil
	})
}
