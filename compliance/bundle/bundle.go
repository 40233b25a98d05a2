package bundle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// Format is the format of a session's bundle.
const Format = "countersign/bundle/v1"

// MaxSize bounds how much Verify reads of a session's bundle, and so its memory.
const MaxSize = 512 << 20

// The members of a bundle, in their order in the file.
const (
	memberManifest   = "manifest.json"   // {"format": "countersign/bundle/v1", shard, tenant, session, subject_prefix, records, expired?, seqs, checkpoint_size, checkpoint_root, members: [{name, size, sha256}]}; members lists all but the manifest and the statement, in their order
	memberReadme     = "README.txt"      // for people
	memberCheckpoint = "checkpoint.txt"  // the signed checkpoint, with the witnesses' signatures that the exporter knew
	memberKeys       = "keys.json"       // array of vouched key records {alg, created_at, kid, public_key, use, vouch}, sorted by kid
	memberRecords    = "records.jsonl"   // the session's records, one canonical text a line, from its first
	memberProofs     = "proofs.json"     // {"size", "proofs": [{"seq", "path": [base64]}]}: for each record, in the same order, its inclusion proof
	memberDecisions  = "decisions.jsonl" // the bodies of the decisions among the records, one a line
	memberFindings   = "findings.jsonl"  // likewise
	memberCalls      = "calls.jsonl"     // likewise
	memberApprovals  = "approvals.jsonl" // likewise
)

// Input is one session's evidence for export. Proofs lead from each row to Checkpoint, a signed
// note as it is stored. Keys are the vouched receipt keys that signed the session's decisions.
type Input struct {
	Shard, Tenant, Session string
	Space                  subject.Space
	Rows                   []evidence.Row
	Proofs                 []tlog.RecordProof
	Checkpoint             string
	Keys                   []events.KeyRecord
	// Expiries are the expiry records that explain rows without a text, each with its proof
	// of inclusion in Checkpoint.
	Expiries []verify.ExpiryRecord

	// Decided supplies the texts of policies and mandates for MemberInForce. Required.
	Decided inforce.Source
	// SignKey signs the member MemberStatement; nil omits it.
	SignKey ed25519.PrivateKey
}

// Manifest is the table of contents of a bundle. Verification does not rely on it: every line
// follows from records, proofs and checkpoint, and Verify derives it again.
type Manifest struct {
	Format         string      `json:"format"`
	Shard          string      `json:"shard"`
	Tenant         string      `json:"tenant"`
	Session        string      `json:"session"`
	From           events.Time `json:"from,omitzero"` // of a range
	To             events.Time `json:"to,omitzero"`
	SubjectPrefix  string      `json:"subject_prefix"`
	Records        int         `json:"records"`
	Expired        int         `json:"expired,omitempty"` // records without their text
	Seqs           []uint64    `json:"seqs"`              // of a range: the first and the last
	CheckpointSize int64       `json:"checkpoint_size"`
	CheckpointRoot string      `json:"checkpoint_root"`
	Members        []Member    `json:"members"` // all except the manifest and the statement
}

// Member is one file of the bundle and its digest.
type Member struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
}

// proofsFile is the content of the member proofs.json.
type proofsFile struct {
	Size   int64         `json:"size"`
	Proofs []recordProof `json:"proofs"`
}

type recordProof struct {
	Seq  uint64      `json:"seq"`
	Path []tlog.Hash `json:"path"` // base64, from the leaf's sibling upwards
}

// Write writes the bundle of a session as a ZIP; the same input gives the same bytes. It checks
// that the input is consistent, but not that it verifies: that is for those who get the bundle (Verify).
func Write(w io.Writer, in Input) error {
	texts := newExpiryTally(namedBy(in.Expiries))
	for _, r := range in.Rows {
		texts.addRow(r)
	}
	if err := texts.expiring(); err != nil {
		return err
	}
	return packSession(w, in)
}

func packSession(w io.Writer, in Input) error {
	c, err := tree.PeekCheckpoint(in.Checkpoint)
	if err != nil {
		return err
	}
	records, err := in.records(c)
	if err != nil {
		return err
	}
	proofs := proofsFile{Size: c.Size, Proofs: make([]recordProof, len(in.Rows))}
	for i, r := range in.Rows {
		proofs.Proofs[i] = recordProof{Seq: r.Seq, Path: append([]tlog.Hash{}, in.Proofs[i]...)}
	}
	keys := sortedKeys(in.Keys)
	keysJSON, err := events.Encode(keys)
	if err != nil {
		return err
	}
	proofsJSON, err := events.Encode(proofs)
	if err != nil {
		return err
	}
	held := contents{Manifest: in.header(c), Checkpoint: c, CheckpointText: in.Checkpoint, Keys: keys}
	held.rows, held.Records = withText(in.Rows, records)
	expired, err := in.explainExpired(&held) // before the pages, which show it
	if err != nil {
		return err
	}
	made, err := in.readerMembers(&held)
	if err != nil {
		return err
	}
	members, err := assembleMembers(held.Manifest, in.Rows, records, parts{member{memberCheckpoint, []byte(in.Checkpoint)}, member{memberKeys, keysJSON}, member{memberProofs, proofsJSON}},
		slices.Concat(made, expired))
	if err != nil {
		return err
	}
	if members, err = in.sign(held, members); err != nil {
		return err
	}
	total, entries := 0, make([]zipEntry, len(members))
	for i, m := range members {
		entries[i] = whole(m.name, m.data)
		if total += len(m.data); total > MaxSize-1<<16 {
			return fmt.Errorf("%w: the session is larger than %d bytes", ErrInvalid, MaxSize)
		}
	}
	return packEntries(w, entries)
}

// sortedKeys puts keys in the order of keys.json.
func sortedKeys(list []events.KeyRecord) []events.KeyRecord {
	keys := append([]events.KeyRecord{}, list...)
	slices.SortStableFunc(keys, func(a, b events.KeyRecord) int { return strings.Compare(a.KeyID, b.KeyID) })
	return keys
}

func (in Input) records(c tree.Checkpoint) ([]evidence.Record, error) {
	if len(in.Rows) == 0 || len(in.Proofs) != len(in.Rows) || in.Session == "" || c.Shard != in.Shard || in.Decided == nil {
		return nil, fmt.Errorf("%w: it needs a session with records, a proof for each, a checkpoint of their shard, and the texts of what decided", ErrInvalid)
	}
	records := make([]evidence.Record, len(in.Rows))
	for i, row := range in.Rows {
		rec, err := recordOf(row)
		if err != nil {
			return nil, fmt.Errorf("sequence %d: %w", row.Seq, err)
		}
		if rec.Seq != row.Seq || rec.Shard != in.Shard || rec.Tenant != in.Tenant || rec.Session != in.Session || int64(rec.Seq) > c.Size {
			return nil, fmt.Errorf("%w: sequence %d is not of this session, or newer than the checkpoint", ErrInvalid, row.Seq)
		}
		records[i] = rec
	}
	return records, nil
}

func (in Input) header(c tree.Checkpoint) Manifest {
	prefix := in.Space.Prefix
	if prefix == "" {
		prefix = subject.DefaultPrefix
	}
	return Manifest{Format: Format, Shard: in.Shard, Tenant: in.Tenant, Session: in.Session, SubjectPrefix: prefix,
		CheckpointSize: c.Size, CheckpointRoot: c.Root.String()}
}

// parts are the members that cannot be derived from others.
type parts struct{ checkpoint, keys, proofs member }

// bodies lists the members that hold the bodies of records of one kind, one a line, in their
// order in the file.
var bodies = []struct{ name, kind string }{
	{memberDecisions, evidence.KindDecision}, {memberFindings, evidence.KindFinding}, {memberCalls, evidence.KindCall}, {memberApprovals, evidence.KindApproval},
}

// assembleMembers derives every member that follows from others and puts all in order. Attached
// members are used unchanged.
func assembleMembers(m Manifest, rows []evidence.Row, records []evidence.Record, p parts, attached []listed) ([]member, error) {
	lines := map[string]*bytes.Buffer{}
	for _, b := range bodies {
		lines[b.kind] = &bytes.Buffer{}
	}
	var all bytes.Buffer
	m.Records, m.Expired, m.Seqs = len(records), expiredIn(rows), make([]uint64, len(records))
	for i, rec := range records {
		m.Seqs[i] = rec.Seq
		text, err := lineOf(rows[i], rec)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&all, "%s\n", text)
		if into := lines[rec.Kind]; into != nil && !rows[i].Expired() {
			fmt.Fprintf(into, "%s\n", rec.Body)
		}
	}
	members := []member{{memberReadme, []byte(renderReadme(m))}, p.checkpoint, p.keys, {memberRecords, all.Bytes()}, p.proofs}
	for _, b := range bodies {
		members = append(members, member{b.name, lines[b.kind].Bytes()})
	}
	for _, f := range members {
		m.Members = append(m.Members, f.manifestLine())
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

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
