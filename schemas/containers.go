package schemas

import (
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/events/strictjson"
)

type minProperties int

func (k minProperties) holds(v any, c *collector) bool {
	m, ok := v.(map[string]any)
	return !ok || len(m) >= int(k) || c.fail("minProperties", "must have at least "+strconv.Itoa(int(k))+" properties")
}

type required []string

func (k required) holds(v any, c *collector) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return true
	}
	for _, name := range k {
		if _, there := m[name]; there {
			continue
		}
		if ok = c.fail("required", missing(name)); c.stop() {
			return false
		}
	}
	return ok
}

func missing(name string) string { return "missing property " + name }

// properties judges the members of an object: the known ones by their schemas,
// the others by extra, or not at all, or none may be there.
type properties struct {
	known  map[string]*node
	flat   *strictjson.Names[*node] // of known
	extra  *node
	closed bool
}

func (k properties) holds(v any, c *collector) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return true
	}
	if c == nil {
		for key, member := range m {
			if !k.member(key, member, nil) {
				return false
			}
		}
		return true
	}
	for _, key := range sortedKeys(m) {
		if !k.member(key, m[key], c) {
			if ok = false; c.stop() {
				return false
			}
		}
	}
	return ok
}

func (k properties) member(key string, v any, c *collector) bool {
	n, known := k.known[key]
	if !known {
		n = k.extra
	}
	if n == nil && !k.closed {
		return true
	}
	c.enter(key)
	defer c.leave()
	if n == nil {
		return c.fail("additionalProperties", "is not a known property")
	}
	return n.eval(v, c)
}

type count struct{ min, max int }

func (k count) holds(v any, c *collector) bool {
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

type unique struct{}

func (unique) holds(v any, c *collector) bool {
	list, ok := v.([]any)
	if !ok || len(list) < 2 {
		return true
	}
	seen := make(map[string]struct{}, len(list))
	for i, item := range list {
		key := identity(item)
		if _, there := seen[key]; there {
			c.enterItem(i)
			defer c.leave()
			return c.fail("uniqueItems", "must not repeat an earlier item")
		}
		seen[key] = struct{}{}
	}
	return true
}

// identity is equal for equal JSON values and different for different ones.
func identity(v any) string {
	if s, ok := v.(string); ok {
		return "s" + s
	}
	b, err := strictjson.Canonical(v)
	if err != nil {
		return "?" // not from strictjson; two such items count as equal, so the array is refused
	}
	return "v" + string(b)
}

type items struct {
	prefix []*node
	rest   *node
}

func (k items) holds(v any, c *collector) bool {
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
		good := n.eval(item, c)
		c.leave()
		if !good {
			if ok = false; c.stop() {
				return false
			}
		}
	}
	return ok
}

// all puts further schemas on the same value: $ref and allOf.
type all []*node

func (k all) holds(v any, c *collector) bool {
	ok := true
	for _, n := range k {
		if !n.eval(v, c) {
			if ok = false; c.stop() {
				return false
			}
		}
	}
	return ok
}

// some is anyOf. A value that fits no alternative gets one violation, not those
// of every alternative.
type some struct {
	nodes   []*node
	message string
}

func (k some) holds(v any, c *collector) bool {
	return slices.ContainsFunc(k.nodes, func(n *node) bool { return n.eval(v, nil) }) || c.fail("anyOf", k.message)
}

// conditional is if, then and else; either branch may be nil.
type conditional struct{ test, then, otherwise *node }

func (k conditional) holds(v any, c *collector) bool {
	branch := k.otherwise
	if k.test.eval(v, nil) {
		branch = k.then
	}
	return branch == nil || branch.eval(v, c)
}
