package bundle

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/countersign-dev/countersign/evidence/verify"
)

// member is one file of a bundle.
type member struct {
	name string
	data []byte
}

// manifestLine is the manifest's entry for the member.
func (m member) manifestLine() Member {
	sum := sha256.Sum256(m.data)
	return Member{Name: m.name, Size: len(m.data), SHA256: hex.EncodeToString(sum[:])}
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

// zipEntry is a member that need not be in memory.
type zipEntry struct {
	name string
	size int64
	crc  uint32
	open func() io.ReadSeeker
}

// whole is a member that is in memory.
func whole(name string, data []byte) zipEntry {
	return zipEntry{name, int64(len(data)), crc32.ChecksumIEEE(data), func() io.ReadSeeker { return bytes.NewReader(data) }}
}

// The ZIP holds the members in its plainest form: stored (not compressed), without flags,
// comments, extra fields or gaps, all dates 1 January 1980, 00:00, local headers and directory alike;
// made by and needing version 2.0 on FAT (20, 0), no attributes, one disk. The same members always
// give the same bytes. A reader packs what it read again and compares, so that no data can hide
// between members.
//
// Where four bytes are too few, and only there, it is a ZIP64:
//
//   - a member of 2^32-1 bytes or more has 0xffffffff for both sizes and an extra field (id 1, two
//     eight-byte sizes) in both headers;
//   - one that begins at 2^32-1 or later has 0xffffffff for its offset in the directory, and the
//     eight-byte offset last in that field;
//   - such a header says version 4.5 (45), in the directory for made by and needed;
//   - if the directory begins at 2^32-1 or later, a ZIP64 end record (44 bytes after its length,
//     versions 45, disks 0) and its locator (disk 0, 1 disk) stand before the end record, whose
//     offset is 0xffffffff; its other members keep their values.
func packEntries(w io.Writer, entries []zipEntry) error {
	var dir bytes.Buffer
	offset, total := int64(0), int64(0)
	for _, e := range entries {
		if total += e.size; total > maxSize {
			return fmt.Errorf("%w: it would be larger than %d GB", ErrInvalid, maxSize>>30)
		}
	}
	for _, e := range entries {
		local := e.localHeader()
		e.appendDirectory(&dir, offset)
		if _, err := w.Write(local); err != nil {
			return err
		}
		n, err := io.Copy(w, e.open())
		if err != nil {
			return err
		}
		if n != e.size {
			return fmt.Errorf("%w: %s changed while it was written", ErrInvalid, e.name)
		}
		offset += int64(len(local)) + n
	}
	_, err := w.Write(zipEnd(dir.Bytes(), len(entries), offset))
	return err
}

// ZIP has extensions for values that exceed four bytes (APPNOTE 4.3.14, 4.5.3). A bundle has them
// exactly where they are needed: for a member with such a size, and at the end of a file with such
// a directory offset.
const (
	zipMax32     = 1<<32 - 1 // refers to the extension
	zipVersion20 = 20        // version 2.0
	zipVersion45 = 45        // version 4.5: with extensions
	zip64Field   = 1
)

// commonHeader is the part that a local header and the directory share, up to the length of the name.
func (e zipEntry) commonHeader(version uint16) []byte {
	b := binary.LittleEndian.AppendUint16(nil, version)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint16(b, zipDate)
	b = binary.LittleEndian.AppendUint32(b, e.crc)
	b = binary.LittleEndian.AppendUint32(b, uint32(min(e.size, zipMax32)))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(e.size, zipMax32)))
	return binary.LittleEndian.AppendUint16(b, uint16(len(e.name)))
}

func (e zipEntry) needsZip64() bool { return e.size >= zipMax32 }

func zipVersion(large bool) uint16 {
	if large {
		return zipVersion45
	}
	return zipVersion20
}

// zip64Extension is the extension field with eight-byte values; nil without values.
func zip64Extension(values ...int64) []byte {
	if len(values) == 0 {
		return nil
	}
	b := binary.LittleEndian.AppendUint16(nil, zip64Field)
	b = binary.LittleEndian.AppendUint16(b, uint16(8*len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// localHeader is the header before a member.
func (e zipEntry) localHeader() []byte {
	var field []byte
	if e.needsZip64() {
		field = zip64Extension(e.size, e.size)
	}
	b := append([]byte("PK\x03\x04"), e.commonHeader(zipVersion(e.needsZip64()))...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(field)))
	return append(append(b, e.name...), field...)
}

func (e zipEntry) appendDirectory(dir *bytes.Buffer, offset int64) {
	var values []int64
	if e.needsZip64() {
		values = append(values, e.size, e.size)
	}
	if offset >= zipMax32 {
		values = append(values, offset)
	}
	field, version := zip64Extension(values...), zipVersion(len(values) > 0)
	dir.WriteString("PK\x01\x02")
	dir.Write(binary.LittleEndian.AppendUint16(nil, version))
	dir.Write(e.commonHeader(version))
	dir.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(field))))
	dir.Write(make([]byte, 10))
	dir.Write(binary.LittleEndian.AppendUint32(nil, uint32(min(offset, zipMax32))))
	dir.WriteString(e.name)
	dir.Write(field)
}

// zipEnd is the directory and the records after it. The number of members never needs an extension.
func zipEnd(dir []byte, entries int, offset int64) []byte {
	out := bytes.Clone(dir)
	if offset >= zipMax32 {
		at := offset + int64(len(dir))
		out = append(out, "PK\x06\x06"...)
		out = binary.LittleEndian.AppendUint64(out, 44) // the length of the rest of this record
		out = binary.LittleEndian.AppendUint16(out, zipVersion45)
		out = binary.LittleEndian.AppendUint16(out, zipVersion45)
		out = append(out, 0, 0, 0, 0, 0, 0, 0, 0) // disks
		for _, n := range []int64{int64(entries), int64(entries), int64(len(dir)), offset} {
			out = binary.LittleEndian.AppendUint64(out, uint64(n))
		}
		out = append(append(out, "PK\x06\x07"...), 0, 0, 0, 0)
		out = binary.LittleEndian.AppendUint64(out, uint64(at))
		out = binary.LittleEndian.AppendUint32(out, 1)
	}
	out = append(append(out, "PK\x05\x06"...), 0, 0, 0, 0)
	out = binary.LittleEndian.AppendUint16(out, uint16(entries))
	out = binary.LittleEndian.AppendUint16(out, uint16(entries))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(dir)))
	out = binary.LittleEndian.AppendUint32(out, uint32(min(offset, zipMax32)))
	return append(out, 0, 0)
}

// openEntries finds the members of a file without reading them. The file must have exactly names, in
// their order, stored without compression, and not more bytes in them than the file has: members that
// overlap would be read twice.
func openEntries(z *zip.Reader, r io.ReaderAt, size int64, names []string) ([]zipEntry, error) {
	if err := checkNames(z.File, names); err != nil {
		return nil, err
	}
	out, left := make([]zipEntry, 0, len(names)), uint64(size)
	for _, f := range z.File {
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 || f.Flags != 0 || f.CompressedSize64 > left {
			return nil, fmt.Errorf("%w: %s is not stored plainly, or claims more bytes than the file has", ErrInvalid, f.Name)
		}
		left -= f.CompressedSize64
		at, err := f.DataOffset()
		if err != nil || at+int64(f.CompressedSize64) > size {
			return nil, fmt.Errorf("%w: %s cannot be found in the file", ErrInvalid, f.Name)
		}
		length := int64(f.CompressedSize64)
		out = append(out, zipEntry{f.Name, length, f.CRC32, func() io.ReadSeeker { return io.NewSectionReader(r, at, length) }})
	}
	return out, nil
}

// comparePacked packs the members again and compares the result with the file.
func comparePacked(r io.ReaderAt, size int64, entries []zipEntry, rep *verify.Report) {
	c := &comparer{r: r, diff: -1}
	for i, e := range entries {
		crc := crc32.NewIEEE()
		if _, err := io.Copy(crc, e.open()); err == nil {
			entries[i].crc = crc.Sum32()
		}
	}
	_ = packEntries(c, entries) // a comparer does not fail
	if c.diff < 0 && c.at != size {
		c.diff = c.at
	}
	if c.diff >= 0 {
		add(rep, verify.CodeMember, 0, "archive", "the ZIP differs from its one form at byte %d", c.diff)
	}
}
