package bundle

import (
	"bufio"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// RangeFormat is the format of a bundle of everything of a tenant between two times, in one shard.
const RangeFormat = "countersign/range/v1"

// MaxRangeSize bounds the size of the bundle of a range.
const MaxRangeSize = 1 << 42

// memberCover leads from all records together to the root; see cover.go.
const memberCover = "cover.jsonl"

// rangeBatch is how many records are written before the hashes between them are fetched.
const rangeBatch = 4096

// Spool holds a member until its length is known: a temporary file.
type Spool interface {
	io.Writer
	io.ReaderAt
}

// RangeInput is a tenant's evidence between two times. WriteRange keeps only the members for readers
// and a batch of records in memory.
type RangeInput struct {
	Shard, Tenant string
	Space         subject.Space
	From, To      time.Time // broker time; To is excluded
	Checkpoint    string
	Keys          []events.KeyRecord
	Expiries      []verify.ExpiryRecord // as in Input
	// Rows calls yield for the records in the order of their sequences.
	Rows func(yield func(evidence.Row) error) error
	// Nodes returns stored hashes of the tree by their indexes.
	Nodes func(indexes []int64) ([]tlog.Hash, error)
	// Spool makes an empty file for a member.
	Spool func(member string) (Spool, error)
	// Decided and SignKey are as in Input.
	Decided inforce.Source
	SignKey ed25519.PrivateKey
	// OnReread, if set, is called for each record that is read again after all are written,
	// to make the report, the table and the list of policies and mandates.
	OnReread func()
}

// rangeStreams are the members that grow with the range, in their order in the file.
var rangeStreams = []string{memberRecords, memberCover, memberDecisions, memberFindings, memberCalls, memberApprovals}

// rangeNames lists the members of a range's bundle in their order.
func rangeNames(expired, statement bool) []string {
	names := slices.Concat([]string{memberManifest, memberReadme, memberCheckpoint, memberKeys}, rangeStreams, attachedNames(expired))
	if statement {
		names = append(names, MemberStatement)
	}
	return names
}

// spooledMember is a member that is being written into its Spool.
type spooledMember struct {
	name string
	file Spool
	buf  *bufio.Writer
	sum  hash.Hash
	crc  hash.Hash32
	size int64
}

func (s *spooledMember) Write(p []byte) (int, error) {
	s.sum.Write(p)
	s.crc.Write(p)
	s.size += int64(len(p))
	return s.buf.Write(p)
}

func (s *spooledMember) writeLine(b []byte) error {
	if _, err := s.Write(b); err != nil {
		return err
	}
	_, err := s.Write([]byte("\n"))
	return err
}

func (s *spooledMember) toZipEntry() zipEntry {
	return zipEntry{s.name, s.size, s.crc.Sum32(), func() io.ReadSeeker { return io.NewSectionReader(s.file, 0, s.size) }}
}

func (s *spooledMember) manifestLine() Member {
	return Member{Name: s.name, Size: int(s.size), SHA256: hex.EncodeToString(s.sum.Sum(nil))}
}

// rangeWriter writes the streamed members.
type rangeWriter struct {
	in         RangeInput
	checkpoint tree.Checkpoint
	streams    map[string]*spooledMember
	rows       []evidence.Row // of the batch
	covered    int64          // leaves covered so far
	count      int
	expired    int // records without a text
	first      uint64
	last       uint64
}

// WriteRange writes the bundle of a range as a ZIP; the same input gives the same bytes. It returns
// the number of records, or ErrEmpty if there is none.
func WriteRange(w io.Writer, in RangeInput) (records int, err error) {
	rows, texts := in.Rows, newExpiryTally(namedBy(in.Expiries))
	in.Rows = func(yield func(evidence.Row) error) error {
		err := rows(func(r evidence.Row) error { texts.addRow(r); return yield(r) })
		return cmp.Or(err, texts.expiring())
	}
	return packRange(w, in)
}

func packRange(w io.Writer, in RangeInput) (records int, err error) {
	c, err := tree.PeekCheckpoint(in.Checkpoint)
	if err != nil {
		return 0, err
	}
	if c.Shard != in.Shard || in.Tenant == "" || in.Decided == nil || !in.From.Before(in.To) {
		return 0, fmt.Errorf("%w: it needs a tenant, a range, the texts of what decided, and a checkpoint of the shard", ErrInvalid)
	}
	rw := &rangeWriter{in: in, checkpoint: c, streams: map[string]*spooledMember{}}
	for _, name := range append(slices.Clone(rangeStreams), MemberTable) {
		file, err := in.Spool(name)
		if err != nil {
			return 0, err
		}
		rw.streams[name] = &spooledMember{name: name, file: file, buf: bufio.NewWriterSize(file, 1<<16), sum: sha256.New(), crc: crc32.NewIEEE()}
	}
	if err := in.Rows(rw.addRow); err != nil {
		return 0, err
	}
	if rw.count == 0 {
		return 0, ErrEmpty
	}
	if err := rw.finish(); err != nil {
		return 0, err
	}
	return rw.count, rw.packBundle(w)
}

// addRow writes the next record.
func (rw *rangeWriter) addRow(r evidence.Row) error {
	rec, err := recordOf(r)
	if err != nil {
		return fmt.Errorf("sequence %d: %w", r.Seq, err)
	}
	if err := rw.in.checkRecord(r, rec, rw.last); err != nil {
		return err
	}
	if int64(rec.Seq) > rw.checkpoint.Size {
		return fmt.Errorf("%w: sequence %d is newer than the checkpoint; try again in a moment", ErrInvalid, r.Seq)
	}
	if rw.count == 0 {
		rw.first = r.Seq
	}
	rw.count, rw.last = rw.count+1, r.Seq
	line := []byte(r.Record)
	if r.Expired() {
		if line, err = lineOf(r, rec); err != nil {
			return err
		}
		rw.expired++
	}
	if err := rw.streams[memberRecords].writeLine(line); err != nil {
		return err
	}
	if name := memberOfKind(rec.Kind); name != "" && !r.Expired() {
		if err := rw.streams[name].writeLine(rec.Body); err != nil {
			return err
		}
	}
	if rw.rows = append(rw.rows, evidence.Row{Seq: r.Seq}); len(rw.rows) < rangeBatch {
		return nil
	}
	return rw.writeCover()
}

// checkRecord checks that a record belongs to the range and follows the last one.
func (in RangeInput) checkRecord(r evidence.Row, rec evidence.Record, last uint64) error {
	t := rec.BrokerTime.Time
	switch {
	case rec.Seq != r.Seq || rec.Shard != in.Shard || rec.Tenant != in.Tenant || t.Before(in.From) || !t.Before(in.To):
		return fmt.Errorf("%w: sequence %d is not of this tenant and range", ErrInvalid, r.Seq)
	case r.Seq <= last:
		return fmt.Errorf("%w: sequence %d comes after %d", ErrInvalid, r.Seq, last)
	}
	return nil
}

func memberOfKind(kind string) string {
	for _, b := range bodies {
		if b.kind == kind {
			return b.name
		}
	}
	return ""
}

// writeCover writes the subtrees before and between the records of the batch.
func (rw *rangeWriter) writeCover() error {
	var gaps []subtree
	for _, r := range rw.rows {
		gaps = append(gaps, between(rw.covered, int64(r.Seq)-1)...)
		rw.covered = int64(r.Seq)
	}
	rw.rows = rw.rows[:0]
	return rw.writeNodes(gaps)
}

func (rw *rangeWriter) writeNodes(gaps []subtree) error {
	if len(gaps) == 0 {
		return nil
	}
	indexes := make([]int64, len(gaps))
	for i, g := range gaps {
		indexes[i] = g.storedIndex()
	}
	hashes, err := rw.in.Nodes(indexes)
	if err != nil {
		return fmt.Errorf("reading the tree: %w", err)
	}
	for i, h := range hashes {
		text, err := events.Encode(coverNode{gaps[i].level, h})
		if err != nil {
			return err
		}
		if err := rw.streams[memberCover].writeLine(text); err != nil {
			return err
		}
	}
	return nil
}

func (rw *rangeWriter) finish() error {
	if err := rw.writeCover(); err != nil {
		return err
	}
	if err := rw.writeNodes(between(rw.covered, rw.checkpoint.Size)); err != nil {
		return err
	}
	for _, s := range rw.streams {
		if err := s.buf.Flush(); err != nil {
			return err
		}
	}
	return nil
}
