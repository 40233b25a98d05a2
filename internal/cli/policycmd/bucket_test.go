package policycmd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

func bucketOf(t *testing.T, n *servicetest.NATS) *PolicyBucket {
	t.Helper()
	f := target.Flags{Server: n.URL(), User: "operator", Password: "pw-operator", Prefix: "gov", Stream: streams.DefaultShard}
	b, err := openPolicies(t.Context(), f)
	servicetest.OK(t, err)
	t.Cleanup(b.Conn.Close)
	return b
}

func docOf(name, text string) policy.Document {
	return policy.Document{Name: name, Data: []byte(text)}
}

// A set is put only in the place of the one that it was made for.
func TestPutIsCompareAndSet(t *testing.T) {
	b := bucketOf(t, servicetest.Start(t, streams.Shard{}))
	set := events.PolicySet{Author: "a", Documents: []events.PolicyDocument{{Name: "x.yaml", Text: "x"}}}
	first, err := b.put(t.Context(), set, 0)
	servicetest.OK(t, err)
	if _, err := b.put(t.Context(), set, 0); !errors.Is(err, errPushedMeanwhile) {
		t.Errorf("over a set that nobody looked at: %v", err)
	}
	second, err := b.put(t.Context(), set, first)
	servicetest.OK(t, err)
	if _, err := b.put(t.Context(), set, first); !errors.Is(err, errPushedMeanwhile) {
		t.Errorf("over a newer set: %v", err)
	}
	servicetest.OK(t, b.KV.Delete(t.Context(), events.PolicySetKey))
	held, err := b.InForce(t.Context())
	servicetest.OK(t, err)
	if docs, err := held.Documents(); err != nil || len(docs) != 0 || held.SetAt != second+1 {
		t.Errorf("after the deletion: %v, %d, %v", docs, held.SetAt, err)
	}
	_, err = b.put(t.Context(), set, held.SetAt)
	servicetest.OK(t, err)
}

// What the operator's tool takes for in force is what admitters take for it.
func TestInForce(t *testing.T) {
	b := bucketOf(t, servicetest.Start(t, streams.Shard{}))
	_, err := b.KV.Put(t.Context(), "old.yaml", []byte("old"))
	servicetest.OK(t, err)
	revision, changed, err := b.push(t.Context(), []policy.Document{docOf("a.yaml", "1"), docOf("b.yaml", "2")}, "a", "m")
	if err != nil || !changed || revision != 2 {
		t.Fatal(revision, changed, err)
	}
	if again, changed, err := b.push(t.Context(), []policy.Document{docOf("a.yaml", "1"), docOf("b.yaml", "2")}, "a", "m"); err != nil || changed || again != revision {
		t.Error(again, changed, err)
	}
	servicetest.OK(t, b.KV.Delete(t.Context(), "a.yaml"))
	_, err = b.KV.Put(t.Context(), "c.yaml", []byte("3"))
	servicetest.OK(t, err)
	held, err := b.InForce(t.Context())
	servicetest.OK(t, err)
	docs, err := held.Documents()
	servicetest.OK(t, err)
	if len(docs) != 2 || docs[0].Name != "b.yaml" || docs[1].Name != "c.yaml" || held.Revision != 4 || !slices.Equal(held.Mixed(), []string{"a.yaml", "c.yaml"}) {
		t.Errorf("%v, revision %d, mixed %v", docs, held.Revision, held.Mixed())
	}
	list, err := b.pushes(t.Context())
	if err != nil || len(list) != 1 || list[0].Revision != 2 || list[0].Set.Author != "a" || list[0].At.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	for _, missing := range []uint64{1, 3, 4, 99} { // documents, a deletion, nothing: no pushed sets
		if _, err := b.revision(t.Context(), missing); err == nil || !strings.Contains(err.Error(), "policy history") {
			t.Errorf("revision %d: %v", missing, err)
		}
	}
	if p, err := b.revision(t.Context(), 2); err != nil || len(p.Set.Documents) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}
