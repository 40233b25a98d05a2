package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// rangeGrace is how long after the beginning of a range a decision may have its
// request before it: they are committed together, within this time at the most.
const rangeGrace = 10 * time.Second

// maxSmallMember bounds the members that are read as a whole.
const maxSmallMember = 64 << 20

// isRange reports whether a file is meant to be the bundle of a range.
func isRange(r io.ReaderAt, size int64) bool {
	there, _ := zipNames(r, size)
	return slices.Contains(rangeFormats, formatOf(r, size)) || slices.Contains(there, memberCover)
}

// rangeBundle is a range's bundle while it is verified.
type rangeBundle struct {
	layout   string // the format that the members are those of
	entries  map[string]zipEntry
	order    []zipEntry
	contents BundleContents
	sums     map[string]ManifestMember // as read
	expiries []ExpiryRecord
	expired  int // lines without a text
}

// verifyRange is VerifyBundleWith for the bundle of a range. It reads the file
// several times and holds little of it.
func verifyRange(r io.ReaderAt, size int64, key note.Verifier, checks []BundleCheck) (Report, error) {
	there, _ := zipNames(r, size)
	layout := RangeFormat
	if hasExtra(there) {
		layout = RangeFormatV2
	}
	if slices.Contains(there, memberExpiries) {
		layout = RangeFormatV3
	}
	entries, err := openEntries(r, size, rangeNames(layout, slices.Contains(there, MemberStatement)))
	if err != nil {
		return Report{}, newerFormat(r, size, err)
	}
	switch format := formatOf(r, size); {
	case format == "" || format == layout:
	case slices.Contains(rangeFormats, format):
		return Report{}, fmt.Errorf("%w: %s: format %q, and the members are those of %q", ErrBundle, memberManifest, format, layout)
	default:
		return Report{}, unknownFormat(format)
	}
	b := &rangeBundle{layout: layout, entries: map[string]zipEntry{}, order: entries, sums: map[string]ManifestMember{}}
	for _, e := range entries {
		b.entries[e.name] = e
	}
	if err := b.readMembers(); err != nil {
		return Report{}, err
	}
	rep, err := b.verify(key)
	if err != nil {
		return Report{}, err
	}
	if err := b.compareDerived(&rep); err != nil {
		return Report{}, err
	}
	for _, check := range checks {
		for _, p := range check(b.contents) {
			rep.appendFinding(p)
		}
	}
	b.comparePacked(r, size, &rep)
	rep.OK = rep.Total == 0
	return rep, nil
}

// readMembers reads the members that are not streams.
func (b *rangeBundle) readMembers() error {
	b.contents.Members = map[string][]byte{}
	for name, e := range b.entries {
		if slices.Contains(rangeStreams, name) || name == MemberTable {
			continue
		}
		if e.size > maxSmallMember {
			return fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrBundle, name, e.size, maxSmallMember)
		}
		data, err := io.ReadAll(e.open())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBundle, name, err)
		}
		b.contents.Members[name] = data
	}
	one := &bundle{files: b.contents.Members}
	if err := one.decodeMember(memberManifest, &b.contents.Manifest); err != nil {
		return err
	}
	if err := one.decodeMember(memberKeys, &b.contents.Keys); err != nil {
		return err
	}
	b.contents.CheckpointText = string(b.contents.Members[memberCheckpoint])
	var err error
	if b.contents.Checkpoint, err = PeekCheckpoint(b.contents.CheckpointText); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, memberCheckpoint, err)
	}
	b.contents.InForce = b.contents.Members[MemberInForce]
	if data, there := b.contents.Members[memberExpiries]; there {
		if b.expiries, b.contents.Expired, err = readExpiries(data); err != nil {
			return err
		}
	}
	b.contents.each = func(yield func(Row, Record) error) error { return rereadRows(b.entries[memberRecords].open(), yield) }
	b.contents.open = func(name string) io.Reader {
		if e, there := b.entries[name]; there {
			return e.open()
		}
		return nil
	}
	return nil
}

// verify checks records, cover, checkpoint and keys: all that the bundle's worth
// rests on.
func (b *rangeBundle) verify(key note.Verifier) (Report, error) {
	m := b.contents.Manifest
	v := NewVerifier(VerifyOptions{Shard: b.contents.Checkpoint.Shard, Space: subject.Space{Prefix: m.SubjectPrefix}, Keys: []note.Verifier{key},
		Checkpoints: []Published{{memberCheckpoint, b.contents.CheckpointText}}, ReceiptKeys: b.contents.Keys, Expiries: b.expiries, Part: &Part{First: 1, RequestsFrom: math.MaxUint64}})
	v.rep.Tenant = m.Tenant
	signed := v.targets.singleTarget(v.rep)
	c := &coverReader{lines: newLines(b.entries[memberCover].open()), tree: &v.tree}
	derived := b.newDerivedReader()
	in := RangeInput{Shard: b.contents.Checkpoint.Shard, Tenant: m.Tenant, From: m.From.Time, To: m.To.Time}
	err := eachRow(b.entries[memberRecords].open(), func(row Row, rec Record) error {
		if rec.expired != nil {
			if b.expired++; b.layout != RangeFormatV3 {
				return fmt.Errorf("%w: %s: a line without a record in format %q", ErrBundle, memberRecords, b.layout)
			}
		}
		in.verifyRecord(v, row, rec)
		derived.compareRecord(rec)
		return c.addLeaf(row)
	})
	if err == nil {
		err = c.finish(b.contents.Checkpoint.Size)
	}
	if err != nil {
		return Report{}, err
	}
	v.reportOpen()
	v.rep.Sessions = len(v.heads)
	if signed != nil && (c.mismatch || v.tree.Size() != signed.Size || v.tree.Root() != signed.Root) {
		v.rep.addFinding(CodeInclusion, 0, memberCover, "records and cover do not give the signed root: a record is not in the signed tree, or the cover is another one's")
	}
	if v.rep.Records == 0 {
		v.rep.addFinding(CodeRecords, 0, memberRecords, "it is empty")
	}
	derived.reportDifferences(v.rep)
	return *v.rep, nil
}

// verifyRecord checks one record of the range by itself and in its session.
func (in RangeInput) verifyRecord(v *Verifier, row Row, rec Record) {
	if in.checkRecord(row, rec, v.rep.To) != nil {
		v.rep.addFinding(CodeRecords, row.Seq, memberRecords, "not of the tenant and range that the manifest names, or not in order")
	}
	if v.trust.requestsFrom == math.MaxUint64 && !rec.BrokerTime.Before(in.From.Add(rangeGrace)) {
		v.trust.requestsFrom = row.Seq
	}
	if v.rep.Records++; v.rep.Records == 1 {
		v.rep.From = row.Seq
	}
	v.rep.To = row.Seq
	var x Examined
	v.rowExaminer.Examine(&row, &x)
	v.reportExamined(&x)
	v.followChain(&x)
	v.trust.addRow(&x)
}

// compareDerived derives what is small again, and compares every member with its line
// in the manifest.
func (b *rangeBundle) compareDerived(rep *Report) error {
	for _, e := range b.order {
		sum := sha256.New()
		n, err := io.Copy(sum, e.open())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBundle, e.name, err)
		}
		b.sums[e.name] = ManifestMember{Name: e.name, Size: int(n), SHA256: hex.EncodeToString(sum.Sum(nil))}
		if e.name != MemberStatement {
			b.contents.digests = append(b.contents.digests, b.sums[e.name])
		}
	}
	m := b.contents.Manifest
	for _, listed := range m.Members {
		if got, there := b.sums[listed.Name]; there && got != listed {
			rep.addFinding(CodeMember, 0, listed.Name, "not the file that the manifest lists")
		}
	}
	want := (&rangeWriter{in: RangeInput{Shard: b.contents.Checkpoint.Shard, Tenant: m.Tenant, Space: subject.Space{Prefix: m.SubjectPrefix}, From: m.From.Time, To: m.To.Time},
		checkpoint: b.contents.Checkpoint, count: rep.Records, expired: b.expired, first: rep.From, last: rep.To}).manifestHeader()
	want.Format = b.layout
	for _, name := range rangeNames(b.layout, false)[1:] {
		i := slices.IndexFunc(m.Members, func(l ManifestMember) bool { return l.Name == name })
		if i < 0 {
			rep.addFinding(CodeMember, 0, name, "the manifest does not list it")
			continue
		}
		line := b.sums[name]
		if slices.Contains(attachedNames(b.layout), name) {
			line = m.Members[i] // nothing here knows what they should be
		}
		want.Members = append(want.Members, line)
	}
	text, err1 := events.Encode(want)
	keys, err2 := events.Encode(b.contents.Keys)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: %w", ErrBundle, err)
	}
	for name, data := range map[string][]byte{memberManifest: text, memberReadme: []byte(renderReadme(want)), memberKeys: keys} {
		if got := b.contents.Members[name]; !bytes.Equal(got, data) {
			rep.addFinding(CodeMember, 0, name, "not what follows from the records, first at byte %d", firstDifference(got, data))
		}
	}
	return nil
}

// comparePacked packs the file again and compares.
func (b *rangeBundle) comparePacked(r io.ReaderAt, size int64, rep *Report) {
	c := &fileComparer{r: r, size: size, diff: -1}
	for i, e := range b.order {
		crc := crc32.NewIEEE()
		if _, err := io.Copy(crc, e.open()); err == nil {
			b.order[i].crc = crc.Sum32()
		}
	}
	_ = packEntries(c, b.order) // a comparer does not fail
	if c.diff < 0 && c.at != size {
		c.diff = c.at
	}
	if c.diff >= 0 {
		rep.addFinding(CodeMember, 0, "archive", "the ZIP differs from its one form at byte %d", c.diff)
	}
}
