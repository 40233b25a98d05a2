// Package policybucket interprets the policies bucket for the admitter and the command line. A
// push puts the whole set under one key, so that no reader can see half of it. Documents that are
// put or deleted one by one, with any NATS client, change the current set; the next push
// supersedes all of them. Begin with BucketState.
package policybucket

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// BucketState is the content of a policies bucket. Entries can be added in any order, as long as
// those of one key are in theirs. The zero value is an empty bucket. It is not safe for
// concurrent use.
type BucketState struct {
	// Set is the newest push; SetAt is its revision, 0 if there was none.
	Set   events.PolicySet
	SetAt uint64
	// Revision is the newest revision of all entries.
	Revision uint64

	setErr error
	single map[string]singleDocument // by key
}

// singleDocument is a document that was put or deleted one by one.
type singleDocument struct {
	doc     policy.Document
	at      uint64
	deleted bool
}

// InForce reads the policies that the bucket holds.
func InForce(ctx context.Context, js jetstream.JetStream) (*BucketState, error) {
	list, err := streams.KVNewest(ctx, js, streams.BucketPolicies, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the policies: %w", err)
	}
	held := &BucketState{}
	for _, e := range list {
		if e.Deleted {
			held.Delete(e.Key, e.Revision)
		} else {
			held.Put(e.Key, e.Value, e.Revision)
		}
	}
	return held, nil
}

// Put adds a value of the bucket.
func (h *BucketState) Put(key string, value []byte, revision uint64) {
	if key == events.PolicySetKey {
		h.SetAt = revision
		h.Set, h.setErr = events.DecodePolicySet(value)
	} else {
		h.putSingle(key, singleDocument{doc: policy.Document{Name: key, Data: value}, at: revision})
	}
	h.Revision = max(h.Revision, revision)
}

// Delete adds a deletion. After a deletion of the set, nothing that was put before is in force.
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

// Documents returns the documents in force, ordered by name. An error means that the set cannot
// be read: everything must be denied.
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

// Mixed lists the keys that were put or deleted one by one since the set was pushed.
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

// HoldsExactly reports whether exactly these documents are in force and none was put or deleted
// one by one since the push.
func (h *BucketState) HoldsExactly(docs []policy.Document) bool {
	have, err := h.Documents()
	return err == nil && h.SetAt > 0 && len(h.Mixed()) == 0 && slices.EqualFunc(have, docs, equalDocument)
}

func equalDocument(a, b policy.Document) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

// EncodeDocuments returns the documents in the form of a set.
func EncodeDocuments(docs []policy.Document) []events.PolicyDocument {
	out := make([]events.PolicyDocument, len(docs))
	for i, d := range docs {
		out[i] = events.PolicyDocument{Name: d.Name, Text: string(d.Data)}
	}
	return out
}

// DecodeDocuments is the inverse of EncodeDocuments.
func DecodeDocuments(list []events.PolicyDocument) []policy.Document {
	out := make([]policy.Document, len(list))
	for i, d := range list {
		out[i] = policy.Document{Name: d.Name, Data: []byte(d.Text)}
	}
	return out
}
