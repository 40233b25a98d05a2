package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// member is one file of a bundle.
type member struct {
	name string
	data []byte
}

// manifestLine is the manifest's entry for the member.
func (m member) manifestLine() Member {
	return Member{Name: m.name, Size: len(m.data), SHA256: hexSum(m.data)}
}

// zipDate is 1 January 1980, the earliest date in a ZIP.
const zipDate = 1<<5 | 1

// maxDirectory bounds the directory of a file in bytes. A bundle's has less than half of it.
const maxDirectory = 4096

// openZip reads the directory of a file. archive/zip would read one of any length, in many times its
// bytes of memory, so the end of the file must be as packEntries writes it and the directory short.
func openZip(r io.ReaderAt, size int64) (*zip.Reader, error) {
	invalid := fmt.Errorf("%w: not a ZIP file, or cut short, or with something behind it", ErrInvalid)
	tail := make([]byte, min(size, maxDirectory+int64(len(zipEnd(nil, 0, zipMax32)))))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	short := len(zipEnd(nil, 0, 0))
	if len(tail) < short || !bytes.HasPrefix(tail[len(tail)-short:], []byte("PK\x05\x06")) {
		return nil, invalid
	}
	end := tail[len(tail)-short:]
	entries, length := int(binary.LittleEndian.Uint16(end[10:])), int64(binary.LittleEndian.Uint32(end[12:]))
	if length > maxDirectory || entries > maxDirectory/46 { // an entry has at least 46 bytes
		return nil, fmt.Errorf("%w: it has too many members", ErrInvalid)
	}
	offset := size - length - int64(short)
	if binary.LittleEndian.Uint32(end[16:]) == zipMax32 {
		offset = size - length - int64(len(zipEnd(nil, 0, zipMax32)))
	}
	from := int64(len(tail)) - (size - offset)
	if offset < 0 || from < 0 || !bytes.Equal(tail[from:], zipEnd(tail[from:from+length], entries, offset)) {
		return nil, invalid
	}
	z, err := zip.NewReader(r, size)
	if z == nil || err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, invalid
	}
	return z, nil
}

func checkNames(files []*zip.File, names []string) error {
	seen := map[string]bool{}
	for _, f := range files {
		switch {
		case seen[f.Name]:
			return fmt.Errorf("%w: member %.80q is there twice", ErrInvalid, f.Name)
		case !slices.Contains(names, f.Name):
			return fmt.Errorf("%w: unknown member %.80q", ErrInvalid, f.Name)
		}
		seen[f.Name] = true
	}
	for _, name := range names {
		if !seen[name] {
			return fmt.Errorf("%w: member %s is missing", ErrInvalid, name)
		}
	}
	for i, f := range files {
		if f.Name != names[i] {
			return fmt.Errorf("%w: member %.80q is out of order", ErrInvalid, f.Name)
		}
	}
	return nil
}

// comparer is a writer that compares what is written with a file.
type comparer struct {
	r        io.ReaderAt
	at, diff int64
	buf      [32 << 10]byte
}

func (c *comparer) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 && c.diff < 0 {
		n := min(len(p), len(c.buf))
		got, _ := c.r.ReadAt(c.buf[:n], c.at) // a short read counts as a difference below
		if i := firstDifference(c.buf[:got], p[:n]); i < n {
			c.diff = c.at + int64(i)
		}
		p, c.at = p[n:], c.at+int64(n)
	}
	return total, nil
}

// zipNames lists the members of a file.
func zipNames(z *zip.Reader) (names []string) {
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	return names
}

// zipMember reads one member. It returns nil if the member is missing, compressed or larger than most.
func zipMember(z *zip.Reader, name string, most uint64) []byte {
	for _, f := range z.File {
		if f.Name != name || f.Method != zip.Store || f.CompressedSize64 > most {
			continue
		}
		raw, err := f.OpenRaw()
		if err != nil {
			return nil
		}
		data, err := io.ReadAll(io.LimitReader(raw, int64(f.CompressedSize64)))
		if err != nil {
			return nil
		}
		return data
	}
	return nil
}

// firstDifference is the index of the first difference of a and b.
func firstDifference(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) { // many times faster than the loop
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
