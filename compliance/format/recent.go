package format

import "container/list"

// recentMap remembers a value for each of the keys that were put last.
type recentMap struct {
	most    int // keys; 0 for any number
	entries map[string]*list.Element
	order   *list.List // of entries, the one put longest ago first
}

type entry struct{ key, value string }

func newRecentMap(most int) *recentMap {
	return &recentMap{most, map[string]*list.Element{}, list.New()}
}

func (r *recentMap) put(key, value string) {
	r.remove(key)
	r.entries[key] = r.order.PushBack(entry{key, value})
	if r.most > 0 && r.order.Len() > r.most {
		r.remove(r.order.Front().Value.(entry).key)
	}
}

func (r *recentMap) get(key string) (string, bool) {
	e, ok := r.entries[key]
	if !ok {
		return "", false
	}
	return e.Value.(entry).value, true
}

func (r *recentMap) remove(key string) {
	if e, ok := r.entries[key]; ok {
		r.order.Remove(e)
		delete(r.entries, key)
	}
}

// oldestKey is the key that was put longest ago.
func (r *recentMap) oldestKey() (string, bool) {
	if r.order.Len() == 0 {
		return "", false
	}
	return r.order.Front().Value.(entry).key, true
}
