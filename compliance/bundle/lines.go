package bundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
)

// maxLine bounds a line of a member: a record with a body of the greatest size, written with
// escapes.
const maxLine = 16 << 20

// lines reads a member line by line. The last line must end with a line feed.
type lines struct {
	reader     *bufio.Reader
	lineNumber int
}

func newLines(r io.Reader) *lines { return &lines{reader: bufio.NewReaderSize(r, 1<<16)} }

// next returns a line without its line feed; it is valid until the next call.
func (l *lines) next() ([]byte, error) {
	l.lineNumber++
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.readLongLine(bytes.Clone(line))
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		return nil, errors.New("the last line is not ended")
	}
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

func (l *lines) readLongLine(line []byte) ([]byte, error) {
	for len(line) <= maxLine {
		more, err := l.reader.ReadSlice('\n')
		line = append(line, more...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
	return nil, fmt.Errorf("line %d is longer than %d bytes", l.lineNumber, maxLine)
}

func eachLine(r io.Reader, yield func(n int, text []byte) error) error {
	l := newLines(r)
	for {
		text, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %s line %d: %w", ErrInvalid, memberRecords, l.lineNumber, err)
		}
		if err := yield(l.lineNumber, text); err != nil {
			return err
		}
	}
}

// eachRow reads the member of records and calls yield for each.
func eachRow(r io.Reader, yield func(evidence.Row, evidence.Record) error) error {
	return eachLine(r, func(n int, text []byte) error {
		row, rec, err := readLine(text)
		if err != nil {
			return fmt.Errorf("%w: %s line %d: %w", ErrInvalid, memberRecords, n, evidence.ErrRecord)
		}
		return yield(row, rec)
	})
}

// rereadRows reads the member of records again after eachRow has checked it. It skips the check that
// every line is a canonical record, which is most of the work, and the rows without a text.
func rereadRows(r io.Reader, yield func(evidence.Row, evidence.Record) error) error {
	return eachLine(r, func(n int, text []byte) error {
		var rec evidence.Record
		if bytes.HasPrefix(text, expiredPrefix) {
			return nil
		}
		if err := strictjson.Unmarshal(text, &rec); err != nil {
			return fmt.Errorf("%w: %s line %d: %w", ErrInvalid, memberRecords, n, evidence.ErrRecord)
		}
		return yield(build.Built{Record: rec, Canonical: text, Hash: evidence.HashRecord(text)}.Row(), rec)
	})
}
