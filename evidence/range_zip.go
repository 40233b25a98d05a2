package evidence

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// zipEntry is a member that need not be in memory.
type zipEntry struct {
	name string
	size int64
	crc  uint32
	open func() io.Reader
}

func whole(name string, data []byte) zipEntry {
	return zipEntry{name, int64(len(data)), crc32.ChecksumIEEE(data), func() io.Reader { return bytes.NewReader(data) }}
}

// listed is the manifest's line of an entry that is in memory.
func (e zipEntry) listed() ManifestMember {
	data, _ := io.ReadAll(e.open()) // a bytes.Reader
	return ManifestMember{Name: e.name, Size: len(data), SHA256: hexSum(data)}
}

// packEntries is packZip for members that are read from elsewhere.
func packEntries(w io.Writer, entries []zipEntry) error {
	var dir bytes.Buffer
	offset, total := int64(0), int64(0)
	for _, e := range entries {
		if total += e.size; total > MaxRangeSize {
			return fmt.Errorf("%w: it would be larger than %d MB; export a shorter range", ErrBundle, MaxRangeSize>>20)
		}
	}
	for _, e := range entries {
		local := append([]byte("PK\x03\x04"), e.common()...)
		local = append(local, e.name...)
		e.directory(&dir, offset)
		if _, err := w.Write(local); err != nil {
			return err
		}
		n, err := io.Copy(w, e.open())
		if err != nil {
			return err
		}
		if n != e.size {
			return fmt.Errorf("%w: %s changed while it was written", ErrBundle, e.name)
		}
		offset += int64(len(local)) + n
	}
	_, err := w.Write(zipEnd(dir.Bytes(), len(entries), offset))
	return err
}

func (e zipEntry) common() []byte {
	b := []byte{20, 0, 0, 0, 0, 0, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, zipDate)
	b = binary.LittleEndian.AppendUint32(b, e.crc)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.size))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.size))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.name)))
	return append(b, 0, 0)
}

func (e zipEntry) directory(dir *bytes.Buffer, offset int64) {
	dir.WriteString("PK\x01\x02\x14\x00")
	dir.Write(e.common())
	dir.Write(make([]byte, 10))
	dir.Write(binary.LittleEndian.AppendUint32(nil, uint32(offset)))
	dir.WriteString(e.name)
}

// zipEnd is the directory and what is behind it.
func zipEnd(dir []byte, entries int, offset int64) []byte {
	end := append([]byte("PK\x05\x06"), 0, 0, 0, 0)
	end = binary.LittleEndian.AppendUint16(end, uint16(entries))
	end = binary.LittleEndian.AppendUint16(end, uint16(entries))
	end = binary.LittleEndian.AppendUint32(end, uint32(len(dir)))
	end = binary.LittleEndian.AppendUint32(end, uint32(offset))
	return append(append(bytes.Clone(dir), end...), 0, 0)
}

// openEntries finds the members of a file without reading them: exactly names,
// in their order, stored plainly, one behind the other.
func openEntries(r io.ReaderAt, size int64, names []string) ([]zipEntry, error) {
	z, err := zip.NewReader(r, size)
	if z == nil || err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("%w: not a ZIP file, or cut short", ErrBundle)
	}
	if err := checkNames(z.File, names); err != nil {
		return nil, err
	}
	out := make([]zipEntry, 0, len(names))
	for _, f := range z.File {
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 || f.Flags != 0 || f.CompressedSize64 > uint64(size) {
			return nil, fmt.Errorf("%w: %s is not stored plainly, or claims more bytes than the file has", ErrBundle, f.Name)
		}
		at, err := f.DataOffset()
		if err != nil || at+int64(f.CompressedSize64) > size {
			return nil, fmt.Errorf("%w: %s cannot be found in the file", ErrBundle, f.Name)
		}
		length := int64(f.CompressedSize64)
		out = append(out, zipEntry{f.Name, length, f.CRC32, func() io.Reader { return io.NewSectionReader(r, at, length) }})
	}
	return out, nil
}

func rangeReadme(m Manifest) string {
	return fmt.Sprintf(`Evidence of everything of one tenant between two times, exported by Countersign.

  tenant      %q
  range       %s to %s (excluded), by the log's clock
  shard       %s
  records     %d, log sequences %d to %d
  checkpoint  size %d, root %s

To verify it, offline, with nothing but this file and the checkpoint key that
its owner published:

  countersign verify --bundle THIS.zip --key CHECKPOINT.vkey

Why it can be believed: records.jsonl holds one canonical JSON record a line.
Each names the hash of the one before it in its session; sessions may have begun
before the range and may go on after it. cover.jsonl holds, from left to right,
the subtrees of the log's Merkle tree that have no record of this file in them:
with the records, they give the root in checkpoint.txt, which is signed by the
checkpoint key. keys.json holds the keys that signed the decisions, vouched for
by the same checkpoint key. Values marked [redacted:...] were taken out of this
copy; each has a commitment in its record.

Whether a sequence that is not here is another tenant's, only the whole log can
show: a record that was left out is noticed if its session has records here
before and after it, and not otherwise. Records of the pipeline itself (changes of policies, mandates, keys)
belong to no tenant and are not here.
%s`, m.Tenant, m.From, m.To, m.Shard, m.Records, m.Seqs[0], m.Seqs[len(m.Seqs)-1], m.CheckpointSize, m.CheckpointRoot, readmeAttached[BundleFormatV2])
}
