// Package policybucket says what the policies bucket means. A push puts the whole
// set under one key, so that nobody can see half of it. Documents that are put
// or deleted one by one, with any NATS client, change the set that is there; the
// next push supersedes all of them.
package policybucket

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// BucketState is what a policies bucket holds, taken in entry by entry in any order
// in which the entries of one key are in their own. The zero Holding is an empty
// bucket. It is not safe for concurrent use.
type BucketState struct {
	// Set is the newest push; SetAt is its revision, 0 if there was none.
	Set   events.PolicySet
	SetAt uint64
	// Revision is the newest revision of all that count.
	Revision uint64

	setErr error
	single map[string]singleDocument // by key
}

// singleDocument is a document that was put or deleted by itself.
type singleDocument struct {
	doc     policy.Document
	at      uint64
	deleted bool
}

// Put takes in a value of the bucket.
func (h *BucketState) Put(key string, value []byte, revision uint64) {
	if key == events.PolicySetKey {
		h.SetAt = revision
		h.Set, h.setErr = events.DecodePolicySet(value)
	} else {
		h.putSingle(key, singleDocument{doc: policy.Document{Name: key, Data: value}, at: revision})
	}
	h.Revision = max(h.Revision, revision)
}

// Delete takes in a deletion. Where the set itself was deleted nothing is in
// force that was put before.
func (h *BucketState) Delete(key string, revision uint64) {
	if key == events.PolicySetKey {
		h.SetAt, h.Set, h.setErr = revision, events.PolicySet{}, nil
	} else {
		h.putSingle(key, singleDocument{at: revision, deleted: true})
	}
	h.Revision = max(h.Revision, revision)
}

func (h *BucketState) putSingle(key string, s singleDocument) {
	if h.single == nil {
		h.single = map[string]singleDocument{}
	}
	h.single[key] = s
}

// Documents gives what is in force, by name. An error says that the set cannot be
// read: everything must be denied.
func (h *BucketState) Documents() ([]policy.Document, error) {
	if h.setErr != nil {
		return nil, h.setErr
	}
	docs := make(map[string]policy.Document, len(h.Set.Documents)+len(h.single))
	for _, d := range h.Set.Documents {
		docs[d.Name] = policy.Document{Name: d.Name, Data: []byte(d.Text)}
	}
	for key, s := range h.single {
		switch {
		case s.at < h.SetAt:
		case s.deleted:
			delete(docs, key)
		default:
			docs[key] = s.doc
		}
	}
	return slices.SortedFunc(maps.Values(docs), func(a, b policy.Document) int { return strings.Compare(a.Name, b.Name) }), nil
}

// Mixed lists the keys that were put or deleted one by one since the set was
// pushed.
func (h *BucketState) Mixed() []string {
	var keys []string
	for key, s := range h.single {
		if s.at > h.SetAt {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// HoldsExactly reports whether exactly these documents are in force and nothing was put
// or deleted one by one since they were pushed.
func (h *BucketState) HoldsExactly(docs []policy.Document) bool {
	have, err := h.Documents()
	return err == nil && h.SetAt > 0 && len(h.Mixed()) == 0 && slices.EqualFunc(have, docs, equalDocument)
}

func equalDocument(a, b policy.Document) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

// EncodeDocuments makes the value of a set.
func EncodeDocuments(docs []policy.Document) []events.PolicyDocument {
	out := make([]events.PolicyDocument, len(docs))
	for i, d := range docs {
		out[i] = events.PolicyDocument{Name: d.Name, Text: string(d.Data)}
	}
	return out
}

// DecodeDocuments is the other way round.
func DecodeDocuments(list []events.PolicyDocument) []policy.Document {
	out := make([]policy.Document, len(list))
	for i, d := range list {
		out[i] = policy.Document{Name: d.Name, Data: []byte(d.Text)}
	}
	return out
}
