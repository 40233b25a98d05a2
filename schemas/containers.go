package schemas

import (
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/events/strictjson"
)

type minProperties int

func (k minProperties) validateTree(v any, c *collector) bool {
	m, ok := v.(map[string]any)
	return !ok || len(m) >= int(k) || c.fail("minProperties", "must have at least "+strconv.Itoa(int(k))+" properties")
}

type required []string

func (k required) validateTree(v any, c *collector) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return true
	}
	for _, name := range k {
		if _, there := m[name]; there {
			continue
		}
		if ok = c.fail("required", missingProperty(name)); c.shouldStop() {
			return false
		}
	}
	return ok
}

func missingProperty(name string) string { return "missing property " + name }

// properties judges the members of an object: the known ones by their schemas,
// the others by extra, or not at all, or none may be there.
type properties struct {
	known      map[string]*node
	flat       *strictjson.Names[*node] // of known
	additional *node
	closed     bool
}

func (k properties) validateTree(v any, c *collector) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return true
	}
	if c == nil {
		for key, member := range m {
			if !k.validateMember(key, member, nil) {
				return false
			}
		}
		return true
	}
	for _, key := range sortedKeys(m) {
		if !k.validateMember(key, m[key], c) {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

func (k properties) validateMember(key string, v any, c *collector) bool {
	n, known := k.known[key]
	if !known {
		n = k.additional
	}
	if n == nil && !k.closed {
		return true
	}
	c.enter(key)
	defer c.leave()
	if n == nil {
		return c.fail("additionalProperties", "is not a known property")
	}
	return n.validateTree(v, c)
}

type itemCount struct{ min, max int }

func (k itemCount) validateTree(v any, c *collector) bool {
	list, ok := v.([]any)
	switch {
	case !ok:
		return true
	case len(list) < k.min:
		return c.fail("minItems", "must have at least "+strconv.Itoa(k.min)+" items")
	case k.max != -1 && len(list) > k.max:
		return c.fail("maxItems", "must have at most "+strconv.Itoa(k.max)+" items")
	}
	return true
}

type uniqueItems struct{}

func (uniqueItems) validateTree(v any, c *collector) bool {
	list, ok := v.([]any)
	if !ok || len(list) < 2 {
		return true
	}
	seen := make(map[string]struct{}, len(list))
	for i, item := range list {
		key := itemIdentity(item)
		if _, there := seen[key]; there {
			c.enterItem(i)
			defer c.leave()
			return c.fail("uniqueItems", "must not repeat an earlier item")
		}
		seen[key] = struct{}{}
	}
	return true
}

// itemIdentity is equal for equal JSON values and different for different ones.
func itemIdentity(v any) string {
	if s, ok := v.(string); ok {
		return "s" + s
	}
	b, err := strictjson.Canonical(v)
	if err != nil {
		return "?" // not from strictjson; two such items count as equal, so the array is refused
	}
	return "v" + string(b)
}

type itemSchemas struct {
	prefix []*node
	rest   *node
}

func (k itemSchemas) validateTree(v any, c *collector) bool {
	list, ok := v.([]any)
	if !ok {
		return true
	}
	for i, item := range list {
		n := k.rest
		if i < len(k.prefix) {
			n = k.prefix[i]
		}
		if n == nil {
			break
		}
		c.enterItem(i)
		good := n.validateTree(item, c)
		c.leave()
		if !good {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

// allOf puts further schemas on the same value: $ref and allOf.
type allOf []*node

func (k allOf) validateTree(v any, c *collector) bool {
	ok := true
	for _, n := range k {
		if !n.validateTree(v, c) {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

// anyOf is anyOf. A value that fits no alternative gets one violation, not those
// of every alternative.
type anyOf struct {
	nodes   []*node
	message string
}

func (k anyOf) validateTree(v any, c *collector) bool {
	return slices.ContainsFunc(k.nodes, func(n *node) bool { return n.validateTree(v, nil) }) || c.fail("anyOf", k.message)
}

// conditional is if, then and else; either branch may be nil.
type conditional struct{ test, then, otherwise *node }

func (k conditional) validateTree(v any, c *collector) bool {
	branch := k.otherwise
	if k.test.validateTree(v, nil) {
		branch = k.then
	}
	return branch == nil || branch.validateTree(v, c)
}
