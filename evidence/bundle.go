package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// The formats of a session's bundle that WriteBundle writes and VerifyBundle
// reads: the later ones have more members, see attachments.go.
const (
	BundleFormat   = "countersign/bundle/v1"
	BundleFormatV2 = "countersign/bundle/v2"
	BundleFormatV3 = "countersign/bundle/v3"
)

// MaxBundleSize bounds what VerifyBundle reads, and with it its memory.
const MaxBundleSize = 512 << 20

// The members of a bundle, in their order in the file.
const (
	memberManifest   = "manifest.json"
	memberReadme     = "README.txt"
	memberCheckpoint = "checkpoint.txt"
	memberKeys       = "keys.json"
	memberRecords    = "records.jsonl"
	memberProofs     = "proofs.json"
	memberDecisions  = "decisions.jsonl"
	memberFindings   = "findings.jsonl"
)

var memberNames = []string{memberManifest, memberReadme, memberCheckpoint, memberKeys, memberRecords, memberProofs, memberDecisions, memberFindings}

// BundleInput is one session's evidence to be exported. Proofs lead from each
// row to Checkpoint, a signed note as it was stored; Keys are the vouched
// receipt keys that the session's decisions were signed with.
type BundleInput struct {
	Shard, Tenant, Session string
	Space                  subject.Space
	Rows                   []Row
	Proofs                 []tlog.RecordProof
	Checkpoint             string
	Keys                   []events.KeyRecord
	// Expiries are the expiry records that explain rows without a text, each with
	// its proof that it is in Checkpoint.
	Expiries []ExpiryRecord

	// Attach makes the members that people read, see AttachmentNames. With it the
	// bundle has format BundleFormatV2.
	Attach AttachFunc
	// Extra makes what the third format adds; it needs Attach.
	Extra *Extra
	// Sign makes the member MemberStatement from the digests of all others, the
	// manifest included; nil leaves it out. It needs Attach.
	Sign func(BundleContents, []ManifestMember) ([]byte, error)
}

// Manifest is the table of contents of a bundle. Nothing rests on it: every
// line of it follows from records, proofs and checkpoint, and VerifyBundle
// derives it again.
type Manifest struct {
	Format         string           `json:"format"`
	Shard          string           `json:"shard"`
	Tenant         string           `json:"tenant"`
	Session        string           `json:"session"`
	From           events.Time      `json:"from,omitzero"` // of a range
	To             events.Time      `json:"to,omitzero"`
	SubjectPrefix  string           `json:"subject_prefix"`
	Records        int              `json:"records"`
	Expired        int              `json:"expired,omitempty"` // of them: without their text
	Seqs           []uint64         `json:"seqs"`              // of a range: the first and the last
	CheckpointSize int64            `json:"checkpoint_size"`
	CheckpointRoot string           `json:"checkpoint_root"`
	Members        []ManifestMember `json:"members"` // all but the manifest itself and the statement
}

// ManifestMember is one file of the bundle and its digest.
type ManifestMember struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
}

// proofsFile is the member proofs.json.
type proofsFile struct {
	Size   int64         `json:"size"`
	Proofs []recordProof `json:"proofs"`
}

type recordProof struct {
	Seq  uint64      `json:"seq"`
	Path []tlog.Hash `json:"path"` // base64, from the leaf's sibling upwards
}

// WriteBundle writes the export of a session as a ZIP; the same input gives the
// same bytes. It checks that the input belongs together, not that it holds: run
// VerifyBundle on the result.
func WriteBundle(w io.Writer, in BundleInput) error {
	c, err := PeekCheckpoint(in.Checkpoint)
	if err != nil {
		return err
	}
	records, err := in.parseRecords(c)
	if err != nil {
		return err
	}
	proofs := proofsFile{Size: c.Size, Proofs: make([]recordProof, len(in.Rows))}
	for i, r := range in.Rows {
		proofs.Proofs[i] = recordProof{Seq: r.Seq, Path: append([]tlog.Hash{}, in.Proofs[i]...)}
	}
	keys := slices.Clone(in.Keys)
	slices.SortFunc(keys, func(a, b events.KeyRecord) int { return strings.Compare(a.KeyID, b.KeyID) })
	if keys == nil {
		keys = []events.KeyRecord{}
	}
	keysJSON, err := events.Encode(keys)
	if err != nil {
		return err
	}
	proofsJSON, err := events.Encode(proofs)
	if err != nil {
		return err
	}
	contents := BundleContents{Manifest: in.manifestHeader(c), Checkpoint: c, CheckpointText: in.Checkpoint, Keys: keys}
	contents.rows, contents.Records = withText(in.Rows, records)
	expired, err := in.countExpired(&contents, records)
	if err != nil {
		return err
	}
	extra, err := in.Extra.makeMembers(&contents)
	if err != nil {
		return err
	}
	attached, err := in.makeAttachments(contents)
	if err != nil {
		return err
	}
	attached = slices.Concat(extra, attached, expired)
	members, err := assembleMembers(contents.Manifest, records, sourceMembers{member{memberCheckpoint, []byte(in.Checkpoint)}, member{memberKeys, keysJSON}, member{memberProofs, proofsJSON}}, attached)
	if err != nil {
		return err
	}
	if members, err = in.addStatement(contents, members); err != nil {
		return err
	}
	total := 0
	for _, m := range members {
		if total += len(m.data); total > MaxBundleSize-1<<16 {
			return fmt.Errorf("%w: the session is larger than %d bytes", ErrBundle, MaxBundleSize)
		}
	}
	return packZip(w, members)
}

func (in BundleInput) parseRecords(c Checkpoint) ([]Record, error) {
	if len(in.Rows) == 0 || len(in.Proofs) != len(in.Rows) || in.Session == "" || c.Shard != in.Shard {
		return nil, fmt.Errorf("%w: it needs a session with records, a proof for each, and a checkpoint of their shard", ErrBundle)
	}
	records := make([]Record, len(in.Rows))
	for i, row := range in.Rows {
		rec, err := recordOf(row)
		if err != nil {
			return nil, fmt.Errorf("sequence %d: %w", row.Seq, err)
		}
		if rec.Seq != row.Seq || rec.Shard != in.Shard || rec.Tenant != in.Tenant || rec.Session != in.Session || int64(rec.Seq) > c.Size {
			return nil, fmt.Errorf("%w: sequence %d is not of this session, or newer than the checkpoint", ErrBundle, row.Seq)
		}
		records[i] = rec
	}
	return records, nil
}

func (in BundleInput) manifestHeader(c Checkpoint) Manifest {
	prefix := in.Space.Prefix
	if prefix == "" {
		prefix = subject.DefaultPrefix
	}
	format := BundleFormat
	switch {
	case in.Attach != nil && in.Extra != nil:
		format = BundleFormatV3
	case in.Attach != nil:
		format = BundleFormatV2
	}
	return Manifest{Format: format, Shard: in.Shard, Tenant: in.Tenant, Session: in.Session, SubjectPrefix: prefix,
		CheckpointSize: c.Size, CheckpointRoot: c.Root.String()}
}

// sourceMembers are the members that nothing else follows from.
type sourceMembers struct{ checkpoint, keys, proofs member }

// kindMembers lists the members that hold the bodies of records of one kind, a line
// each, in their order in the file; the first format has the first two.
var kindMembers = []struct{ name, kind string }{
	{memberDecisions, KindDecision}, {memberFindings, KindFinding}, {memberCalls, KindCall}, {memberApprovals, KindApproval},
}

// assembleMembers derives every member that follows from the others and puts all in
// order. What is attached is taken as it is.
func assembleMembers(m Manifest, records []Record, p sourceMembers, attached []listedMember) ([]member, error) {
	lines := map[string]*bytes.Buffer{}
	for _, b := range kindMembers {
		lines[b.kind] = &bytes.Buffer{}
	}
	var all bytes.Buffer
	m.Records, m.Expired, m.Seqs = len(records), expiredIn(records), make([]uint64, len(records))
	for i, rec := range records {
		m.Seqs[i] = rec.Seq
		text, err := rec.encodeLine()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&all, "%s\n", text)
		if into := lines[rec.Kind]; into != nil && rec.expired == nil {
			fmt.Fprintf(into, "%s\n", rec.Body)
		}
	}
	members := []member{{memberReadme, []byte(renderReadme(m))}, p.checkpoint, p.keys, {memberRecords, all.Bytes()}, p.proofs}
	for _, b := range kindMembers[:countBodyMembers(m.Format)] {
		members = append(members, member{b.name, lines[b.kind].Bytes()})
	}
	for _, f := range members {
		m.Members = append(m.Members, ManifestMember{Name: f.name, Size: len(f.data), SHA256: hexSHA256(f.data)})
	}
	for _, a := range attached {
		m.Members, members = append(m.Members, a.entry), append(members, a.member)
	}
	manifest, err := events.Encode(m)
	if err != nil {
		return nil, err
	}
	return append([]member{{memberManifest, manifest}}, members...), nil
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func renderReadme(m Manifest) string {
	if slices.Contains(rangeFormats, m.Format) {
		return rangeReadme(m)
	}
	return fmt.Sprintf(`Evidence of one agent session, exported by Countersign.

  tenant      %q
  session     %q
  shard       %s
  records     %d, log sequences %d to %d
  checkpoint  size %d, root %s

To verify it, offline, with nothing but this file and the checkpoint key that
its owner published:

  countersign verify --bundle THIS.zip --key CHECKPOINT.vkey

Why it can be believed: records.jsonl holds one canonical JSON record a line.
Each names the hash of the one before it in the session. proofs.json leads from
each record's hash to the root in checkpoint.txt, which is signed by the
checkpoint key. keys.json holds the keys that signed the decisions, vouched for
by the same checkpoint key. Values marked [redacted:...] were taken out of this
copy; each has a commitment in its record.

manifest.json, decisions.jsonl, findings.jsonl and this text are derived from
the records for convenience; nothing rests on them, and the manifest is not
signed. That the session has no record after the last one here, only the whole
log can show.
%s`, m.Tenant, m.Session, m.Shard, m.Records, m.Seqs[0], m.Seqs[len(m.Seqs)-1], m.CheckpointSize, m.CheckpointRoot, expiredReadme(m)+readmeAttached[m.Format])
}
