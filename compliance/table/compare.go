package table

import (
	"bytes"
	"errors"
	"io"

	"github.com/countersign-dev/countersign/evidence"
)

// Result is what comparing a table with the records gave.
type Result struct {
	Same         bool
	At           int64 // of the first byte that differs
	OtherEdition bool  // another edition made it: its bytes cannot be compared
}

// maxFooter bounds the part of a file that is searched for its edition.
const maxFooter = 4 << 20

// Compare makes the table of a bundle's records again and compares it with the
// one that is there, byte by byte. The file itself is never decoded, so nothing
// in it can do harm.
func Compare(c evidence.BundleContents) (Result, error) {
	file := c.Open(evidence.MemberTable)
	if file == nil {
		return Result{}, nil
	}
	cmp := &fileComparer{file: file, diff: -1}
	if err := Write(c, cmp); err != nil && !errors.Is(err, errDiffers) {
		return Result{}, err
	}
	cmp.checkEnd()
	if cmp.diff < 0 {
		return Result{Same: true}, nil
	}
	tail, err := tailOf(c.Open(evidence.MemberTable))
	return Result{At: cmp.diff, OtherEdition: !bytes.Contains(tail, []byte(Edition))}, err
}

// tailOf gives the end of a stream.
func tailOf(r io.Reader) ([]byte, error) {
	if s, ok := r.(io.Seeker); ok {
		if size, err := s.Seek(0, io.SeekEnd); err == nil {
			if _, err := s.Seek(max(0, size-maxFooter), io.SeekStart); err != nil {
				return nil, err
			}
		}
	}
	return io.ReadAll(io.LimitReader(r, maxFooter))
}

var errDiffers = errors.New("differs")

// fileComparer is a writer that compares what is written with a file, until they
// differ.
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
		got, _ := io.ReadFull(c.file, c.buf[:n]) // a short read differs below
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

// checkEnd notices what is behind.
func (c *fileComparer) checkEnd() {
	if n, _ := c.file.Read(c.buf[:1]); c.diff < 0 && n > 0 {
		c.diff = c.at
	}
}
