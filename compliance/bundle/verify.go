package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// maxManifest bounds the manifest in bytes.
const maxManifest = 16 << 20

// jsonLimits bound the members that are decoded whole. A member of many short values would take
// hundreds of times its size, so each value must have some bytes on average: a hash of a proof has 47,
// a key record of six values some 300.
var jsonLimits = []struct {
	name                string
	most, bytesPerValue int
}{
	{memberManifest, maxManifest, 1}, // sequences are short
	{memberKeys, maxSmallMember, 32},
	{memberProofs, MaxSize, 32},
	{memberExpiries, maxSmallMember, 32},
	{MemberInForce, maxSmallMember, 8},
}

// Result is the report of a verification. Notes say, for a reader, what was not checked or only in
// part.
type Result struct {
	verify.Report
	Notes []string `json:"notes,omitempty"`
}

// Verify checks a bundle, of a session or of a range, with a checkpoint key. The caller must have the
// key from another source than the bundle. A file that cannot be read as a bundle is an error that
// names the member. Everything else is in the report; Field of a finding names the member.
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

// prove checks a bundle by the rules of its format.
func prove(r io.ReaderAt, size int64, key note.Verifier) (rep verify.Report, c contents, err error) {
	z, err := openZip(r, size)
	if err != nil {
		return rep, c, err
	}
	there, format := zipNames(z), formatOf(z)
	proveKind, names, want := proveSession, sessionNames, Format
	if format == RangeFormat || slices.Contains(there, memberCover) {
		proveKind, names, want = proveRange, rangeNames, RangeFormat
	}
	if format != "" && format != want {
		return rep, c, unknownFormat(format)
	}
	entries, err := openEntries(z, r, size, names(slices.Contains(there, memberExpiries), slices.Contains(there, MemberStatement)))
	if err != nil {
		return rep, c, err
	}
	if rep, c, err = proveKind(entries, key); err != nil {
		return rep, c, err
	}
	comparePacked(r, size, entries, &rep)
	return rep, c, nil
}

// proveSession checks a session's bundle by the rules of the format, but for the form of the ZIP.
func proveSession(entries []zipEntry, key note.Verifier) (rep verify.Report, c contents, err error) {
	b, err := readBundle(entries)
	if err != nil {
		return rep, c, err
	}
	rep = b.verify(key)
	b.compare(&rep)
	return rep, b.contents(), nil
}

// sessionBundle is a session's bundle, decoded.
type sessionBundle struct {
	files      map[string][]byte
	manifest   Manifest
	keys       []events.KeyRecord
	proofs     proofsFile
	records    []evidence.Record
	checkpoint tree.Checkpoint // not yet verified
	rows       []evidence.Row
	expiries   []verify.ExpiryRecord
	expired    []evidence.ExpiredNote
}

func readBundle(entries []zipEntry) (*sessionBundle, error) {
	b, left := &sessionBundle{files: map[string][]byte{}}, int64(MaxSize)
	for _, e := range entries {
		if left -= e.size; left < 0 {
			return nil, fmt.Errorf("%w: its members have more than %d bytes", ErrInvalid, MaxSize)
		}
		data := make([]byte, e.size)
		if _, err := io.ReadFull(e.open(), data); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, e.name, err)
		}
		b.files[e.name] = data
	}
	if err := b.checkLimits(); err != nil {
		return nil, err
	}
	if err := b.readManifest(); err != nil {
		return nil, err
	}
	if err := b.decode(memberKeys, &b.keys); err != nil {
		return nil, err
	}
	if err := b.decode(memberProofs, &b.proofs); err != nil {
		return nil, err
	}
	var err error
	if data, there := b.files[memberExpiries]; there {
		if b.expiries, b.expired, err = readExpiries(data); err != nil {
			return nil, err
		}
	}
	if b.checkpoint, err = tree.PeekCheckpoint(string(b.files[memberCheckpoint])); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, memberCheckpoint, err)
	}
	return b, b.readRecords()
}

func (b *sessionBundle) readManifest() error {
	var head struct {
		Format string `json:"format"`
	}
	if err := strictjson.Unmarshal(b.files[memberManifest], &head); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, memberManifest, err)
	}
	if head.Format != Format {
		return unknownFormat(head.Format)
	}
	if err := b.decode(memberManifest, &b.manifest); err != nil {
		return err
	}
	_, there := b.files[memberExpiries]
	return expiriesStated(b.manifest, there)
}

// checkLimits refuses members that would take too much memory when they are decoded.
func (b *sessionBundle) checkLimits() error {
	for _, l := range jsonLimits {
		raw := b.files[l.name]
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

// decode decodes the manifest, keys or proofs. That the member is in its one form, the comparison with
// what is derived from it shows.
func (b *sessionBundle) decode(name string, into any) error {
	var wrong *strictjson.Error
	err := strictjson.Unmarshal(b.files[name], into, strictjson.RejectUnknown)
	switch {
	case errors.As(err, &wrong) && (wrong.Code == strictjson.WrongType || wrong.Code == strictjson.UnknownKey):
		return fmt.Errorf("%w: %s: a member is unknown or has the wrong type", ErrInvalid, name)
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return nil
}

func (b *sessionBundle) readRecords() error {
	raw, line := b.files[memberRecords], 0
	for len(raw) > 0 {
		line++
		text, rest, ok := bytes.Cut(raw, []byte("\n"))
		row, rec, err := readLine(text)
		if err != nil || !ok || row.Expired() && b.manifest.Expired == 0 {
			return fmt.Errorf("%w: %s line %d: %w", ErrInvalid, memberRecords, line, evidence.ErrRecord)
		}
		b.records = append(b.records, rec)
		b.rows = append(b.rows, row)
		raw = rest
	}
	if line == 0 {
		return fmt.Errorf("%w: %s is empty", ErrInvalid, memberRecords)
	}
	return nil
}

// verify checks records, proofs, checkpoint and keys. The other checks rely on these.
func (b *sessionBundle) verify(key note.Verifier) verify.Report {
	in := verify.SessionInput{Shard: b.checkpoint.Shard, Tenant: b.records[0].Tenant, Session: b.records[0].Session,
		Space: subject.Space{Prefix: b.manifest.SubjectPrefix}, Keys: []note.Verifier{key},
		Checkpoint: verify.Published{Source: memberCheckpoint, Text: string(b.files[memberCheckpoint])},
		Rows:       b.rows, Proofs: make([]tlog.RecordProof, len(b.rows)), ReceiptKeys: b.keys, Expiries: b.expiries}
	paired := len(b.proofs.Proofs) == len(b.rows) && b.proofs.Size == b.checkpoint.Size
	for i, p := range b.proofs.Proofs {
		if i < len(b.rows) && p.Seq == b.rows[i].Seq {
			in.Proofs[i] = p.Path
		} else {
			paired = false
		}
	}
	rep := verify.Session(in)
	checkExpiries(&rep, b.expiries, b.checkpoint, in.Space, key, b.rows[0].Seq, b.rows[len(b.rows)-1].Seq)
	texts := newExpiryTally(signedExpiries(b.expiries, b.checkpoint.Shard, in.Space, key))
	for _, r := range b.rows {
		texts.addRow(r)
	}
	texts.report(&rep)
	if !paired {
		add(&rep, verify.CodeProofs, 0, memberProofs, "not one proof for each record, in order, to the checkpoint's size")
	}
	if in.Session == "" {
		add(&rep, verify.CodeRecords, 0, memberRecords, "the records belong to no session")
	}
	return rep
}

// compare derives every member that follows from the records again and reports those that differ.
func (b *sessionBundle) compare(rep *verify.Report) {
	header := Input{Shard: b.checkpoint.Shard, Tenant: b.records[0].Tenant, Session: b.records[0].Session,
		Space: subject.Space{Prefix: b.manifest.SubjectPrefix}}.header(b.checkpoint)
	keys, err1 := events.Encode(sortedKeys(b.keys))
	proofs, err2 := events.Encode(b.proofs)
	attached, unlisted := b.attached()
	for _, name := range unlisted {
		add(rep, verify.CodeMember, 0, name, "the manifest does not list it")
	}
	want, err3 := assembleMembers(header, b.rows, b.records, parts{member{memberCheckpoint, b.files[memberCheckpoint]}, member{memberKeys, keys}, member{memberProofs, proofs}}, attached)
	if err1 != nil || err2 != nil || err3 != nil {
		add(rep, verify.CodeMember, 0, memberManifest, "the members cannot be derived again")
		return
	}
	for _, m := range want {
		if got := b.files[m.name]; !bytes.Equal(got, m.data) {
			add(rep, verify.CodeMember, 0, m.name, "not what follows from the records, first at byte %d", firstDifference(got, m.data))
		}
	}
	for _, listed := range b.manifest.Members {
		if data, there := b.files[listed.Name]; there && (len(data) != listed.Size || hexSum(data) != listed.SHA256) {
			add(rep, verify.CodeMember, 0, listed.Name, "not the file that the manifest lists")
		}
	}
}

// attached pairs the attached members with the manifest's entries, so that the manifest can be derived
// again. unlisted names those that the manifest does not list.
func (b *sessionBundle) attached() (list []listed, unlisted []string) {
	for _, name := range attachedNames(b.manifest.Expired > 0) {
		i := slices.IndexFunc(b.manifest.Members, func(m Member) bool { return m.Name == name })
		if i < 0 {
			unlisted = append(unlisted, name)
			continue
		}
		list = append(list, listed{member{name, b.files[name]}, b.manifest.Members[i]})
	}
	return list, unlisted
}

func (b *sessionBundle) contents() contents {
	rows, records := withText(b.rows, b.records)
	return contents{Manifest: b.manifest, Records: records, Expired: b.expired, Checkpoint: b.checkpoint,
		CheckpointText: string(b.files[memberCheckpoint]), Keys: b.keys, Members: b.files, InForce: b.files[MemberInForce], rows: rows}
}

// File reads one member of a bundle without verifying anything; nil if there is none.
func File(r io.ReaderAt, size int64, name string) []byte {
	z, err := openZip(r, size)
	if err != nil {
		return nil
	}
	return zipMember(z, name, MaxSize)
}
