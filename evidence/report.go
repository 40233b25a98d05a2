package evidence

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Code names one way in which evidence fails to hold. Codes are stable.
type Code string

// The problems that verification reports.
const (
	// Rows.
	CodeRowOrder       Code = "row_order"          // a sequence after a greater one
	CodeGap            Code = "gap"                // sequences are missing
	CodeDuplicate      Code = "duplicate_seq"      // the same record twice
	CodeConflict       Code = "conflicting_seq"    // two records for one sequence
	CodeShard          Code = "wrong_shard"        // a row of another shard or incarnation
	CodeNotCanonical   Code = "not_canonical"      // the text is no record in RFC 8785 form
	CodeColumn         Code = "column_mismatch"    // a column says other than the record
	CodeHash           Code = "hash_mismatch"      // the stored hash is not the text's
	CodeChain          Code = "session_chain"      // index or previous hash do not follow
	CodeSubject        Code = "subject_mismatch"   // kind, tenant or session do not fit the subject
	CodeBody           Code = "body_mismatch"      // body, reason and digest form do not fit
	CodeRedaction      Code = "redaction_mismatch" // a redaction without its placeholder
	CodeSessionScope   Code = "session_scope"      // a row of another session
	CodeInclusion      Code = "inclusion_proof"    // the record is not in the signed tree
	CodeTextMissing    Code = "text_missing"       // a record without its text, and no expiry record says why
	CodeNotSigned      Code = "not_signed"         // the record is newer than the checkpoint
	CodeRoot           Code = "root_mismatch"      // the rows do not give the signed root
	CodeRootsUnchecked Code = "roots_unchecked"    // rows are missing, so roots cannot be computed

	// Decisions and keys.
	CodeDecisionRecord    Code = "decision_malformed"       // not a decision record, or not its subject's
	CodeDecisionUnsigned  Code = "decision_unsigned"        // no signature header
	CodeDecisionSignature Code = "decision_signature"       // the signature does not verify
	CodeDecisionKey       Code = "decision_key_unknown"     // signed with a key nobody vouched for
	CodeDecisionRetired   Code = "decision_key_retired"     // signed with a key that was retired before
	CodeDecisionRepeated  Code = "decision_repeated"        // it stands in the log before, and was not asked for again
	CodeDecisionRequest   Code = "decision_without_request" // its request was not recorded before it
	CodeRequestDigest     Code = "request_digest_mismatch"  // its request is another one
	CodeApprovalRecord    Code = "approval_malformed"       // not an approval record of its subject
	CodeApprovalUnsigned  Code = "approval_unsigned"        // no signature header
	CodeApprovalSignature Code = "approval_signature"       // the signature does not verify
	CodeApprovalKey       Code = "approval_key_unknown"     // signed with a key nobody vouched for
	CodeApprovalRetired   Code = "approval_key_retired"     // signed with a key that was retired before
	CodeLog               Code = "log_mismatch"             // the log has another message at this sequence, or none
	CodeLogGap            Code = "log_gap"                  // the log has lost this message, and no erasure record says why
	CodeKeyVouch          Code = "key_vouch"                // a published key with a false vouch
	CodeReceipt           Code = "receipt_invalid"          // signature or contents are wrong
	CodeReceiptLost       Code = "receipt_without_decision" // no decision for a receipt
	CodeReceiptReplayed   Code = "receipt_replayed"         // the same receipt twice

	// Checkpoints.
	CodeCheckpoint      Code = "checkpoint_invalid" // malformed or not signed by a known key: is it the right --key?
	CodeCheckpointShard Code = "checkpoint_shard"   // of another shard
	CodeCheckpointFork  Code = "checkpoint_fork"    // two signed histories
	CodeCheckpointAhead Code = "checkpoint_ahead"   // the log was longer than the rows: the end is missing
	CodeNoCheckpoint    Code = "no_checkpoint"      // nothing is signed
	CodeWitnesses       Code = "witness_quorum"     // too few witnesses signed
	CodeRange           Code = "range_unproved"     // the range does not lead to a signed root
	CodeNoTrustedKey    Code = "no_trusted_key"     // no checkpoint key was given
	CodeTooShort        Code = "too_short"          // fewer records than asked for
	CodeCheckpointLost  Code = "checkpoint_missing" // a published checkpoint is not in the evidence; the auditor stores it again when it starts

	// Completeness.
	CodeIncomplete Code = "completeness_unproved" // the records given hold, and a damaged record elsewhere in the log could be the session's
	CodeDerived    Code = "derived_row"           // a row of an index is missing, changed or invented; the evidence may hold, and the auditor makes the row anew when it starts
	CodeSchema     Code = "schema_differs"        // a table, view, column or row policy is not what the migrations make, or no auditor of this version has migrated the database yet

	// Bundles.
	CodeMember  Code = "bundle_member"  // a member is not what its digest or its source says
	CodeProofs  Code = "bundle_proofs"  // proofs and records do not match
	CodeRecords Code = "bundle_records" // the records are not the session's
)

// DefaultMaxFindings is how many problems a report lists unless told otherwise.
const DefaultMaxFindings = 100

// Finding is one thing that does not hold: in which row (Seq, 0 when it is not
// about one), in which field or bundle member, and what differs. It never
// quotes a body.
type Finding struct {
	Code   Code   `json:"code"`
	Seq    uint64 `json:"seq,omitempty"`
	Field  string `json:"field,omitempty"`
	Detail string `json:"detail"`
}

func (p Finding) String() string {
	s := string(p.Code)
	if p.Seq > 0 {
		s += fmt.Sprintf(" at sequence %d", p.Seq)
	}
	if p.Field != "" {
		s += " in " + p.Field
	}
	return s + ": " + p.Detail
}

// Report is the outcome of a verification. OK is true only if every check was
// made and held. Problems lists the first ones; Total counts all.
type Report struct {
	OK        bool   `json:"ok"`
	Shard     string `json:"shard"`
	Tenant    string `json:"tenant,omitempty"`  // of a session's verification
	Session   string `json:"session,omitempty"` // likewise
	Records   int    `json:"records"`
	Sessions  int    `json:"sessions"`
	Decisions int    `json:"decisions"` // whose signature and request were checked
	Approvals int    `json:"approvals"` // whose signature was checked
	// Unsigned is how many decisions and approvals hold a credential in a name: it is
	// taken out, and their signature can be checked against the log's message only.
	Unsigned int `json:"unsigned,omitempty"`
	Compared int `json:"compared"`         // records that were compared with the log's messages
	Erased   int `json:"erased,omitempty"` // messages that erasure records say are gone from the log
	// Expired is how many records have no text any more because a retention policy
	// let it go; ExpiredBy counts them by the policy's id.
	Expired     int            `json:"expired,omitempty"`
	ExpiredBy   map[string]int `json:"expired_by,omitempty"`
	Checkpoints int            `json:"checkpoints"` // whose signature and root were checked
	Size        int64          `json:"size"`        // of the tree over all rows, or of the checkpoint
	Root        tlog.Hash      `json:"root"`
	Signed      int64          `json:"signed"`               // size of the newest checkpoint that holds
	NotSigned   int64          `json:"not_signed,omitempty"` // records after that one: none of them is proved
	Witnessed   int64          `json:"witnessed,omitempty"`  // size of the newest one that enough witnesses signed
	// Cosigned has, for each known witness, the newest checkpoint that holds and
	// that it signed.
	Cosigned []Cosignature `json:"cosigned,omitempty"`
	From     uint64        `json:"from,omitempty"` // of a part's verification: its sequences
	To       uint64        `json:"to,omitempty"`   // likewise
	// Proved says that the records are all there are of what was verified, and none
	// was changed. Without it a report that is OK says of the records that it has
	// that they are in the signed tree, and not that none is missing.
	Proved bool `json:"proved"`
	// RestsOn says what the report rests on, for people.
	RestsOn  string       `json:"rests_on,omitempty"`
	Derived  uint64       `json:"derived_compared,omitempty"` // up to which sequence derived tables were compared
	Findings []Finding    `json:"problems"`
	Total    int          `json:"total_problems"`
	ByCode   map[Code]int `json:"by_code,omitempty"`

	maxFindings int
}

func newReport(max int) *Report {
	if max <= 0 {
		max = DefaultMaxFindings
	}
	return &Report{Findings: []Finding{}, maxFindings: max}
}

func (r *Report) addFinding(code Code, seq uint64, field, format string, args ...any) {
	r.appendFinding(newFinding(code, seq, field, format, args...))
}

func (r *Report) appendFinding(p Finding) {
	if r.ByCode == nil {
		r.ByCode = map[Code]int{}
	}
	r.Total++
	r.ByCode[p.Code]++
	if len(r.Findings) < r.maxFindings {
		r.Findings = append(r.Findings, p)
	}
}

func newFinding(code Code, seq uint64, field, format string, args ...any) Finding {
	return Finding{Code: code, Seq: seq, Field: field, Detail: fmt.Sprintf(format, args...)}
}
