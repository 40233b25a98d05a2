package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/digest"
)

// Tool is a tool as its server describes it.
type Tool struct {
	Name        string
	Digest      string          // of the whole definition
	Definition  json.RawMessage // canonical
	Annotations Annotations
	raw         json.RawMessage
	headers     []argumentHeader
}

// WithoutDefinition is what a gate keeps of a tool: definitions may be large.
func (t Tool) WithoutDefinition() Tool {
	t.Definition, t.raw = nil, nil
	return t
}

// Annotations are hints of a server about its tool. They may raise the risk of a call, never lower it.
type Annotations struct {
	Destructive *bool `json:"destructiveHint"`
	OpenWorld   *bool `json:"openWorldHint"`
	Idempotent  *bool `json:"idempotentHint"`
}

// toolName are the names that a tool may have: those that MCP recommends. Without a slash no tool has
// the name of a method.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.\-]{1,128}$`)

// serverName are the names of servers: without an underscore, so that mcp__SERVER__TOOL names one tool.
var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.\-]{0,63}$`)

// CheckServerName reports what is wrong with the name of a server.
func CheckServerName(name string) error {
	if !serverName.MatchString(name) {
		return fmt.Errorf("%q is no name of a server: it must have 1 to 64 characters of A-Z a-z 0-9 . - and begin with a letter or digit", name)
	}
	return nil
}

// MaxDefinition is the largest definition of a tool that is used, in bytes.
const MaxDefinition = 256 << 10

// Listing is the result of a tools/list.
type Listing struct {
	Tools  []Tool
	Unfit  int // definitions that are left out: unreadable, too large, with an unfit name, or two of one name
	result map[string]json.RawMessage
	// Unclear are the names of definitions that are left out, as far as they can be read.
	Unclear map[string]bool
}

// ParseListing reads the result of a tools/list. A listing that cannot be read is an error: its tools
// are unknown.
func ParseListing(result json.RawMessage) (Listing, error) {
	o, err := members(result, []string{"tools"})
	if err != nil {
		return Listing{}, fmt.Errorf("the list of tools: %w", err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(o["tools"], &list); err != nil {
		return Listing{}, errors.New("the list of tools is none")
	}
	l, count := Listing{result: o, Unclear: map[string]bool{}}, map[string]int{}
	for _, raw := range list {
		t, err := parseTool(raw)
		if err == nil {
			l.Tools = append(l.Tools, t)
			count[t.Name]++
			continue
		}
		var named struct{ Name string } // written in any case
		if json.Unmarshal(raw, &named) == nil && named.Name != "" {
			l.Unclear[named.Name] = true
		}
	}
	for name, n := range count {
		if n > 1 {
			l.Unclear[name] = true
		}
	}
	l.Tools = slices.DeleteFunc(l.Tools, func(t Tool) bool { return l.Unclear[t.Name] })
	l.Unfit = len(list) - len(l.Tools)
	return l, nil
}

// AskForList is a gate's own request for a list of tools, from a cursor on, on behalf of a call with these
// params: of its _meta it has what the protocol itself needs.
func AskForList(id ID, cursor string, call json.RawMessage) ([]byte, error) {
	params := map[string]any{}
	if cursor != "" {
		params["cursor"] = cursor
	}
	o, _ := members(call, nil) // params that are none have no _meta
	meta, _ := members(o["_meta"], nil)
	maps.DeleteFunc(meta, func(name string, _ json.RawMessage) bool { return !strings.HasPrefix(name, protocolMeta) })
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": MethodList, "params": params})
}

// NextCursor is where a list of tools goes on; "" if it is at its end.
func NextCursor(result json.RawMessage) string {
	o, _ := members(result, nil) // a result that is none does not go on
	return text(o["nextCursor"])
}

func parseTool(raw json.RawMessage) (Tool, error) {
	if len(raw) > MaxDefinition {
		return Tool{}, fmt.Errorf("the definition of a tool has more than %d bytes", MaxDefinition)
	}
	o, err := members(raw, []string{"name", "annotations"})
	if err != nil {
		return Tool{}, fmt.Errorf("the definition of a tool: %w", err)
	}
	t := Tool{raw: raw}
	if json.Unmarshal(o["name"], &t.Name) != nil || !toolName.MatchString(t.Name) {
		return Tool{}, errors.New("the name of a tool must have 1 to 128 characters of A-Z a-z 0-9 _ . -")
	}
	_ = json.Unmarshal(o["annotations"], &t.Annotations) // hints that are none raise nothing
	t.headers = argumentHeaders(o["inputSchema"])
	// Numbers stay as they are written: schemas have limits that doubles do not hold.
	v := jsontext.Value(append([]byte(nil), raw...))
	if err := v.Format(jsontext.ReorderRawObjects(true)); err != nil {
		return Tool{}, errors.New("the definition of a tool is no strict JSON")
	}
	t.Definition, t.Digest = json.RawMessage(v), digest.Plain(v)
	return t, nil
}

// Without returns the result with only the tools for which keep is true; nil if keep is true for all. The
// definitions that stay keep their bytes.
func (l Listing) Without(keep func(Tool) bool) (json.RawMessage, error) {
	var kept [][]byte
	for _, t := range l.Tools {
		if keep(t) {
			kept = append(kept, t.raw)
		}
	}
	if len(kept) == len(l.Tools)+l.Unfit {
		return nil, nil
	}
	l.result["tools"] = slices.Concat([]byte("["), bytes.Join(kept, []byte(",")), []byte("]"))
	var all [][]byte
	for _, name := range slices.Sorted(maps.Keys(l.result)) {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Concat(key, []byte(":"), l.result[name]))
	}
	return slices.Concat([]byte("{"), bytes.Join(all, []byte(",")), []byte("}")), nil
}

// Pins are the accepted definitions of a server's tools, by name.
type Pins map[string]Pin

// Pin is what is accepted of one tool, and what its server says now, if that is something else.
type Pin struct {
	Digest     string          `json:"digest"`
	Definition json.RawMessage `json:"definition,omitempty"` // for people who compare
	Changed    *Pin            `json:"changed,omitempty"`    // offered and not accepted
}

// Bounds of the pins of one server.
const (
	MaxPins     = 1024
	maxPinBytes = 16 << 20 // of all definitions together
)

// Comparison says what of a listing is not accepted.
type Comparison struct {
	Changed []Tool // not what was accepted
	NoRoom  []Tool // new, and beyond the bounds of Pins: not accepted
	Edited  bool   // the pins themselves have changed
}

// Compare holds tools against the pins. With trust, a tool without a pin gets one; without, it counts as
// changed.
func (p Pins) Compare(tools []Tool, trust bool) Comparison {
	var c Comparison
	size := p.size()
	for _, t := range tools {
		now := Pin{Digest: t.Digest, Definition: t.Definition}
		old, known := p[t.Name]
		fits := size+len(t.Definition) <= maxPinBytes
		switch {
		case known && old.Digest == t.Digest:
			continue
		case !known && trust && (!fits || len(p) >= MaxPins):
			c.NoRoom = append(c.NoRoom, t)
			continue
		case !known && trust:
			p[t.Name] = now
		default:
			c.Changed = append(c.Changed, t)
			if !trust || !fits || old.Changed != nil && old.Changed.Digest == t.Digest {
				continue
			}
			old.Changed = &now
			p[t.Name] = old
		}
		size, c.Edited = size+len(t.Definition), true
	}
	return c
}

// size is that of all definitions.
func (p Pins) size() int {
	n := 0
	for _, pin := range p {
		n += len(pin.Definition)
		if pin.Changed != nil {
			n += len(pin.Changed.Definition)
		}
	}
	return n
}

// Accept makes the offered definition of a tool the accepted one, if it is still the one with this
// digest: the one that the operator has read.
func (p Pins) Accept(name, digest string) error {
	old, known := p[name]
	if !known || old.Changed == nil {
		return fmt.Errorf("the tool %q has no changed definition", name)
	}
	if old.Changed.Digest != digest {
		return fmt.Errorf("the server offers another definition of %q by now: look at it again (countersign mcp pins show)", name)
	}
	p[name] = *old.Changed
	return nil
}
