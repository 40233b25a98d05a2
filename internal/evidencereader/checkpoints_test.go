package evidencereader

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/write"
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

// Each published checkpoint of the shard must be stored, in whatever order they come.
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
		var got []uint64
		rep := s.verify(VerifyOptions{History: historyOf(nil, tc.notes...), Published: []verify.Published{{Source: "stream", Text: s.notes[150]}}})
		for _, f := range rep.Findings {
			if f.Code == verify.CodeCheckpointLost {
				got = append(got, f.Seq)
			}
		}
		if !slices.Equal(got, tc.want) || rep.OK != (tc.want == nil) {
			t.Errorf("%s: missing %v, want %v; %+v", name, got, tc.want, rep.Findings)
		}
	}
	gone := errors.New("gone")
	if _, err := s.Verify(t.Context(), s.name, VerifyOptions{Keys: s.keys, History: historyOf(gone, all...)}); !errors.Is(err, gone) {
		t.Errorf("a history that cannot be read: %v", err)
	}
}

// What the database had when verification began decides. A checkpoint that is stored while the published
// ones are read was not there; one that was stored and published while verification began was.
func TestStoredCheckpointsAreReadOnce(t *testing.T) {
	s := newShard(t, 150)
	fork, err := tree.SignCheckpoint(s.signer, tree.Checkpoint{Shard: s.name, Size: 120, Root: tlog.Hash{1}})
	ok(t, err)
	store := func(size uint64, text string) {
		ok(t, write.New(s.DB.Pool()).InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: s.name, Size: size, Note: text, Created: created}))
	}
	rep := s.verify(VerifyOptions{History: func(yield func(verify.Published, error) bool) {
		if yield(verify.Published{Source: "the newest", Text: s.notes[150]}, nil) {
			store(120, fork)
			yield(verify.Published{Source: "an older one", Text: fork}, nil)
		}
	}})
	if rep.OK || rep.ByCode[verify.CodeCheckpointLost] != 1 || rep.ByCode[verify.CodeCheckpointFork] != 1 {
		t.Errorf("stored meanwhile: %+v", rep.Findings)
	}

	s = newShard(t, 150)
	var then tree.Tree
	for _, b := range s.built[:120] {
		then.Append(b.Hash)
	}
	text, err := tree.SignCheckpoint(s.signer, tree.Checkpoint{Shard: s.name, Size: 120, Root: then.Root()})
	ok(t, err)
	rep = s.verify(VerifyOptions{History: func(yield func(verify.Published, error) bool) {
		store(120, text)
		yield(verify.Published{Source: "the newest", Text: text}, nil)
	}})
	if !rep.OK {
		t.Errorf("stored and published as verification began: %+v", rep.Findings)
	}
}
