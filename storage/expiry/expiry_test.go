package expiry

import (
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

// Who is named, where, and since when a session is silent: the longest comes first.
func TestNaming(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	var rows []storage.EvidenceRow
	for i, x := range []struct{ tenant, session, record string }{
		{"acme", "s1", `{"agent":"dora"}`}, {"acme", "s2", `{"agent":"dora2","x":"dor"}`}, {"acme", "", `{"user":"dora"}`},
		{"acme", "s3", `{"agent":"emil"}`}, {"globex", "s4", `{"agent":"dora"}`}, {"acme", "s1", `{"n":1}`},
	} {
		r := storagetest.Row(shard, uint64(i+1))
		r.Tenant, r.Session, r.Record, r.BrokerTime = x.tenant, x.session, x.record, storagetest.Time.Add(time.Duration(i)*time.Hour)
		rows = append(rows, r)
	}
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	sessions, err := db.SessionsContaining(t.Context(), shard, "acme", `"dora"`)
	if err != nil || !slices.Equal(sessions, []string{"", "s1"}) {
		t.Errorf("%v, %q", err, sessions)
	}
	var at []uint64
	err = db.RecordsContaining(t.Context(), shard, "acme", `"dora"`, func(_ string, seq uint64) error { at = append(at, seq); return nil })
	if err != nil || !slices.Equal(at, []uint64{1, 3}) {
		t.Errorf("%v, %d", err, at)
	}
	loose, err := db.SessionlessContaining(t.Context(), shard, "acme", `"dora"`)
	if err != nil || !slices.Equal(loose, []uint64{3}) {
		t.Errorf("%v, %d", err, loose)
	}
	for _, tt := range []struct {
		before time.Duration
		want   []string
	}{{0, nil}, {2 * time.Hour, []string{"s2"}}, {4 * time.Hour, []string{"s2", "s3"}}, {9 * time.Hour, []string{"s2", "s3", "s1"}}} {
		var got []string
		err := db.IdleSessions(t.Context(), shard, "acme", storagetest.Time.Add(tt.before), false, func(s string, seq uint64, at time.Time) error {
			if s == "s1" && (seq != 6 || !at.Equal(storagetest.Time.Add(5*time.Hour))) {
				t.Errorf("%s: %d, %v", s, seq, at)
			}
			got = append(got, s)
			return nil
		})
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("before %v: %v, %q", tt.before, err, got)
		}
	}
}
