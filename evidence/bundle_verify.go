package evidence

import (
	"bytes"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// bundleLimits bound the JSON members; they are as large as their session.
var bundleLimits = strictjson.Limits{MaxBytes: MaxBundleSize, MaxDepth: 16}

// VerifyBundle checks an exported session against a checkpoint key, which must
// have come another way than the bundle. A file that cannot be read as a bundle
// is an error that names the member; everything else is in the report, problems
// with a member's name in Field.
func VerifyBundle(r io.ReaderAt, size int64, verifierKey string) (Report, error) {
	return VerifyBundleWith(r, size, verifierKey)
}

// VerifyBundleWith also makes further checks, whose problems are the report's.
func VerifyBundleWith(r io.ReaderAt, size int64, verifierKey string, checks ...BundleCheck) (Report, error) {
	key, err := signing.CheckpointVerifier(verifierKey)
	if err != nil {
		return Report{}, err
	}
	if isRange(r, size) {
		return verifyRange(r, size, key, checks)
	}
	members, err := unpackZip(r, size, expectedMembers(r, size))
	if err != nil {
		return Report{}, newerFormat(r, size, err)
	}
	b, err := readBundle(members)
	if err != nil {
		return Report{}, err
	}
	rep := b.verify(key)
	b.compareDerived(&rep)
	for _, check := range checks {
		for _, p := range check(b.contents()) {
			rep.addFinding(p.Code, p.Seq, p.Field, "%s", p.Detail)
		}
	}
	if at := firstZipDifference(r, size, members); at >= 0 {
		rep.addFinding(CodeMember, 0, "archive", "the ZIP differs from its one form at byte %d", at)
	}
	rep.OK = rep.Total == 0
	return rep, nil
}

// bundle is a bundle taken apart.
type bundle struct {
	files      map[string][]byte
	manifest   Manifest
	keys       []events.KeyRecord
	proofs     proofsFile
	records    []Record
	checkpoint Checkpoint // not yet verified
	rows       []Row
	expiries   []ExpiryRecord
	expired    []ExpiredNote
}

func readBundle(members []member) (*bundle, error) {
	b := &bundle{files: map[string][]byte{}}
	for _, m := range members {
		b.files[m.name] = m.data
	}
	if err := b.readManifest(); err != nil {
		return nil, err
	}
	if err := b.decodeMember(memberKeys, &b.keys); err != nil {
		return nil, err
	}
	if err := b.decodeMember(memberProofs, &b.proofs); err != nil {
		return nil, err
	}
	var err error
	if data, there := b.files[memberExpiries]; there {
		if b.expiries, b.expired, err = readExpiries(data); err != nil {
			return nil, err
		}
	}
	if b.checkpoint, err = PeekCheckpoint(string(b.files[memberCheckpoint])); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, memberCheckpoint, err)
	}
	return b, b.readRecords()
}

func (b *bundle) readManifest() error {
	var head struct {
		Format string `json:"format"`
	}
	raw := b.files[memberManifest]
	if _, err := strictjson.ParseObject(raw, bundleLimits); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, memberManifest, err)
	}
	if err := strictjson.Unmarshal(raw, &head); err != nil || !knownFormat(head.Format) {
		return unknownFormat(head.Format)
	}
	if err := b.decodeMember(memberManifest, &b.manifest); err != nil {
		return err
	}
	return b.checkLayout()
}

// decodeMember reads a JSON member strictly.
func (b *bundle) decodeMember(name string, into any) error {
	raw := b.files[name]
	if _, err := strictjson.Parse(raw, bundleLimits); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, name, err)
	}
	if err := strictjson.Unmarshal(raw, into, strictjson.RejectUnknown); err != nil {
		return fmt.Errorf("%w: %s: a member is unknown or has the wrong type", ErrBundle, name)
	}
	return nil
}

func (b *bundle) readRecords() error {
	raw, line := b.files[memberRecords], 0
	for len(raw) > 0 {
		line++
		text, rest, ok := bytes.Cut(raw, []byte("\n"))
		row, rec, err := readLine(text)
		if err != nil || !ok || rec.expired != nil && b.manifest.Format != BundleFormatV4 {
			return fmt.Errorf("%w: %s line %d: %w", ErrBundle, memberRecords, line, ErrRecord)
		}
		b.records = append(b.records, rec)
		b.rows = append(b.rows, row)
		raw = rest
	}
	if line == 0 {
		return fmt.Errorf("%w: %s is empty", ErrBundle, memberRecords)
	}
	return nil
}

// verify checks records, proofs, checkpoint and keys: all that the bundle's
// worth rests on.
func (b *bundle) verify(key note.Verifier) Report {
	in := SessionInput{Shard: b.checkpoint.Shard, Tenant: b.records[0].Tenant, Session: b.records[0].Session,
		Space: subject.Space{Prefix: b.manifest.SubjectPrefix}, Keys: []note.Verifier{key},
		Checkpoint: Published{memberCheckpoint, string(b.files[memberCheckpoint])},
		Rows:       b.rows, Proofs: make([]tlog.RecordProof, len(b.rows)), ReceiptKeys: b.keys, Expiries: b.expiries}
	paired := len(b.proofs.Proofs) == len(b.rows) && b.proofs.Size == b.checkpoint.Size
	for i, p := range b.proofs.Proofs {
		if i < len(b.rows) && p.Seq == b.rows[i].Seq {
			in.Proofs[i] = p.Path
		} else {
			paired = false
		}
	}
	rep := VerifySession(in)
	if !paired {
		rep.addFinding(CodeProofs, 0, memberProofs, "not one proof for each record, in order, to the checkpoint's size")
	}
	if in.Session == "" {
		rep.addFinding(CodeRecords, 0, memberRecords, "the records belong to no session")
	}
	return rep
}

// compareDerived derives every member that follows from the records again and reports
// those that differ.
func (b *bundle) compareDerived(rep *Report) {
	header := BundleInput{Shard: b.checkpoint.Shard, Tenant: b.records[0].Tenant, Session: b.records[0].Session,
		Space: subject.Space{Prefix: b.manifest.SubjectPrefix}}.manifestHeader(b.checkpoint)
	header.Format = b.manifest.Format
	keys, err1 := events.Encode(b.keys)
	proofs, err2 := events.Encode(b.proofs)
	attached, unlisted := b.pairAttachments()
	for _, name := range unlisted {
		rep.addFinding(CodeMember, 0, name, "the manifest does not list it")
	}
	want, err3 := assembleMembers(header, b.records, sourceMembers{member{memberCheckpoint, b.files[memberCheckpoint]}, member{memberKeys, keys}, member{memberProofs, proofs}}, attached)
	if err1 != nil || err2 != nil || err3 != nil {
		rep.addFinding(CodeMember, 0, memberManifest, "the members cannot be derived again")
		return
	}
	for _, m := range want {
		if got := b.files[m.name]; !bytes.Equal(got, m.data) {
			rep.addFinding(CodeMember, 0, m.name, "not what follows from the records, first at byte %d", firstDifference(got, m.data))
		}
	}
	for _, listed := range b.manifest.Members {
		if data, there := b.files[listed.Name]; there && (len(data) != listed.Size || hexSHA256(data) != listed.SHA256) {
			rep.addFinding(CodeMember, 0, listed.Name, "not the file that the manifest lists")
		}
	}
}
