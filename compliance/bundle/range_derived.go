package bundle

import (
	"bytes"
	"errors"
	"io"

	"github.com/countersign-dev/countersign/evidence"
)

// derivedReader compares the members that follow from the records with them.
type derivedReader struct {
	lines map[string]*lines // by kind
	bad   map[string]int    // by kind: the first line that differs
}

func (b *rangeBundle) derived() *derivedReader {
	d := &derivedReader{lines: map[string]*lines{}, bad: map[string]int{}}
	for _, body := range bodies {
		d.lines[body.kind] = newLines(b.entries[body.name].open())
	}
	return d
}

func (d *derivedReader) take(row evidence.Row, r evidence.Record) {
	l := d.lines[r.Kind]
	if l == nil || row.Expired() || d.bad[r.Kind] > 0 {
		return
	}
	if text, err := l.next(); err != nil || !bytes.Equal(text, r.Body) {
		d.bad[r.Kind] = max(l.n, 1)
	}
}

func (d *derivedReader) finish(rep *evidence.Report) {
	for _, body := range bodies {
		if _, err := d.lines[body.kind].next(); d.bad[body.kind] == 0 && !errors.Is(err, io.EOF) {
			d.bad[body.kind] = d.lines[body.kind].n
		}
		if at := d.bad[body.kind]; at > 0 {
			add(rep, evidence.CodeMember, 0, body.name, "not what follows from the records, first in line %d", at)
		}
	}
}
