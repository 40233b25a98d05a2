package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// maxSmallMember bounds the members that are read into memory.
const maxSmallMember = 64 << 20

// rangeBundle is the bundle of a range during verification.
type rangeBundle struct {
	entries  map[string]zipEntry
	order    []zipEntry
	contents contents
	sums     map[string]Member // as read
	expiries []verify.ExpiryRecord
	expired  int // lines without a text
}

// proveRange checks the bundle of a range by the rules of the format, but for the form of the ZIP. It reads the
// file several times and keeps little of it in memory.
func proveRange(entries []zipEntry, key note.Verifier) (rep verify.Report, c contents, err error) {
	b := &rangeBundle{entries: map[string]zipEntry{}, order: entries, sums: map[string]Member{}}
	for _, e := range entries {
		b.entries[e.name] = e
	}
	if err := b.readMembers(); err != nil {
		return rep, c, err
	}
	if rep, err = b.verify(key); err != nil {
		return rep, c, err
	}
	return rep, b.contents, b.compareDerived(&rep)
}

// readMembers reads the members that are not streamed.
func (b *rangeBundle) readMembers() error {
	b.contents.Members = map[string][]byte{}
	for name, e := range b.entries {
		if slices.Contains(rangeStreams, name) || name == MemberTable {
			continue
		}
		if e.size > maxSmallMember {
			return fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrInvalid, name, e.size, maxSmallMember)
		}
		data, err := io.ReadAll(e.open())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
		}
		b.contents.Members[name] = data
	}
	one := &sessionBundle{files: b.contents.Members}
	if err := one.checkLimits(); err != nil {
		return err
	}
	if err := one.decode(memberManifest, &b.contents.Manifest); err != nil {
		return err
	}
	if err := one.decode(memberKeys, &b.contents.Keys); err != nil {
		return err
	}
	b.contents.CheckpointText = string(b.contents.Members[memberCheckpoint])
	var err error
	if b.contents.Checkpoint, err = tree.PeekCheckpoint(b.contents.CheckpointText); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, memberCheckpoint, err)
	}
	b.contents.InForce = b.contents.Members[MemberInForce]
	data, there := b.contents.Members[memberExpiries]
	if err := expiriesStated(b.contents.Manifest, there); err != nil {
		return err
	}
	if there {
		if b.expiries, b.contents.Expired, err = readExpiries(data); err != nil {
			return err
		}
	}
	b.contents.each = func(yield func(evidence.Row, evidence.Record) error) error {
		return rereadRows(b.entries[memberRecords].open(), yield)
	}
	b.contents.open = func(name string) io.ReadSeeker {
		if e, there := b.entries[name]; there {
			return e.open()
		}
		return nil
	}
	return nil
}

// verify checks records, cover, checkpoint and keys. The other checks rely on these.
func (b *rangeBundle) verify(key note.Verifier) (verify.Report, error) {
	m := b.contents.Manifest
	v := verify.NewRangeVerifier(verify.Options{Shard: b.contents.Checkpoint.Shard, Space: subject.Space{Prefix: m.SubjectPrefix}, Keys: []note.Verifier{key},
		Checkpoints: []verify.Published{{Source: memberCheckpoint, Text: b.contents.CheckpointText}}, ReceiptKeys: b.contents.Keys, Expiries: b.expiries}, m.From.Time)
	rep := v.Report()
	rep.Tenant = m.Tenant
	var merkle tree.Tree
	c := &coverReader{lines: newLines(b.entries[memberCover].open()), tree: &merkle}
	derived := b.newDerivedReader()
	texts := newExpiryTally(signedExpiries(b.expiries, b.contents.Checkpoint.Shard, subject.Space{Prefix: m.SubjectPrefix}, key))
	in := RangeInput{Shard: b.contents.Checkpoint.Shard, Tenant: m.Tenant, From: m.From.Time, To: m.To.Time}
	err := eachRow(b.entries[memberRecords].open(), func(row evidence.Row, rec evidence.Record) error {
		if row.Expired() {
			if b.expired++; m.Expired == 0 {
				return fmt.Errorf("%w: %s: a line without a record, and the manifest names none", ErrInvalid, memberRecords)
			}
		}
		if in.checkRecord(row, rec, rep.To) != nil {
			add(rep, verify.CodeRecords, row.Seq, memberRecords, "not of the tenant and range that the manifest names, or not in order")
		}
		v.Row(row)
		texts.addRow(row)
		derived.compareRecord(row, rec)
		return c.addLeaf(row)
	})
	if err == nil {
		err = c.finish(b.contents.Checkpoint.Size)
	}
	if err != nil {
		return verify.Report{}, err
	}
	v.Settle()
	if signed, ok := v.Signed(); ok && (c.mismatch || merkle.Size() != signed.Size || merkle.Root() != signed.Root) {
		add(rep, verify.CodeInclusion, 0, memberCover, "records and cover do not give the signed root: a record is not in the signed tree, or the cover is another one's")
	}
	if rep.Records == 0 {
		add(rep, verify.CodeRecords, 0, memberRecords, "it is empty")
	}
	checkExpiries(rep, b.expiries, b.contents.Checkpoint, subject.Space{Prefix: m.SubjectPrefix}, key, rep.From, rep.To)
	texts.report(rep)
	derived.reportDifferences(rep)
	return *rep, nil
}

// compareDerived derives the small members again, and compares every member with its line in the
// manifest.
func (b *rangeBundle) compareDerived(rep *verify.Report) error {
	for _, e := range b.order {
		sum := sha256.New()
		n, err := io.Copy(sum, e.open())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, e.name, err)
		}
		b.sums[e.name] = Member{Name: e.name, Size: int(n), SHA256: hex.EncodeToString(sum.Sum(nil))}
		if e.name != MemberStatement {
			b.contents.digests = append(b.contents.digests, b.sums[e.name])
		}
	}
	m := b.contents.Manifest
	for _, listed := range m.Members {
		if got, there := b.sums[listed.Name]; there && got != listed {
			add(rep, verify.CodeMember, 0, listed.Name, "not the file that the manifest lists")
		}
	}
	want := (&rangeWriter{in: RangeInput{Shard: b.contents.Checkpoint.Shard, Tenant: m.Tenant, Space: subject.Space{Prefix: m.SubjectPrefix}, From: m.From.Time, To: m.To.Time},
		checkpoint: b.contents.Checkpoint, count: rep.Records, expired: b.expired, first: rep.From, last: rep.To}).manifestHeader()
	attached := attachedNames(m.Expired > 0)
	for _, name := range rangeNames(m.Expired > 0, false)[1:] {
		i := slices.IndexFunc(m.Members, func(l Member) bool { return l.Name == name })
		if i < 0 {
			add(rep, verify.CodeMember, 0, name, "the manifest does not list it")
			continue
		}
		line := b.sums[name]
		if slices.Contains(attached, name) {
			line = m.Members[i] // the format's rules do not determine these members
		}
		want.Members = append(want.Members, line)
	}
	text, err1 := events.Encode(want)
	keys, err2 := events.Encode(sortedKeys(b.contents.Keys))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for name, data := range map[string][]byte{memberManifest: text, memberReadme: []byte(renderReadme(want)), memberKeys: keys} {
		if got := b.contents.Members[name]; !bytes.Equal(got, data) {
			add(rep, verify.CodeMember, 0, name, "not what follows from the records, first at byte %d", firstDifference(got, data))
		}
	}
	return nil
}
