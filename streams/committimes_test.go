package streams

import (
	"testing"
	"time"
)

func TestCommitTimes(t *testing.T) {
	measured := func(single, batch time.Duration) commitTimes {
		var c commitTimes
		c.recordBatch(batch)
		c.recordSingles(20, 20*single)
		return c
	}
	for _, tc := range []struct {
		name  string
		times commitTimes
		last  int // the largest group that is published singly
	}{
		{"nothing measured", commitTimes{}, 12},
		{"only batches measured", commitTimes{batch: time.Second}, 12},
		{"a batch takes as long as 40", measured(time.Millisecond, 40*time.Millisecond), 39},
		{"a batch takes as long as 3", measured(time.Millisecond, 3*time.Millisecond), fewMessages},
	} {
		if !tc.times.prefersBatch(tc.last+1) || tc.times.prefersBatch(tc.last) {
			t.Errorf("%s: want %d messages singly and %d as a batch", tc.name, tc.last, tc.last+1)
		}
	}
	small := measured(time.Millisecond, 40*time.Millisecond)
	small.recordSingles(1, time.Second)
	if want := measured(time.Millisecond, 40*time.Millisecond); small != want {
		t.Errorf("a single message changed the times: %+v, want %+v", small, want)
	}
}

// A batch that was slow once is tried again later.
func TestSlowBatchIsTriedAgain(t *testing.T) {
	var c commitTimes
	c.recordBatch(time.Second)
	c.recordSingles(20, 20*time.Millisecond)
	if c.prefersBatch(20) {
		t.Fatal("a batch of a second is preferred to 20 messages in 20 ms")
	}
	for groups := 1; !c.prefersBatch(20); groups++ {
		if groups > 1000 {
			t.Fatalf("no batch of 20 messages is tried in %d groups", groups)
		}
		c.recordSingles(20, 20*time.Millisecond)
	}
}
