package records

import (
	"fmt"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

func TestSessionParents(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	var rows []storage.EvidenceRow
	add := func(tenant, session string, parent *events.CallParent, more ...events.TimelineEntry) {
		r := storagetest.RecordRow(t, shard, uint64(len(rows)+1), storage.KindCall, events.Call{CallID: "c", Timeline: append([]events.TimelineEntry{}, more...), Parent: parent})
		r.Tenant, r.Session = tenant, session
		rows = append(rows, r)
	}
	of := func(session, call string) *events.CallParent {
		return &events.CallParent{Session: session, Source: "rt1", CallID: call, By: "event"}
	}
	add(shard, "top", nil)                                                            // 1
	add(shard, "kid", &events.CallParent{Session: "top", Source: "rt1", By: "trace"}) // 2
	add(shard, "kid", of("top", "call_1"))                                            // 3
	add(shard, "grandkid", of("kid", "call_2"))                                       // 4
	add(shard+" other", "kid", of("elsewhere", "call_3"))                             // 5
	add(shard, "liar", nil, events.TimelineEntry{Step: `"parent":{"session":"x"}`})   // 6
	add(shard, "late", of("top", ""))                                                 // 7
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from, to uint64
		want     []string
	}{
		"all of it":  {1, 100, []string{"kid of top call_1 3", "grandkid of kid call_2 4", "late of top  7"}},
		"in a range": {4, 6, []string{"grandkid of kid call_2 4"}},
		"nothing":    {50, 60, nil},
	} {
		list, err := db.SessionParents(t.Context(), shard, shard, c.from, c.to)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range list {
			got = append(got, fmt.Sprintf("%s of %s %s %d", k.Session, k.Parent.Session, k.Parent.CallID, k.Seq))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
