package bundle

import (
	"archive/zip"
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"testing"
)

// zeros is a long stream of nothing.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), z.left))
	clear(p[:n])
	z.left -= int64(n)
	return n, nil
}

func (z *zeros) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// sparse is a file that holds only what is not zero, in blocks.
type sparse struct {
	blocks map[int64][]byte
	size   int64
}

const sparseBlock = 32 << 10

var nothing [sparseBlock]byte

func (s *sparse) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		at := s.size % sparseBlock
		n := int(min(int64(len(p)), sparseBlock-at))
		if !bytes.Equal(p[:n], nothing[:n]) {
			b := s.blocks[s.size/sparseBlock]
			if b == nil {
				b = make([]byte, sparseBlock)
				s.blocks[s.size/sparseBlock] = b
			}
			copy(b[at:], p[:n])
		}
		p, s.size = p[n:], s.size+int64(n)
	}
	return total, nil
}

func (s *sparse) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off < s.size {
		at := off % sparseBlock
		m := int(min(sparseBlock-at, int64(len(p)-n), s.size-off))
		if b := s.blocks[off/sparseBlock]; b != nil {
			copy(p[n:n+m], b[at:])
		} else {
			clear(p[n : n+m])
		}
		n, off = n+m, off+int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func nothingOf(name string, size int64) zipEntry {
	crc := crc32.NewIEEE()
	_, _ = io.Copy(crc, &zeros{size})
	return zipEntry{name, size, crc.Sum32(), func() io.ReadSeeker { return &zeros{size} }}
}

// Beyond what four bytes can say the ZIP has extensions, in the one form; any ZIP
// program reads it, and so do we. A member is larger than 4 GB, and others stand
// behind it; the file on disk would have 4 GB, here it is a few blocks.
func TestZipBeyond4GB(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 4 GB of zeros a few times: left out of -short")
	}
	large := nothingOf(memberRecords, zipMax32+12345)
	for name, entries := range map[string][]zipEntry{
		"a large member":       {whole(memberManifest, []byte("first")), large, whole(memberCover, []byte("behind")), whole(memberFindings, nil)},
		"exactly at the limit": {nothingOf(memberRecords, zipMax32), whole(memberCover, []byte("behind"))},
		"just below the limit": {nothingOf(memberRecords, zipMax32-1), whole(memberCover, []byte("behind"))},
	} {
		t.Run(name, func(t *testing.T) {
			file := &sparse{blocks: map[int64][]byte{}}
			ok(t, packEntries(file, entries))
			z, err := zip.NewReader(file, file.size)
			ok(t, err)
			var names []string
			for i, f := range z.File {
				names = append(names, f.Name)
				if f.UncompressedSize64 != uint64(entries[i].size) || f.CRC32 != entries[i].crc {
					t.Errorf("%s has %d bytes, not %d", f.Name, f.UncompressedSize64, entries[i].size)
				}
				if f.UncompressedSize64 < 100 {
					r, err := f.Open()
					ok(t, err)
					got, err := io.ReadAll(r)
					ok(t, err)
					want, _ := io.ReadAll(entries[i].open())
					if !bytes.Equal(got, want) {
						t.Errorf("%s holds %q", f.Name, got)
					}
				}
			}
			read, err := openEntries(z, file, file.size, names)
			ok(t, err)
			for i := range read {
				read[i].crc = entries[i].crc
			}
			c := &comparer{r: file, diff: -1}
			ok(t, packEntries(c, read))
			if c.diff >= 0 || c.at != file.size {
				t.Errorf("packed again it differs at byte %d of %d", c.diff, file.size)
			}
		})
	}
}
