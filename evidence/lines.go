package evidence

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// maxLine bounds a line of a member: a record with a body of the largest size,
// written with escapes.
const maxLine = 16 << 20

// lineReader reads a member line by line; the last one must have its line feed.
type lineReader struct {
	reader     *bufio.Reader
	lineNumber int
}

func newLines(r io.Reader) *lineReader { return &lineReader{reader: bufio.NewReaderSize(r, 1<<16)} }

// next gives a line without its line feed; it holds until the next call.
func (l *lineReader) next() ([]byte, error) {
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

func (l *lineReader) readLongLine(line []byte) ([]byte, error) {
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
			return fmt.Errorf("%w: %s line %d: %w", ErrBundle, memberRecords, l.lineNumber, err)
		}
		if err := yield(l.lineNumber, text); err != nil {
			return err
		}
	}
}

// eachRow reads the member of records.
func eachRow(r io.Reader, yield func(Row, Record) error) error {
	return eachLine(r, func(n int, text []byte) error {
		row, rec, err := readLine(text)
		if err != nil {
			return fmt.Errorf("%w: %s line %d: %w", ErrBundle, memberRecords, n, ErrRecord)
		}
		return yield(row, rec)
	})
}

// rereadRows reads the member of records once more, after every line of it was
// found to be a record: it does not look for that again, which is most of the
// work. Those without a text it leaves out.
func rereadRows(r io.Reader, yield func(Row, Record) error) error {
	return eachLine(r, func(n int, text []byte) error {
		var rec Record
		if bytes.HasPrefix(text, expiredPrefix) {
			return nil
		}
		if err := strictjson.Unmarshal(text, &rec); err != nil {
			return fmt.Errorf("%w: %s line %d: %w", ErrBundle, memberRecords, n, ErrRecord)
		}
		return yield(Built{Record: rec, Canonical: text, Hash: HashRecord(text)}.Row(), rec)
	})
}
