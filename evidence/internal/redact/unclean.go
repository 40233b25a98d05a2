package redact

import (
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// Unclean are the members of a document in which there may be something to redact, in the order of the
// document. A CleanChecker finds them.
type Unclean struct {
	members []uncleanMember
	work    int // of the rest of the document
	row     *storable.Row
}

type uncleanMember struct {
	above string // JSON pointer of the object that has the member
	value strictjson.Value
}

// Len is the number of members.
func (u Unclean) Len() int { return len(u.members) }

// Redact redacts the members, and returns what Document would put in their places. Prefix, hits and
// error are those of Document.
func (u Unclean) Redact(prefix string, c Config) ([]strictjson.Replacement, []Hit, error) {
	w := newDocumentWalker(prefix, c)
	w.work = u.work
	w.never = neverStoreFor(u.row, nil)
	list := make([]strictjson.Replacement, len(u.members))
	for i, m := range u.members {
		w.path = append(w.path[:w.base], m.above...)
		list[i] = w.replaceMember(m.value)
	}
	if w.isFull() {
		return nil, nil, ErrTooMuch
	}
	SortHits(w.hits)
	return list, w.hits, nil
}

// replaceMember redacts one member. The walker's path is that of its object.
func (w *documentWalker) replaceMember(v strictjson.Value) strictjson.Replacement {
	key, tree := v.Key(), v.Tree()
	object := map[string]any{key: tree}
	w.redactMember(object, key, key, tree, false)
	left, kept := object[key]
	return strictjson.Replacement{Member: v, Tree: left, Drop: !kept}
}
