package schemas

import (
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/events/strictjson"
)

type minProperties int

func (k minProperties) validate(v strictjson.Value, c *collector) bool {
	return v.Kind() != strictjson.KindObject || v.Len() >= int(k) || c.fail("minProperties", "must have at least "+strconv.Itoa(int(k))+" properties")
}

type required []string

func (k required) validate(v strictjson.Value, c *collector) bool {
	if v.Kind() != strictjson.KindObject {
		return true
	}
	ok := true
	for _, name := range k {
		if v.Get(name).Exists() {
			continue
		}
		if ok = c.fail("required", missingProperty+name); c.shouldStop() {
			return false
		}
	}
	return ok
}

// properties validates the members of an object: known ones by their schemas, others by
// additional, or not at all, or by refusing them.
type properties struct {
	known      map[string]*node
	additional *node
	closed     bool
}

// validate visits the members in the order of their keys if violations are collected.
func (k properties) validate(v strictjson.Value, c *collector) bool {
	if v.Kind() != strictjson.KindObject {
		return true
	}
	if c != nil {
		return k.collect(v, c)
	}
	for m := range v.All() {
		if !k.validateMember(m, nil) {
			return false
		}
	}
	return true
}

func (k properties) collect(v strictjson.Value, c *collector) bool {
	ok := true
	for _, m := range v.AppendSorted(nil) {
		if !k.validateMember(m, c) {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

func (k properties) validateMember(m strictjson.Value, c *collector) bool {
	n, known := k.known[m.Key()]
	if !known {
		n = k.additional
	}
	if n == nil && !k.closed {
		return true
	}
	c.enter(m.Key())
	defer c.leave()
	if n == nil {
		return c.fail("additionalProperties", "is not a known property")
	}
	return n.validate(m, c)
}

type itemCount struct{ min, max int }

func (k itemCount) validate(v strictjson.Value, c *collector) bool {
	switch {
	case v.Kind() != strictjson.KindArray:
		return true
	case v.Len() < k.min:
		return c.fail("minItems", "must have at least "+strconv.Itoa(k.min)+" items")
	case k.max != -1 && v.Len() > k.max:
		return c.fail("maxItems", "must have at most "+strconv.Itoa(k.max)+" items")
	}
	return true
}

type uniqueItems struct{}

func (uniqueItems) validate(v strictjson.Value, c *collector) bool {
	if v.Kind() != strictjson.KindArray || v.Len() < 2 {
		return true
	}
	seen := make(map[string]struct{}, v.Len())
	i := 0
	for item := range v.All() {
		key := itemIdentity(item)
		if _, there := seen[key]; there {
			c.enterItem(i)
			defer c.leave()
			return c.fail("uniqueItems", "must not repeat an earlier item")
		}
		seen[key] = struct{}{}
		i++
	}
	return true
}

// itemIdentity is equal for equal JSON values and different for different ones.
func itemIdentity(v strictjson.Value) string {
	if v.Kind() == strictjson.KindString {
		return "s" + v.Text()
	}
	return "v" + string(v.AppendCanonical(nil))
}

type itemSchemas struct {
	prefix []*node
	rest   *node
}

func (k itemSchemas) validate(v strictjson.Value, c *collector) bool {
	if v.Kind() != strictjson.KindArray {
		return true
	}
	ok, i := true, -1
	for item := range v.All() {
		i++
		n := k.rest
		if i < len(k.prefix) {
			n = k.prefix[i]
		}
		if n == nil {
			break
		}
		c.enterItem(i)
		good := n.validate(item, c)
		c.leave()
		if !good {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

// allOf applies further schemas to the same value: $ref and allOf.
type allOf []*node

func (k allOf) validate(v strictjson.Value, c *collector) bool {
	ok := true
	for _, n := range k {
		if !n.validate(v, c) {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

// anyOf is anyOf. A value that matches no alternative gets one violation, not those of every
// alternative.
type anyOf struct {
	nodes   []*node
	message string
}

func (k anyOf) validate(v strictjson.Value, c *collector) bool {
	return slices.ContainsFunc(k.nodes, func(n *node) bool { return n.validate(v, nil) }) || c.fail("anyOf", k.message)
}

// conditional is if, then and else; either branch may be nil.
type conditional struct{ test, then, otherwise *node }

func (k conditional) validate(v strictjson.Value, c *collector) bool {
	branch := k.otherwise
	if k.test.validate(v, nil) {
		branch = k.then
	}
	return branch == nil || branch.validate(v, c)
}
