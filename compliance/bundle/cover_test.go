package bundle

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// treeOf makes a log of size records.
func treeOf(size int) (t tree.Tree, hashes []tlog.Hash, rows []evidence.Row) {
	for i := range size {
		r := evidence.Row{Seq: uint64(i + 1), RecordHash: [32]byte{byte(i), byte(i >> 8), 1}}
		for _, n := range t.Append(r.RecordHash) {
			hashes = append(hashes, n.Hash)
		}
		rows = append(rows, r)
	}
	return t, hashes, rows
}

// coverOf is the cover of some rows, a line each.
func coverOf(t rapid.TB, hashes []tlog.Hash, rows []evidence.Row, size int64) (list []string) {
	at := int64(0)
	add := func(to int64) {
		for _, s := range between(at, to) {
			text, err := events.Encode(coverNode{s.level, hashes[s.storedIndex()]})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(text))
		}
	}
	for _, r := range rows {
		add(int64(r.Seq) - 1)
		at = int64(r.Seq)
	}
	add(size)
	return list
}

// climb appends rows and cover, and gives the root, if they fit.
func climb(cover []string, rows []evidence.Row, size int64) (root tlog.Hash, fits bool, err error) {
	var text bytes.Buffer
	for _, line := range cover {
		fmt.Fprintln(&text, line)
	}
	var merkle tree.Tree
	c := &coverReader{lines: newLines(&text), tree: &merkle}
	for _, r := range rows {
		if err := c.addLeaf(r); err != nil {
			return root, false, err
		}
	}
	if err := c.finish(size); err != nil || c.mismatch {
		return root, false, err
	}
	return merkle.Root(), merkle.Size() == size, nil
}

// Any choice of records and their cover give the root; without a line, with one
// more, with two changed about or with a record left out they do not.
func TestCoverGivesTheRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 300).Draw(t, "size")
		merkle, hashes, all := treeOf(size)
		var rows []evidence.Row
		rare := rapid.IntRange(1, 9).Draw(t, "rare")
		for _, r := range all {
			if rapid.IntRange(0, rare).Draw(t, "take") == 0 {
				rows = append(rows, r)
			}
		}
		cover := coverOf(t, hashes, rows, int64(size))
		root, fits, err := climb(cover, rows, int64(size))
		if err != nil || !fits || root != merkle.Root() {
			t.Fatalf("%d of %d records: fits is %t, %v", len(rows), size, fits, err)
		}
		if len(cover) > (len(rows)+1)*2*10 {
			t.Errorf("%d subtrees for %d records of %d", len(cover), len(rows), size)
		}
		damaged := func(what string, cover []string, rows []evidence.Row) {
			if root, fits, err := climb(cover, rows, int64(size)); err == nil && fits && root == merkle.Root() {
				t.Errorf("%s: the root is met all the same", what)
			}
		}
		damaged("a line more", append(append([]string{}, cover...), `{"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":0}`), rows)
		if len(cover) > 0 {
			damaged("a line less", cover[1:], rows)
			damaged("another height", append([]string{strings.Replace(cover[0], `"level":`, `"level":1`, 1)}, cover[1:]...), rows)
		}
		if len(rows) > 0 {
			damaged("a record less", cover, rows[1:])
			other := append([]evidence.Row{{Seq: rows[0].Seq, RecordHash: [32]byte{9, 9, 9}}}, rows[1:]...)
			damaged("another record", cover, other)
		}
	})
}

func TestCoverThatIsNone(t *testing.T) {
	for _, line := range []string{"{", `{"level":1}x`, `{"hash":"AA==","level":0}`, `{"a":1,"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":0}`} {
		if _, fits, err := climb([]string{line}, nil, 1); err == nil && fits {
			t.Errorf("%s is taken for a subtree", line)
		}
	}
	for _, line := range []string{`{"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":-1}`, `{"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":63}`,
		`{"level":0,"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`} {
		if _, fits, _ := climb([]string{line}, nil, 1); fits {
			t.Errorf("%s fits", line)
		}
	}
	if root, fits, err := climb([]string{`{"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":0}`}, nil, 1); err != nil || !fits || root != (tlog.Hash{}) {
		t.Errorf("a subtree alone: %t, %v", fits, err)
	}
}
