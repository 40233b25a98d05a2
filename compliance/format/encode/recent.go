package encode

import "container/list"

// Recent maps the most recently put keys to values.
type Recent struct {
	most    int // greatest number of keys; 0 for any number
	entries map[string]*list.Element
	order   *list.List // of entries, least recently put first
}

type entry struct{ key, value string }

// NewRecent returns an empty map of at most so many keys.
func NewRecent(most int) *Recent {
	return &Recent{most, map[string]*list.Element{}, list.New()}
}

// Put maps a key to a value.
func (r *Recent) Put(key, value string) {
	r.Remove(key)
	r.entries[key] = r.order.PushBack(entry{key, value})
	if r.most > 0 && r.order.Len() > r.most {
		r.Remove(r.order.Front().Value.(entry).key)
	}
}

// Get returns the value of a key.
func (r *Recent) Get(key string) (string, bool) {
	e, ok := r.entries[key]
	if !ok {
		return "", false
	}
	return e.Value.(entry).value, true
}

// Remove forgets a key.
func (r *Recent) Remove(key string) {
	if e, ok := r.entries[key]; ok {
		r.order.Remove(e)
		delete(r.entries, key)
	}
}

// OldestKey returns the least recently put key.
func (r *Recent) OldestKey() (string, bool) {
	if r.order.Len() == 0 {
		return "", false
	}
	return r.order.Front().Value.(entry).key, true
}
