package hookcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// merge returns a configuration with the handlers of an installation and without older ones of
// ours. Everything else keeps its bytes.
func (i installation) merge(old []byte, command string) ([]byte, error) {
	if i.whole != nil {
		return i.fill(old, command)
	}
	hooks, err := hooksOf(old)
	if err != nil {
		return nil, err
	}
	places := removeOurs(hooks)
	for _, event := range i.events {
		list, ok := hooks[event].([]any)
		if !ok && hooks[event] != nil {
			return nil, fmt.Errorf("its hooks of %s are no list", event)
		}
		at, stood := places[event]
		if !stood {
			at = len(list)
		}
		hooks[event] = slices.Insert(list, at, any(i.entry(commandOf(command, event), event)))
	}
	text := old
	for name, value := range i.top {
		if _, _, found, err := member(text, name); err != nil {
			return nil, err
		} else if !found {
			if text, err = setMember(text, name, value); err != nil {
				return nil, err
			}
		}
	}
	return setMember(text, "hooks", hooks)
}

// fill writes the file that is the gate's alone.
func (i installation) fill(old []byte, command string) ([]byte, error) {
	if len(old) > 0 && !i.isWhole(old) {
		return nil, errors.New("it holds something else")
	}
	text, err := i.whole(command)
	return []byte(text), err
}

// isWhole reports whether a file is one that fill wrote, of this or another version.
func (i installation) isWhole(text []byte) bool { return bytes.HasPrefix(text, []byte(i.begin)) }

// remove returns a configuration without our handlers; nil if the file is to be removed.
func (i installation) remove(old []byte) ([]byte, error) {
	if i.whole != nil {
		if i.isWhole(old) {
			return nil, nil
		}
		return old, nil
	}
	hooks, err := hooksOf(old)
	if err != nil {
		return nil, err
	}
	if len(removeOurs(hooks)) == 0 {
		return old, nil
	}
	return setMember(old, "hooks", hooks)
}

// hooksOf reads the member hooks.
func hooksOf(text []byte) (map[string]any, error) {
	from, to, found, err := member(text, "hooks")
	if err != nil || !found {
		return map[string]any{}, err
	}
	d := json.NewDecoder(bytes.NewReader(text[from:to]))
	d.UseNumber()
	var hooks map[string]any
	if err := d.Decode(&hooks); err != nil || hooks == nil {
		return nil, errors.New("its member hooks is no object")
	}
	return hooks, nil
}

// removeOurs removes the handlers that run the gate, also from groups with other handlers. It returns
// by event where the first one stood: other hooks may depend on the order.
func removeOurs(hooks map[string]any) map[string]int {
	places := map[string]int{}
	for event, v := range hooks {
		list, ok := v.([]any)
		if !ok {
			continue
		}
		kept := []any{}
		for _, entry := range list {
			rest, removed := withoutGate(entry)
			if _, known := places[event]; removed && !known {
				places[event] = len(kept)
			}
			if rest != nil {
				kept = append(kept, rest)
			}
		}
		if hooks[event] = kept; len(kept) == 0 {
			delete(hooks, event)
		}
	}
	return places
}

// withoutGate returns what remains of an entry without the gate, nil if nothing does, and whether
// the gate was there. An entry is a handler or a group of handlers.
func withoutGate(entry any) (rest any, removed bool) {
	group, _ := entry.(map[string]any)
	handlers, ok := group["hooks"].([]any)
	if !ok {
		if runsGate(group) {
			return nil, true
		}
		return entry, false
	}
	kept := []any{}
	for _, h := range handlers {
		if handler, _ := h.(map[string]any); runsGate(handler) {
			removed = true
		} else {
			kept = append(kept, h)
		}
	}
	if removed && len(kept) == 0 {
		return nil, true
	}
	group["hooks"] = kept
	return group, removed
}

// gateWords is the gate at the beginning of a command line, as install writes it, also in a shell of its own.
var gateWords = regexp.MustCompile(`^(?:exec /bin/sh -c '[^']*' )?(?:'(?:[^']|'\\'')*/` + gateProgram + `'|[^ ']*/` + gateProgram + `) [a-z]`)

// runsGate reports whether a handler runs the gate.
func runsGate(handler map[string]any) bool {
	for _, name := range []string{"command", "bash"} {
		if text, ok := handler[name].(string); ok {
			return gateWords.MatchString(text)
		}
	}
	return false
}

// member finds the bytes of a member's value in an object; an empty text is an empty object.
func member(text []byte, name string) (from, to int64, found bool, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return 0, 0, false, nil
	}
	if !jsontext.Value(text).IsValid() || bytes.TrimSpace(text)[0] != '{' {
		return 0, 0, false, errors.New("it is no plain JSON object: take out comments, and names that are there twice")
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if _, err := d.ReadToken(); err != nil {
		return 0, 0, false, err
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return 0, 0, false, err
		}
		is := key.String() == name
		value, err := d.ReadValue()
		if err != nil {
			return 0, 0, false, err
		}
		if is {
			from, to, found = d.InputOffset()-int64(len(value)), d.InputOffset(), true
		}
	}
	return from, to, found, nil
}

// setMember replaces the value of a member, or adds the member at the end.
func setMember(text []byte, name string, value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("  ", "  ")
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	written := bytes.TrimSpace(b.Bytes())
	from, to, found, err := member(text, name)
	switch {
	case err != nil:
		return nil, err
	case found:
		return bytes.Join([][]byte{text[:from], written, text[to:]}, nil), nil
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Appendf(nil, "{\n  %q: %s\n}\n", name, written), nil
	}
	end := bytes.LastIndexByte(text, '}')
	before := bytes.TrimRight(text[:end], " \t\r\n")
	comma := ","
	if bytes.HasSuffix(before, []byte("{")) {
		comma = ""
	}
	return fmt.Appendf(nil, "%s%s\n  %q: %s\n}\n", before, comma, name, written), nil
}
