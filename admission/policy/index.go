package policy

import (
	"slices"
	"strings"
)

// index finds the items (policies of a set, rules of a policy) that may speak on
// a call. It never leaves one out that could; what it gives must still be
// matched. An item stands under the values that it lists in full: of tenant, of
// tool (or of the agent that a handoff is to), of action and of event type.
// Patterns of tools stand under what comes before their first wildcard. Names
// are folded, so that one in another case finds what restricts it.
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

// indexEntry is what an item says of itself.
type indexEntry struct {
	tenants, names, actions, events []string
	handoff                         bool
}

// maxKeys bounds under how many keys an item stands. One beyond it stands under
// fewer values, and is found more often than need be.
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

// indexQuery is what is known of a call. name is folded.
type indexQuery struct {
	indexKey
	handoff bool
}

// find appends what may speak, in order and each once.
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

// exactOrAll gives the entries if every one is exact, and else the one that
// stands for all.
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

// prefixes are the lengths of prefixes that there are shelves for: a prefix of
// another length stands under the longest that it is not shorter than.
var prefixes = []int{32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// nameKeys are the keys of a list of patterns; one that begins with a wildcard
// stands for any name.
func nameKeys(patterns []string) []nameKey {
	any := []nameKey{{byNothing, ""}}
	if len(patterns) == 0 {
		return any
	}
	var keys []nameKey
	for _, p := range patterns {
		k := nameKey{byName, foldCase(p)}
		if isGlob(p) {
			prefix := foldCase(p[:strings.IndexAny(p, "*?")])
			i := slices.IndexFunc(prefixes, func(n int) bool { return n <= len(prefix) })
			if i < 0 {
				return any
			}
			k = nameKey{prefixes[i], prefix[:prefixes[i]]}
		}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
