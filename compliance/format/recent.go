package format

import "container/list"

// recent remembers a value for each of the keys that were put last.
type recent struct {
	most int // keys; 0 for any number
	at   map[string]*list.Element
	keys *list.List // of entries, the one put longest ago first
}

type entry struct{ key, value string }

func newRecent(most int) *recent { return &recent{most, map[string]*list.Element{}, list.New()} }

func (r *recent) put(key, value string) {
	r.drop(key)
	r.at[key] = r.keys.PushBack(entry{key, value})
	if r.most > 0 && r.keys.Len() > r.most {
		r.drop(r.keys.Front().Value.(entry).key)
	}
}

func (r *recent) get(key string) (string, bool) {
	e, ok := r.at[key]
	if !ok {
		return "", false
	}
	return e.Value.(entry).value, true
}

func (r *recent) drop(key string) {
	if e, ok := r.at[key]; ok {
		r.keys.Remove(e)
		delete(r.at, key)
	}
}

// oldest is the key that was put longest ago.
func (r *recent) oldest() (string, bool) {
	if r.keys.Len() == 0 {
		return "", false
	}
	return r.keys.Front().Value.(entry).key, true
}
