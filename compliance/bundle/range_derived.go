package bundle

import (
	"bytes"
	"errors"
	"io"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// derivedReader compares the members that follow from the records with the records.
type derivedReader struct {
	lines          map[string]*lines // by kind
	firstDifferent map[string]int    // by kind: the first line that differs
}

func (b *rangeBundle) newDerivedReader() *derivedReader {
	d := &derivedReader{lines: map[string]*lines{}, firstDifferent: map[string]int{}}
	for _, body := range bodies {
		d.lines[body.kind] = newLines(b.entries[body.name].open())
	}
	return d
}

func (d *derivedReader) compareRecord(row evidence.Row, r evidence.Record) {
	l := d.lines[r.Kind]
	if l == nil || row.Expired() || d.firstDifferent[r.Kind] > 0 {
		return
	}
	if text, err := l.next(); err != nil || !bytes.Equal(text, r.Body) {
		d.firstDifferent[r.Kind] = max(l.lineNumber, 1)
	}
}

func (d *derivedReader) reportDifferences(rep *verify.Report) {
	for _, body := range bodies {
		if _, err := d.lines[body.kind].next(); d.firstDifferent[body.kind] == 0 && !errors.Is(err, io.EOF) {
			d.firstDifferent[body.kind] = d.lines[body.kind].lineNumber
		}
		if at := d.firstDifferent[body.kind]; at > 0 {
			add(rep, verify.CodeMember, 0, body.name, "not what follows from the records, first in line %d", at)
		}
	}
}
