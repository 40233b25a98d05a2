package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// Bounds in bytes: of the manifest, and of every other member that is read into memory.
const (
	maxManifest    = 64 << 10
	maxSmallMember = 64 << 20
)

// jsonLimits bound the members that are decoded whole. A member of many short values would take
// hundreds of times its size, so each value must have some bytes on average: a hash of a proof has 47,
// a key record of six values some 300.
var jsonLimits = []struct {
	name                string
	most, bytesPerValue int
}{
	{memberManifest, maxManifest, 1}, // sequences are short
	{memberKeys, maxSmallMember, 32},
	{memberExpiries, maxSmallMember, 32},
	{MemberInForce, maxSmallMember, 8},
}

// Result is the report of a verification. Notes say, for a reader, what was not checked or only in
// part.
type Result struct {
	verify.Report
	Notes []string `json:"notes,omitempty"`
}

// Verify checks a bundle with a checkpoint key. The caller must have the key from another source than
// the bundle. A file that cannot be read as a bundle is an error that names the member. Everything else
// is in the report; Field of a finding names the member.
func Verify(r io.ReaderAt, size int64, verifierKey string, o Options) (Result, error) {
	key, err := signing.CheckpointVerifier(verifierKey)
	if err != nil {
		return Result{}, err
	}
	rep, c, err := prove(r, size, key)
	if err != nil {
		return Result{}, err
	}
	k := checker{Options: o, rep: &rep}
	k.check(c, key)
	rep.OK = rep.Total == 0
	return Result{rep, k.notes}, nil
}

// prove checks a bundle by the rules of the format. It reads the file several times and keeps little of
// it in memory.
func prove(r io.ReaderAt, size int64, key note.Verifier) (rep verify.Report, c contents, err error) {
	b, err := openBundle(r, size)
	if err != nil {
		return rep, c, err
	}
	if err := b.readMembers(); err != nil {
		return rep, c, err
	}
	if rep, err = b.verify(key); err != nil {
		return rep, c, err
	}
	if err := b.compareDerived(&rep); err != nil {
		return rep, c, err
	}
	comparePacked(r, size, b.entries, &rep)
	if rep.Session != "" {
		rep.From, rep.To = 0, 0 // a session's report does not name them
	}
	return rep, b.contents, nil
}

// opened is a bundle during verification.
type opened struct {
	contents
	entries  []zipEntry
	in       Input // what the small members are derived from again
	expiries []verify.ExpiryRecord
	expired  int // lines without a text
}

// openBundle finds the members of a file.
func openBundle(r io.ReaderAt, size int64) (*opened, error) {
	z, err := openZip(r, size)
	if err != nil {
		return nil, err
	}
	var head struct {
		Format string `json:"format"`
	}
	there := zipNames(z)
	err = strictjson.Unmarshal(zipMember(z, memberManifest, maxManifest), &head)
	switch {
	case slices.Contains(there, "proofs.json"):
		return nil, fmt.Errorf("%w: it has a member proofs.json, so an earlier build wrote it: export it again", ErrInvalid)
	case err == nil && head.Format != "" && head.Format != Format:
		return nil, fmt.Errorf("%w: %s: format %.60q; this program reads %s: export it again", ErrInvalid, memberManifest, head.Format, Format)
	}
	b := &opened{}
	b.entries, err = openEntries(z, r, size, memberNames(slices.Contains(there, memberExpiries), slices.Contains(there, MemberStatement)))
	return b, err
}

// open opens a member.
func (b *opened) open(name string) io.ReadSeeker {
	return b.entries[slices.IndexFunc(b.entries, func(e zipEntry) bool { return e.name == name })].open()
}

// readMembers reads the members that are not streamed.
func (b *opened) readMembers() (err error) {
	b.Members, b.Open = map[string][]byte{}, b.open
	for _, e := range b.entries {
		if slices.Contains(streamed, e.name) || e.name == MemberTable {
			continue
		}
		if e.size > maxSmallMember {
			return fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrInvalid, e.name, e.size, maxSmallMember)
		}
		b.Members[e.name] = make([]byte, e.size)
		if _, err := io.ReadFull(e.open(), b.Members[e.name]); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, e.name, err)
		}
	}
	if err := b.checkLimits(); err != nil {
		return err
	}
	if err := cmp.Or(b.decode(memberManifest, &b.Manifest), b.decode(memberKeys, &b.Keys)); err != nil {
		return err
	}
	b.CheckpointText, b.InForce = string(b.Members[memberCheckpoint]), b.Members[MemberInForce]
	if b.Checkpoint, err = tree.PeekCheckpoint(b.CheckpointText); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, memberCheckpoint, err)
	}
	b.EachRow = func(yield func(evidence.Row, evidence.Record) error) error {
		return rereadRows(b.open(memberRecords), yield)
	}
	data, there := b.Members[memberExpiries]
	switch stated := b.Manifest.Expired; {
	case stated > 0 && !there:
		return fmt.Errorf("%w: member %s is missing, and the manifest says that %d texts expired", ErrInvalid, memberExpiries, stated)
	case stated == 0 && there:
		return fmt.Errorf("%w: member %s is there, and the manifest says of no text that it expired", ErrInvalid, memberExpiries)
	case there:
		b.expiries, b.Expired, err = readExpiries(data)
	}
	return err
}

// checkLimits refuses members that would take too much memory when they are decoded.
func (b *opened) checkLimits() error {
	for _, l := range jsonLimits {
		raw := b.Members[l.name]
		if len(raw) > l.most {
			return fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrInvalid, l.name, len(raw), l.most)
		}
		if commas(raw) > len(raw)/l.bytesPerValue+8 { // the shortest members have fewer
			return fmt.Errorf("%w: %s has more values than its size allows", ErrInvalid, l.name)
		}
	}
	return nil
}

// commas counts the commas of a JSON text outside its strings.
func commas(raw []byte) (n int) {
	inString := false
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			inString = !inString
		case '\\':
			i++ // outside a string it ends the decoding
		case ',':
			if !inString {
				n++
			}
		}
	}
	return n
}

// decode decodes the manifest or the keys. That the member is in its one form, the comparison with
// what is derived from it shows.
func (b *opened) decode(name string, into any) error {
	var wrong *strictjson.Error
	err := strictjson.Unmarshal(b.Members[name], into, strictjson.RejectUnknown)
	switch {
	case errors.As(err, &wrong) && (wrong.Code == strictjson.WrongType || wrong.Code == strictjson.UnknownKey):
		return fmt.Errorf("%w: %s: a member is unknown or has the wrong type", ErrInvalid, name)
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return nil
}

// verify checks records, cover, checkpoint and keys. The other checks rely on these.
func (b *opened) verify(key note.Verifier) (verify.Report, error) {
	m, in := b.Manifest, &b.in
	*in = Input{Shard: b.Checkpoint.Shard, Tenant: m.Tenant, Session: m.Session, Space: subject.Space{Prefix: m.SubjectPrefix}, From: m.From.Time, To: m.To.Time}
	opts := verify.Options{Shard: in.Shard, Space: in.Space, Keys: []note.Verifier{key}, ReceiptKeys: b.Keys, Expiries: b.expiries,
		Checkpoints: []verify.Published{{Source: memberCheckpoint, Text: b.CheckpointText}}}
	v := verify.NewSessionVerifier(opts)
	if in.Session == "" {
		v = verify.NewRangeVerifier(opts, in.From)
	}
	rep := v.Report()
	var merkle tree.Tree
	c := &coverReader{lines: newLines(b.open(memberCover)), tree: &merkle}
	derived := b.newDerivedReader()
	texts := newExpiryTally(signedExpiries(b.expiries, in.Shard, in.Space, key))
	err := eachRow(b.open(memberRecords), func(row evidence.Row, rec evidence.Record) error {
		if row.Expired() {
			if b.expired++; m.Expired == 0 {
				return fmt.Errorf("%w: %s: a line without a record, and the manifest names none", ErrInvalid, memberRecords)
			}
		}
		if rep.Records == 0 { // whose records they are, the first one says: the manifest follows from them
			if in.Tenant = rec.Tenant; in.Session != "" {
				in.Session = rec.Session
			}
		}
		if in.checkRecord(row, rec, rep.To) != nil {
			add(rep, verify.CodeRecords, row.Seq, memberRecords, "not of the first one's tenant, not of its session or of the range that the manifest names, or not in order")
		}
		v.Row(row)
		texts.addRow(row)
		derived.compareRecord(row, rec)
		return c.addLeaf(row)
	})
	if err == nil {
		err = c.finish(b.Checkpoint.Size)
	}
	if err != nil {
		return verify.Report{}, err
	}
	v.Settle()
	rep.Tenant, rep.Session = in.Tenant, in.Session
	if c.mismatch || merkle.Size() != b.Checkpoint.Size || merkle.Root() != b.Checkpoint.Root {
		add(rep, verify.CodeInclusion, 0, memberCover, "records and cover do not give the signed root: a record is not in the signed tree, or the cover is another one's")
	}
	if rep.Records == 0 {
		add(rep, verify.CodeRecords, 0, memberRecords, "it is empty")
	}
	checkExpiries(rep, b.expiries, b.Checkpoint, in.Space, key, rep.From, rep.To)
	texts.report(rep)
	derived.reportDifferences(rep)
	return *rep, nil
}

// derivedReader compares the members that follow from the records with the records.
type derivedReader struct {
	lines          map[string]*lines // by kind
	firstDifferent map[string]int    // by kind: the first line that differs
}

func (b *opened) newDerivedReader() *derivedReader {
	d := &derivedReader{lines: map[string]*lines{}, firstDifferent: map[string]int{}}
	for _, body := range bodies {
		d.lines[body.kind] = newLines(b.open(body.name))
	}
	return d
}

func (d *derivedReader) compareRecord(row evidence.Row, r evidence.Record) {
	l := d.lines[r.Kind]
	if l == nil || row.Expired() || d.firstDifferent[r.Kind] > 0 {
		return
	}
	if text, err := l.next(); err != nil || !bytes.Equal(text, r.Body) {
		d.firstDifferent[r.Kind] = max(l.lineNumber, 1)
	}
}

func (d *derivedReader) reportDifferences(rep *verify.Report) {
	for _, body := range bodies {
		if _, err := d.lines[body.kind].next(); d.firstDifferent[body.kind] == 0 && !errors.Is(err, io.EOF) {
			d.firstDifferent[body.kind] = d.lines[body.kind].lineNumber
		}
		if at := d.firstDifferent[body.kind]; at > 0 {
			add(rep, verify.CodeMember, 0, body.name, "not what follows from the records, first in line %d", at)
		}
	}
}

// compareDerived derives the small members again, and compares every member with its line in the
// manifest.
func (b *opened) compareDerived(rep *verify.Report) error {
	sums := map[string]Member{}
	for _, e := range b.entries {
		sum := sha256.New()
		n, err := io.Copy(sum, e.open())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, e.name, err)
		}
		sums[e.name] = Member{Name: e.name, Size: int(n), SHA256: hex.EncodeToString(sum.Sum(nil))}
		if e.name != MemberStatement {
			b.Digests = append(b.Digests, sums[e.name])
		}
	}
	slices.SortFunc(b.Digests, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	want := b.in.manifest(b.Checkpoint)
	want.Records, want.Expired, want.Seqs = rep.Records, b.expired, []uint64{rep.From, rep.To}
	attached := attachedNames(b.Manifest.Expired > 0)
	for _, name := range memberNames(b.Manifest.Expired > 0, false)[1:] {
		i := slices.IndexFunc(b.Manifest.Members, func(l Member) bool { return l.Name == name })
		if i < 0 {
			add(rep, verify.CodeMember, 0, name, "the manifest does not list it")
			continue
		}
		line := sums[name]
		if b.Manifest.Members[i] != line {
			add(rep, verify.CodeMember, 0, name, "not the file that the manifest lists")
		}
		if slices.Contains(attached, name) {
			line = b.Manifest.Members[i] // the format's rules do not determine these members
		}
		want.Members = append(want.Members, line)
	}
	text, err1 := events.Encode(want)
	keys, err2 := events.Encode(sortedKeys(b.Keys))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for name, data := range map[string][]byte{memberManifest: text, memberReadme: []byte(renderReadme(want)), memberKeys: keys} {
		if got := b.Members[name]; !bytes.Equal(got, data) {
			add(rep, verify.CodeMember, 0, name, "not what follows from the records, first at byte %d", firstDifference(got, data))
		}
	}
	return nil
}

// File reads one member of a bundle without verifying anything; nil if there is none.
func File(r io.ReaderAt, size int64, name string) []byte {
	z, err := openZip(r, size)
	if err != nil {
		return nil
	}
	return zipMember(z, name, maxSmallMember)
}
