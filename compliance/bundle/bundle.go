package bundle

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// Format is the format of a bundle.
const Format = "countersign/bundle/v1"

// The members of a bundle, in their order in the file. Those for readers are in members.go.
const (
	memberManifest   = "manifest.json"   // {"format": "countersign/bundle/v1", shard, tenant, session, from?, to?, subject_prefix, records, expired?, seqs, checkpoint_size, checkpoint_root, members: [{name, size, sha256}]}; members lists all but the manifest and the statement, in their order
	memberReadme     = "README.txt"      // for people
	memberCheckpoint = "checkpoint.txt"  // the signed checkpoint, with the witnesses' signatures that the exporter knew
	memberKeys       = "keys.json"       // array of vouched key records {alg, created_at, kid, public_key, use, vouch}, sorted by kid
	memberRecords    = "records.jsonl"   // the records, one canonical text a line, by sequence
	memberCover      = "cover.jsonl"     // {"hash": base64, "level"} a line: the subtrees of the Merkle tree without any of the records; with them they give the checkpoint's root
	memberDecisions  = "decisions.jsonl" // the bodies of the decisions among the records, one a line
	memberFindings   = "findings.jsonl"  // likewise
	memberCalls      = "calls.jsonl"     // likewise
	memberApprovals  = "approvals.jsonl" // likewise
)

// bodies lists the members that hold the bodies of records of one kind, one a line.
var bodies = []struct{ name, kind string }{
	{memberDecisions, evidence.KindDecision}, {memberFindings, evidence.KindFinding}, {memberCalls, evidence.KindCall}, {memberApprovals, evidence.KindApproval},
}

func memberOfKind(kind string) string {
	for _, b := range bodies {
		if b.kind == kind {
			return b.name
		}
	}
	return ""
}

// streamed lists the members that grow with the evidence and follow from it, in their order.
var streamed = []string{memberRecords, memberCover, memberDecisions, memberFindings, memberCalls, memberApprovals}

// attachedNames lists the members that do not follow from the records by rules of the format, in
// their order. Only the same version of this program can make them again and compare; any other
// version compares them only with their digests in the manifest. The list of expiry records is
// one of them if a record has no text.
func attachedNames(expired bool) []string {
	names := []string{MemberTable, MemberInForce, MemberReport, MemberControls}
	if expired {
		names = append(names, memberExpiries)
	}
	return names
}

// memberNames lists the members of a bundle in their order.
func memberNames(expired, statement bool) []string {
	names := slices.Concat([]string{memberManifest, memberReadme, memberCheckpoint, memberKeys}, streamed, attachedNames(expired))
	if statement {
		names = append(names, MemberStatement)
	}
	return names
}

// MemberNames lists all members that a bundle can have, in their order.
func MemberNames() []string { return memberNames(true, true) }

// Manifest is the table of contents of a bundle. Verification does not rely on it: every line
// follows from records, cover and checkpoint, and Verify derives it again.
type Manifest struct {
	Format         string      `json:"format"`
	Shard          string      `json:"shard"`
	Tenant         string      `json:"tenant"`
	Session        string      `json:"session"`       // empty for a range
	From           events.Time `json:"from,omitzero"` // of a range
	To             events.Time `json:"to,omitzero"`
	SubjectPrefix  string      `json:"subject_prefix"`
	Records        int         `json:"records"`
	Expired        int         `json:"expired,omitempty"` // records without their text
	Seqs           []uint64    `json:"seqs"`              // the first and the last
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
