package redact

import (
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// DeclaredFields reads metadata.redaction.fields of an event: the paths that its producer
// declares to be redacted. It ignores entries that are not strings.
func DeclaredFields(event any) []string {
	for _, key := range [...]string{"metadata", "redaction", "fields"} {
		m, ok := event.(map[string]any)
		if !ok {
			return nil
		}
		event = m[key]
	}
	list, _ := event.([]any)
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// markAll replaces the values at the paths by declaredValue. A path is dotted (tool_input.body,
// items[0].name, items.*.name), may begin with $, or is a JSON pointer. What is declared for
// tool_input also holds for metadata.tool_input_executed, the same argument reported back.
func (m *fieldMarker) markAll(root any, fields []string, detector string) (any, error) {
	if len(fields) > maxFields {
		return nil, ErrTooMuch
	}
	m.detector = detector
	for _, f := range fields {
		segments := PathSegments(f)
		if len(segments) == 0 {
			continue
		}
		root = m.markPath(root, segments)
		if segments[0] == "tool_input" && len(segments) > 1 {
			root = m.markPath(root, append([]string{"metadata", "tool_input_executed"}, segments[1:]...))
		}
		if m.visits < 0 {
			return nil, ErrTooMuch
		}
	}
	return root, nil
}

// PathBelow returns the path of a field after its document became the member name of another
// document.
func PathBelow(name, field string) string {
	if field != "" && field[0] == '/' {
		return "/" + name + field
	}
	for len(field) > 0 && (field[0] == '$' || field[0] == '.') {
		field = field[1:]
	}
	if field == "" {
		return ""
	}
	return name + "." + field
}

// PathSegments splits a path into the names along it. It returns nil for a path that names
// nothing.
func PathSegments(field string) []string {
	if strings.HasPrefix(field, "/") {
		parts := strings.Split(field[1:], "/")
		for i, p := range parts {
			parts[i] = strictjson.UnescapePointer(p)
		}
		return parts
	}
	field = strings.TrimPrefix(strings.TrimPrefix(field, "$"), ".")
	field = strings.NewReplacer("[", ".", "]", "").Replace(field)
	var parts []string
	for p := range strings.SplitSeq(field, ".") {
		if p == "" {
			p = "*" // items[] means each
		}
		parts = append(parts, p)
	}
	if len(parts) == 1 && parts[0] == "*" && field == "" {
		return nil
	}
	return parts
}

type fieldMarker struct {
	visits   int
	detector string
}

// markPath follows one path. It also finds a key that contains dots.
func (m *fieldMarker) markPath(v any, path []string) any {
	if m.visits--; m.visits < 0 {
		return v
	}
	if len(path) == 0 {
		if d, ok := v.(declaredValue); ok {
			return d
		}
		if v == nil {
			return v
		}
		return declaredValue{v, m.detector}
	}
	switch v := v.(type) {
	case map[string]any:
		if path[0] == "*" {
			for k, child := range v {
				v[k] = m.markPath(child, path[1:])
			}
			return v
		}
		key := ""
		for n := range path {
			if n > 0 {
				key += "."
			}
			if key += path[n]; len(key) > 4*maxIdent {
				break
			}
			if child, ok := v[key]; ok {
				v[key] = m.markPath(child, path[n+1:])
			}
		}
	case []any:
		if path[0] == "*" {
			for i := range v {
				v[i] = m.markPath(v[i], path[1:])
			}
		} else if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(v) {
			v[i] = m.markPath(v[i], path[1:])
		}
	}
	return v
}

// unwrapDeclared returns the original value, with all declaredValues inside it removed.
func unwrapDeclared(v any) any {
	switch v := v.(type) {
	case declaredValue:
		return unwrapDeclared(v.v)
	case map[string]any:
		for k := range v {
			v[k] = unwrapDeclared(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unwrapDeclared(v[i])
		}
	}
	return v
}
