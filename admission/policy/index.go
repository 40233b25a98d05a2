package policy

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/casefold"
)

// index finds the items (policies of a set, rules of a policy) that may apply to a call. It
// never leaves out an item that could apply; what it returns must still be matched. An item is
// stored under the exact values that it lists: of tenant, of tool (or of the agent that a
// handoff is to), of action and of event type. Patterns of tools are stored under the text
// before their first wildcard. Names are case-folded, so that a name in another case finds the
// items that restrict it.
type index struct{ buckets []bucket }

// bucket holds the items that have the same kinds of values.
type bucket struct {
	keyShape
	items map[indexKey][]int
}

type keyShape struct {
	tenant, action, event, handoff bool
	name                           int // byName, byNothing, or the length of a prefix
}

const (
	byNothing = -1
	byName    = 0
)

type indexKey struct{ tenant, name, action, event string }

// indexEntry holds the values under which an item is stored.
type indexEntry struct {
	tenants, names, actions, events []string
	handoff                         bool
}

// maxKeys bounds the number of keys of one item. An item with more keys is stored under fewer
// values, and is found more often than necessary.
const maxKeys = 4096

func (x *index) add(item int, e indexEntry) {
	tenants, actions, events := exactOrAll(e.tenants), exactOrAll(e.actions), exactOrAll(e.events)
	all := []string{""}
	for _, list := range []*[]string{&events, &actions, &tenants} {
		if len(tenants)*len(actions)*len(events)*max(1, len(e.names)) > maxKeys {
			*list = all
		}
	}
	for _, n := range nameKeys(e.names) {
		for _, tenant := range tenants {
			for _, action := range actions {
				for _, event := range events {
					x.insertItem(item, keyShape{tenant != "", action != "", event != "", e.handoff, n.kind}, indexKey{tenant, n.text, action, event})
				}
			}
		}
	}
}

func (x *index) insertItem(item int, s keyShape, k indexKey) {
	i := slices.IndexFunc(x.buckets, func(o bucket) bool { return o.keyShape == s })
	if i < 0 {
		i = len(x.buckets)
		x.buckets = append(x.buckets, bucket{s, map[indexKey][]int{}})
	}
	items := x.buckets[i].items
	if list := items[k]; len(list) == 0 || list[len(list)-1] != item {
		items[k] = append(list, item)
	}
}

// indexQuery is what is known of a call. name is case-folded.
type indexQuery struct {
	indexKey
	handoff bool
}

// find appends the items that may apply, in order and each once.
func (x *index) find(into []int, q indexQuery) []int {
	from := len(into)
	lists := 0
	for i := range x.buckets {
		s := &x.buckets[i]
		if s.handoff != q.handoff || s.name > len(q.name) {
			continue
		}
		k := q.indexKey
		if !s.tenant {
			k.tenant = ""
		}
		if !s.action {
			k.action = ""
		}
		if !s.event {
			k.event = ""
		}
		switch {
		case s.name == byNothing:
			k.name = ""
		case s.name > byName:
			k.name = k.name[:s.name]
		}
		if list := s.items[k]; len(list) > 0 {
			into = append(into, list...)
			lists++
		}
	}
	if found := into[from:]; lists > 1 {
		slices.Sort(found)
		into = into[:from+len(slices.Compact(found))]
	}
	return into
}

// exactOrAll returns the entries if all are exact, and otherwise the entry that matches
// everything.
func exactOrAll(patterns []string) []string {
	if len(patterns) == 0 || slices.ContainsFunc(patterns, isGlob) {
		return []string{""}
	}
	return patterns
}

func isGlob(p string) bool { return strings.ContainsAny(p, "*?") }

type nameKey struct {
	kind int
	text string
}

// prefixes are the prefix lengths that the index uses: any other prefix is cut to the longest
// of these lengths.
var prefixes = []int{32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// nameKeys are the keys of a list of patterns; a pattern that begins with a wildcard matches
// any name.
func nameKeys(patterns []string) []nameKey {
	anyName := []nameKey{{byNothing, ""}}
	if len(patterns) == 0 {
		return anyName
	}
	var keys []nameKey
	for _, p := range patterns {
		k := nameKey{byName, casefold.String(p)}
		if isGlob(p) {
			prefix := casefold.String(p[:strings.IndexAny(p, "*?")])
			i := slices.IndexFunc(prefixes, func(n int) bool { return n <= len(prefix) })
			if i < 0 {
				return anyName
			}
			k = nameKey{prefixes[i], prefix[:prefixes[i]]}
		}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
