package agenthook

import "slices"

// fifoMap is a map that forgets its oldest entries. It allocates nothing until its first
// entry: most of a session's maps stay empty.
type fifoMap[V any] struct{ *fifoEntries[V] }

type fifoEntries[V any] struct {
	entries map[string]V
	order   []string
	dropped bool
}

func (t fifoMap[V]) find(k string) (v V, ok bool) {
	if t.fifoEntries != nil {
		v, ok = t.entries[k]
	}
	return v, ok
}

func (t fifoMap[V]) get(k string) V { v, _ := t.find(k); return v }

func (t fifoMap[V]) has(k string) bool { _, ok := t.find(k); return ok }

// keys are the keys, the oldest first.
func (t fifoMap[V]) keys() []string {
	if t.fifoEntries == nil {
		return nil
	}
	return t.order
}

func (t fifoMap[V]) len() int { return len(t.keys()) }

// hasForgotten reports whether entries were forgotten.
func (t fifoMap[V]) hasForgotten() bool { return t.fifoEntries != nil && t.dropped }

func (t *fifoMap[V]) put(k string, v V, most int) {
	if t.fifoEntries == nil {
		t.fifoEntries = &fifoEntries[V]{entries: map[string]V{}}
	}
	if _, there := t.entries[k]; !there {
		if len(t.order) >= most {
			delete(t.entries, t.order[0])
			t.order = append(t.order[:0], t.order[1:]...)
			t.dropped = true
		}
		t.order = append(t.order, k)
	}
	t.entries[k] = v
}

// removeKey removes an entry, and reports whether it was there.
func (t *fifoMap[V]) removeKey(k string) bool {
	if !t.has(k) {
		return false
	}
	delete(t.entries, k)
	t.order = slices.DeleteFunc(t.order, func(o string) bool { return o == k })
	return true
}
