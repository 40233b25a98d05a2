package system

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A change is made of the newest value, whoever changes it at the same time.
func TestBucketChange(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv, err := streams.OpenBucket(t.Context(), n.JS("operator"), streams.BucketRules)
	servicetest.OK(t, err)
	b := Bucket{Operator{JS: n.JS("operator")}, kv}
	const key = "tenant.acme"
	calls, others := 0, 0
	change := func() error { // appends x; others is how many other writers append y between reading and writing
		calls = 0
		return b.Change(t.Context(), key, func() ([]byte, uint64, error) {
			calls++
			text, revision := "", uint64(0)
			if e, err := kv.Get(t.Context(), key); err == nil {
				text, revision = string(e.Value()), e.Revision()
			}
			if others > 0 {
				others--
				if _, err := kv.PutString(t.Context(), key, text+"y"); err != nil {
					return nil, 0, err
				}
			}
			return []byte(text + "x"), revision, nil
		})
	}
	for _, tc := range []struct {
		others, calls int
		want, says    string
	}{
		{0, 1, "x", ""},
		{2, 3, "xyyx", ""},
		{changeAttempts, changeAttempts, "xyyx" + strings.Repeat("y", changeAttempts), "another writer keeps changing the key tenant.acme of the rules bucket"},
	} {
		others = tc.others
		err := change()
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || calls != tc.calls {
			t.Errorf("%d other writers: %v after %d calls", tc.others, err, calls)
		}
		if e, err := kv.Get(t.Context(), key); err != nil || string(e.Value()) != tc.want {
			t.Errorf("%d other writers: %v, want %s", tc.others, e, tc.want)
		}
	}
	servicetest.OK(t, kv.Delete(t.Context(), key))
	if err := change(); err != nil || calls != 1 {
		t.Errorf("a deleted key is set again: %v after %d calls", err, calls)
	}
	broken := errors.New("broken")
	if err := b.Change(t.Context(), key, func() ([]byte, uint64, error) { return nil, 0, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
