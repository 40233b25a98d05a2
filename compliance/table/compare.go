package table

import (
	"bytes"
	"errors"
	"io"
)

// Result is the result of comparing a table with the records.
type Result struct {
	Same         bool
	At           int64 // offset of the first byte that differs
	OtherEdition bool  // it names another edition, whose bytes cannot be compared
}

// maxFooter bounds the part of a file that is searched for its edition.
const maxFooter = 4 << 20

// What a table of any edition has: the beginning of the edition's name, and the end of every Parquet file.
const (
	anyEdition = "countersign/records-table/v"
	fileEnd    = "PAR1"
)

// Compare makes the table of records again and compares it with a file, byte by byte. It never decodes
// the file, so malformed content cannot do harm.
func Compare(rows Rows, file io.ReadSeeker) (Result, error) {
	cmp := &fileComparer{file: file, diff: -1}
	if err := Write(rows, cmp); err != nil && !errors.Is(err, errDiffers) {
		return Result{}, err
	}
	cmp.checkEnd()
	if cmp.diff < 0 {
		return Result{Same: true}, nil
	}
	tail, err := tailOf(file)
	other := bytes.Contains(tail, []byte(anyEdition)) && !bytes.Contains(tail, []byte(Edition)) && bytes.HasSuffix(tail, []byte(fileEnd))
	return Result{At: cmp.diff, OtherEdition: other}, err
}

// tailOf returns the end of a file.
func tailOf(file io.ReadSeeker) ([]byte, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(max(0, size-maxFooter), io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, maxFooter))
}

var errDiffers = errors.New("differs")

// fileComparer is a writer that compares what is written with a file, up to the first difference.
type fileComparer struct {
	file io.Reader
	at   int64
	diff int64
	buf  [64 << 10]byte
}

func (c *fileComparer) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), len(c.buf))
		got, _ := io.ReadFull(c.file, c.buf[:n]) // a short read counts as a difference below
		if !bytes.Equal(c.buf[:got], p[:n]) {
			for i := range n {
				if i >= got || c.buf[i] != p[i] {
					c.diff = c.at + int64(i)
					return 0, errDiffers
				}
			}
		}
		p, c.at = p[n:], c.at+int64(n)
	}
	return total, nil
}

// checkEnd detects further bytes at the end of the file.
func (c *fileComparer) checkEnd() {
	if n, _ := c.file.Read(c.buf[:1]); c.diff < 0 && n > 0 {
		c.diff = c.at
	}
}
