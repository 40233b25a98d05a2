package evidencereader

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// historyOf yields notes as published, in this order, and then an error if there is one.
func historyOf(end error, notes ...string) iter.Seq2[verify.Published, error] {
	return func(yield func(verify.Published, error) bool) {
		for i, text := range notes {
			if !yield(verify.Published{Source: fmt.Sprint("sequence ", i), Text: text}, nil) {
				return
			}
		}
		if end != nil {
			yield(verify.Published{}, end)
		}
	}
}

// Each published checkpoint of the shard must be stored, whatever the order and the windows in which
// they are compared.
func TestVerifyDemandsPublishedCheckpoints(t *testing.T) {
	s := newShard(t, 150)
	sign := func(name string, size int64) string {
		text, err := tree.SignCheckpoint(s.signer, tree.Checkpoint{Shard: name, Size: size, Root: s.tree.Root()})
		ok(t, err)
		return text
	}
	all := []string{s.notes[150], sign("EAST@20261120T090000.000000000Z", 70), s.notes[50], s.notes[50], s.notes[100]}
	missing, older := sign(s.name, 120), sign(s.name, 3)
	for name, tc := range map[string]struct {
		notes []string
		want  []uint64 // sizes
	}{
		"all are stored":      {all, nil},
		"two are not":         {append([]string{missing, missing}, append(slices.Clone(all), missing, older)...), []uint64{3, 120}},
		"one cannot be read":  {append(slices.Clone(all), "x"), []uint64{0}},
		"none were published": {nil, nil},
	} {
		for _, window := range []int{1, 2, 0} {
			var got []uint64
			rep := s.verify(VerifyOptions{History: historyOf(nil, tc.notes...), Published: []verify.Published{{Source: "stream", Text: s.notes[150]}}, window: window})
			for _, f := range rep.Findings {
				if f.Code == verify.CodeCheckpointLost && !slices.Contains(got, f.Seq) {
					got = append(got, f.Seq)
				}
			}
			if !slices.Equal(got, tc.want) || rep.OK != (tc.want == nil) {
				t.Errorf("%s, in windows of %d: missing %v, want %v; %+v", name, window, got, tc.want, rep.Findings)
			}
		}
	}
	gone := errors.New("gone")
	if _, err := s.Verify(t.Context(), s.name, VerifyOptions{Keys: s.keys, History: historyOf(gone, all...)}); !errors.Is(err, gone) {
		t.Errorf("a history that cannot be read: %v", err)
	}
}
