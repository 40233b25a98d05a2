package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// applyChanges applies changes to a request. Without changes the bytes stay the same.
func applyChanges(body []byte, changes []Change) ([]byte, error) {
	if len(changes) == 0 {
		return body, nil
	}
	tree, err := strictjson.Parse(body, strictjson.DefaultLimits)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be changed: %w", err)
	}
	for _, c := range changes {
		steps := strings.Split(c.Path[1:], "/")
		for i, s := range steps {
			steps[i] = strictjson.UnescapePointer(s)
		}
		if tree, err = setPath(tree, steps, c.Value); err != nil {
			return nil, fmt.Errorf("change %s: %w", c.Path, err)
		}
	}
	return strictjson.Canonical(tree)
}

// setPath returns the tree with a value set at a path. Missing objects are created; a nil value
// removes the member.
func setPath(tree any, steps []string, value any) (any, error) {
	if len(steps) == 0 {
		return value, nil
	}
	switch at := tree.(type) {
	case nil:
		if value == nil {
			return nil, nil // nothing to remove
		}
		return setPath(map[string]any{}, steps, value)
	case map[string]any:
		next, err := setPath(at[steps[0]], steps[1:], value)
		if err != nil {
			return nil, err
		}
		if at[steps[0]] = next; next == nil {
			delete(at, steps[0])
		}
		return at, nil
	case []any:
		return setItem(at, steps, value)
	}
	return nil, fmt.Errorf("there is a plain value where %q should be a member", steps[0])
}

func setItem(list []any, steps []string, value any) (any, error) {
	if steps[0] == "-" && len(steps) == 1 && value != nil {
		return append(list, value), nil
	}
	i, err := strconv.Atoi(steps[0])
	if err != nil || i < 0 || i >= len(list) {
		return nil, fmt.Errorf("the list has no entry %q", steps[0])
	}
	next, err := setPath(list[i], steps[1:], value)
	if err != nil {
		return nil, err
	}
	if next == nil {
		return slices.Delete(list, i, i+1), nil
	}
	list[i] = next
	return list, nil
}
