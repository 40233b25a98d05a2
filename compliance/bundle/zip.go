package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// member is one file of a bundle.
type member struct {
	name string
	data []byte
}

// zipDate is 1 January 1980, the earliest date in a ZIP.
const zipDate = 1<<5 | 1

// packZip writes members as a ZIP in its plainest form: stored (not compressed), without flags,
// comments, extra fields or gaps, all dates 1 January 1980, 00:00, local headers and directory alike;
// made by and needing version 2.0 on FAT (20, 0), no attributes, one disk. The same members always
// give the same bytes. A reader packs what it read again and compares, so that no data can hide
// between members.
//
// Where four bytes are too few, and only there, it is a ZIP64 (packEntries):
//
//   - a member of 2^32-1 bytes or more has 0xffffffff for both sizes and an extra field (id 1, two
//     eight-byte sizes) in both headers;
//   - one that begins at 2^32-1 or later has 0xffffffff for its offset in the directory, and the
//     eight-byte offset last in that field;
//   - such a header says version 4.5 (45), in the directory for made by and needed;
//   - if the directory begins at 2^32-1 or later, a ZIP64 end record (44 bytes after its length,
//     versions 45, disks 0) and its locator (disk 0, 1 disk) stand before the end record, whose
//     offset is 0xffffffff; its other members keep their values.
func packZip(w io.Writer, members []member) error {
	var dir bytes.Buffer
	offset := uint64(0)
	for _, m := range members {
		common := zipCommon(m)
		local := append([]byte("PK\x03\x04"), common...)
		local = append(local, m.name...)
		dir.WriteString("PK\x01\x02\x14\x00") // made by version 2.0 on FAT: no attributes
		dir.Write(common)
		dir.Write(make([]byte, 10)) // no comment, disk 0, no attributes
		dir.Write(binary.LittleEndian.AppendUint32(nil, uint32(offset)))
		dir.WriteString(m.name)
		for _, part := range [][]byte{local, m.data} {
			if _, err := w.Write(part); err != nil {
				return err
			}
			offset += uint64(len(part))
		}
	}
	end := append([]byte("PK\x05\x06"), 0, 0, 0, 0)
	end = binary.LittleEndian.AppendUint16(end, uint16(len(members)))
	end = binary.LittleEndian.AppendUint16(end, uint16(len(members)))
	end = binary.LittleEndian.AppendUint32(end, uint32(dir.Len()))
	end = binary.LittleEndian.AppendUint32(end, uint32(offset))
	dir.Write(append(end, 0, 0))
	_, err := w.Write(dir.Bytes())
	return err
}

// zipCommon is the part that a local header and the directory share: version 2.0, no flags, stored,
// the fixed date, CRC, sizes, and the length of the name.
func zipCommon(m member) []byte {
	b := []byte{20, 0, 0, 0, 0, 0, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, zipDate)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(m.data))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.data)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.name)))
	return append(b, 0, 0)
}

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

// unpackZip reads the members of a bundle: exactly names, in their order. It reads no more bytes than
// the file has.
func unpackZip(r io.ReaderAt, size int64, names []string) ([]member, error) {
	if size > MaxSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrInvalid, size, MaxSize)
	}
	z, err := openZip(r, size)
	if err != nil {
		return nil, err
	}
	if err := checkNames(z.File, names); err != nil {
		return nil, err
	}
	members := make([]member, 0, len(names))
	left := uint64(size)
	for _, f := range z.File {
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 || f.Flags != 0 {
			return nil, fmt.Errorf("%w: %s is not stored plainly; bundles are not compressed", ErrInvalid, f.Name)
		}
		if f.CompressedSize64 > left {
			return nil, fmt.Errorf("%w: %s claims more bytes than the file has", ErrInvalid, f.Name)
		}
		left -= f.CompressedSize64
		raw, err := f.OpenRaw() // firstZipDifference compares the CRC with everything else
		if err != nil {
			return nil, fmt.Errorf("%w: %s cannot be found in the file", ErrInvalid, f.Name)
		}
		data := make([]byte, f.CompressedSize64)
		if _, err := io.ReadFull(raw, data); err != nil {
			return nil, fmt.Errorf("%w: %s is cut short", ErrInvalid, f.Name)
		}
		members = append(members, member{f.Name, data})
	}
	return members, nil
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

// firstZipDifference packs the members again and compares the result with the file. It returns the
// offset of the first difference, or -1.
func firstZipDifference(r io.ReaderAt, size int64, members []member) int64 {
	c := &comparer{r: r, size: size, diff: -1}
	_ = packZip(c, members) // a comparer does not fail
	if c.diff < 0 && c.at != size {
		return c.at
	}
	return c.diff
}

// comparer is a writer that compares what is written with a file.
type comparer struct {
	r              io.ReaderAt
	size, at, diff int64
	buf            [32 << 10]byte
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

// zipNames lists the members of a file; none if it is no bundle.
func zipNames(r io.ReaderAt, size int64) (names []string) {
	z, err := openZip(r, size)
	if err != nil {
		return nil
	}
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	return names
}

// zipMember reads one member. It returns nil if the member is missing, compressed or larger than most.
func zipMember(r io.ReaderAt, size int64, name string, most uint64) []byte {
	z, err := openZip(r, size)
	if err != nil {
		return nil
	}
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
