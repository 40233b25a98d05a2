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
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// maxSize bounds the size of a bundle.
const maxSize = 1 << 42

// batchSize is how many records are written before the hashes between them are fetched.
const batchSize = 4096

// Spool holds a member until its length is known: a temporary file.
type Spool interface {
	io.Writer
	io.ReaderAt
}

// Input is the evidence for a bundle: a tenant's records of one session, or those between two times.
// Write keeps only the members for readers and a batch of records in memory.
type Input struct {
	Shard, Tenant string
	Session       string // empty for a range
	Space         subject.Space
	From, To      time.Time // of a range: broker time; To is excluded
	Checkpoint    string    // a signed note as it is stored
	// Keys are the vouched receipt keys that signed the decisions.
	Keys []events.KeyRecord
	// Expiries are the expiry records that explain rows without a text, each with its proof
	// of inclusion in Checkpoint.
	Expiries []verify.ExpiryRecord
	// Rows calls yield for the records in the order of their sequences.
	Rows func(yield func(evidence.Row) error) error
	// Nodes returns stored hashes of the tree by their indexes.
	Nodes func(indexes []int64) ([]tlog.Hash, error)
	// Spool makes an empty file for a member.
	Spool func(member string) (Spool, error)
	// Decided supplies the texts of policies and mandates for MemberInForce. Required.
	Decided inforce.Source
	// SignKey signs the member MemberStatement; nil omits it.
	SignKey ed25519.PrivateKey
	// OnReread, if set, is called for each record that is read again after all are written,
	// to make the report, the table and the list of policies and mandates.
	OnReread func()
}

// manifest is the manifest without what follows from the records.
func (in Input) manifest(c tree.Checkpoint) Manifest {
	m := Manifest{Format: Format, Shard: in.Shard, Tenant: in.Tenant, Session: in.Session, SubjectPrefix: cmp.Or(in.Space.Prefix, subject.DefaultPrefix),
		CheckpointSize: c.Size, CheckpointRoot: c.Root.String()}
	if in.Session == "" {
		m.From, m.To = events.At(in.From), events.At(in.To)
	}
	return m
}

// checkRecord checks that a record belongs to the session or range and follows the last one.
func (in Input) checkRecord(r evidence.Row, rec evidence.Record, last uint64) error {
	belongs := rec.Session == in.Session
	if t := rec.BrokerTime.Time; in.Session == "" {
		belongs = !t.Before(in.From) && t.Before(in.To)
	}
	switch {
	case !belongs || rec.Seq != r.Seq || rec.Shard != in.Shard || rec.Tenant != in.Tenant:
		return fmt.Errorf("%w: sequence %d is not of this tenant and of this session or range", ErrInvalid, r.Seq)
	case r.Seq <= last:
		return fmt.Errorf("%w: sequence %d comes after %d", ErrInvalid, r.Seq, last)
	}
	return nil
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

// writer writes the streamed members.
type writer struct {
	in         Input
	checkpoint tree.Checkpoint
	manifest   Manifest // without its members
	streams    map[string]*spooledMember
	batch      []uint64 // sequences of the records that the cover does not have yet
	covered    int64    // leaves covered so far
	last       uint64
}

// Write writes a bundle as a ZIP; the same input gives the same bytes. It returns the number of
// records, or ErrEmpty if there is none. It checks that the input is consistent, but not that it
// verifies: that is for those who get the bundle (Verify).
func Write(w io.Writer, in Input) (records int, err error) {
	rows, texts := in.Rows, newExpiryTally(namedBy(in.Expiries))
	in.Rows = func(yield func(evidence.Row) error) error {
		err := rows(func(r evidence.Row) error { texts.addRow(r); return yield(r) })
		return cmp.Or(err, texts.expiring())
	}
	return write(w, in)
}

func write(w io.Writer, in Input) (records int, err error) {
	c, err := tree.PeekCheckpoint(in.Checkpoint)
	if err != nil {
		return 0, err
	}
	if ranged := in.From.Before(in.To); c.Shard != in.Shard || in.Tenant == "" || in.Decided == nil || ranged != (in.Session == "") {
		return 0, fmt.Errorf("%w: it needs a tenant, a session or a range, the texts of what decided, and a checkpoint of the shard", ErrInvalid)
	}
	b := &writer{in: in, checkpoint: c, manifest: in.manifest(c), streams: map[string]*spooledMember{}}
	for _, name := range append(slices.Clone(streamed), MemberTable) {
		file, err := in.Spool(name)
		if err != nil {
			return 0, err
		}
		b.streams[name] = &spooledMember{name: name, file: file, buf: bufio.NewWriterSize(file, 1<<16), sum: sha256.New(), crc: crc32.NewIEEE()}
	}
	if err := in.Rows(b.addRow); err != nil {
		return 0, err
	}
	if b.manifest.Records == 0 {
		return 0, ErrEmpty
	}
	if err := b.finish(); err != nil {
		return 0, err
	}
	return b.manifest.Records, b.packMembers(w)
}

// addRow writes the next record.
func (b *writer) addRow(r evidence.Row) error {
	rec, err := recordOf(r)
	if err != nil {
		return fmt.Errorf("sequence %d: %w", r.Seq, err)
	}
	if err := b.in.checkRecord(r, rec, b.last); err != nil {
		return err
	}
	if int64(rec.Seq) > b.checkpoint.Size {
		return fmt.Errorf("%w: sequence %d is newer than the checkpoint; try again in a moment", ErrInvalid, r.Seq)
	}
	m := &b.manifest
	if m.Records++; m.Records == 1 {
		m.Seqs = []uint64{r.Seq, r.Seq}
	}
	b.last, m.Seqs[1] = r.Seq, r.Seq
	line := []byte(r.Record)
	if r.Expired() {
		if line, err = lineOf(r, rec); err != nil {
			return err
		}
		m.Expired++
	}
	if err := b.streams[memberRecords].writeLine(line); err != nil {
		return err
	}
	if s := b.streams[memberOfKind(rec.Kind)]; s != nil && !r.Expired() {
		if err := s.writeLine(rec.Body); err != nil {
			return err
		}
	}
	if b.batch = append(b.batch, r.Seq); len(b.batch) < batchSize {
		return nil
	}
	return b.writeCover()
}

// writeCover writes the subtrees before and between the records of the batch.
func (b *writer) writeCover() error {
	var gaps []subtree
	for _, seq := range b.batch {
		gaps = append(gaps, between(b.covered, int64(seq)-1)...)
		b.covered = int64(seq)
	}
	b.batch = b.batch[:0]
	return b.writeNodes(gaps)
}

func (b *writer) writeNodes(gaps []subtree) error {
	if len(gaps) == 0 {
		return nil
	}
	indexes := make([]int64, len(gaps))
	for i, g := range gaps {
		indexes[i] = g.storedIndex()
	}
	hashes, err := b.in.Nodes(indexes)
	if err != nil {
		return fmt.Errorf("reading the tree: %w", err)
	}
	for i, h := range hashes {
		text, err := events.Encode(coverNode{gaps[i].level, h})
		if err != nil {
			return err
		}
		if err := b.streams[memberCover].writeLine(text); err != nil {
			return err
		}
	}
	return nil
}

func (b *writer) finish() error {
	if err := b.writeCover(); err != nil {
		return err
	}
	if err := b.writeNodes(between(b.covered, b.checkpoint.Size)); err != nil {
		return err
	}
	for _, s := range b.streams {
		if err := s.buf.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// contents is the input for the members for readers and for the statement.
func (b *writer) contents() contents {
	c := contents{Manifest: b.manifest, Checkpoint: b.checkpoint, CheckpointText: b.in.Checkpoint, Keys: sortedKeys(b.in.Keys)}
	records := b.streams[memberRecords].toZipEntry()
	c.EachRow = func(yield func(evidence.Row, evidence.Record) error) error {
		return rereadRows(records.open(), func(row evidence.Row, rec evidence.Record) error {
			if b.in.OnReread != nil {
				b.in.OnReread()
			}
			return yield(row, rec)
		})
	}
	return c
}

// sortedKeys puts keys in the order of keys.json.
func sortedKeys(list []events.KeyRecord) []events.KeyRecord {
	keys := append([]events.KeyRecord{}, list...)
	slices.SortStableFunc(keys, func(a, b events.KeyRecord) int { return strings.Compare(a.KeyID, b.KeyID) })
	return keys
}

// packMembers makes the members that follow from the streamed ones, and writes the file.
func (b *writer) packMembers(w io.Writer) error {
	held := b.contents()
	var expiries []member
	if held.Manifest.Expired > 0 {
		one, notes, err := expiriesMember(b.in.Expiries, b.manifest.Seqs[0], b.last)
		if err != nil {
			return err
		}
		held.Expired, expiries = notes, []member{one}
	}
	m := held.Manifest
	keys, err := events.Encode(held.Keys)
	if err != nil {
		return err
	}
	attached, err := readerMembers(&held, b.streams[MemberTable], b.in.Decided)
	if err != nil {
		return err
	}
	var entries []zipEntry
	add := func(list ...member) {
		for _, e := range list {
			if len(e.data) > maxSmallMember && err == nil {
				err = fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrInvalid, e.name, len(e.data), maxSmallMember)
			}
			entries, m.Members = append(entries, whole(e.name, e.data)), append(m.Members, e.manifestLine())
		}
	}
	add(member{memberReadme, []byte(renderReadme(m))}, member{memberCheckpoint, []byte(b.in.Checkpoint)}, member{memberKeys, keys})
	for _, name := range append(slices.Clone(streamed), MemberTable) {
		entries, m.Members = append(entries, b.streams[name].toZipEntry()), append(m.Members, b.streams[name].manifestLine())
	}
	if add(append(attached, expiries...)...); err != nil {
		return err
	}
	manifest, err := events.Encode(m)
	if err != nil {
		return err
	}
	entries = slices.Insert(entries, 0, whole(memberManifest, manifest))
	if b.in.SignKey != nil {
		data, err := signStatement(b.in.SignKey, held, append([]Member{member{memberManifest, manifest}.manifestLine()}, m.Members...))
		if err != nil {
			return err
		}
		entries = append(entries, whole(MemberStatement, data))
	}
	return packEntries(w, entries)
}
