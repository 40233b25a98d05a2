package verify

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/evidence/tree"
)

// Code identifies one way in which evidence fails verification. Codes are stable.
type Code string

// The codes of verification findings.
const (
	// Rows.
	CodeRowOrder       Code = "row_order"          // a sequence after a greater one
	CodeGap            Code = "gap"                // sequences are missing
	CodeDuplicate      Code = "duplicate_seq"      // the same record twice
	CodeConflict       Code = "conflicting_seq"    // two records for one sequence
	CodeShard          Code = "wrong_shard"        // a row of another shard or incarnation
	CodeNotCanonical   Code = "not_canonical"      // the text is no record in RFC 8785 form
	CodeColumn         Code = "column_mismatch"    // a column and the record differ
	CodeHash           Code = "hash_mismatch"      // the stored hash is not the text's
	CodeChain          Code = "session_chain"      // index or previous hash do not follow
	CodeSubject        Code = "subject_mismatch"   // kind, tenant, session or a finding's severity do not fit the subject
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
	CodeDecisionKey       Code = "decision_key_unknown"     // signed with a key that no checkpoint key vouches for
	CodeDecisionRetired   Code = "decision_key_retired"     // signed with a key that was retired before
	CodeDecisionRepeated  Code = "decision_repeated"        // an earlier decision in the log has its id, and no new request does
	CodeDecisionRequest   Code = "decision_without_request" // its request was not recorded before it
	CodeRequestDigest     Code = "request_digest_mismatch"  // its recorded request has another digest
	CodeApprovalRecord    Code = "approval_malformed"       // not an approval record of its subject
	CodeApprovalUnsigned  Code = "approval_unsigned"        // no signature header
	CodeApprovalSignature Code = "approval_signature"       // the signature does not verify
	CodeApprovalKey       Code = "approval_key_unknown"     // signed with a key that no checkpoint key vouches for
	CodeApprovalRetired   Code = "approval_key_retired"     // signed with a key that was retired before
	CodeLog               Code = "log_mismatch"             // the log has another message at this sequence, or none
	CodeLogGap            Code = "log_gap"                  // the log has lost this message, and no erasure record says why
	CodeKeyVouch          Code = "key_vouch"                // a published key with a false vouch
	CodeLogAhead          Code = "log_ahead"                // the evidence ends before the log: an auditor does not run, or cannot store what it reads
	CodeReceipt           Code = "receipt_invalid"          // signature or contents are wrong
	CodeReceiptLost       Code = "receipt_without_decision" // no decision for a receipt
	CodeReceiptReplayed   Code = "receipt_replayed"         // the same receipt twice

	// Checkpoints.
	CodeCheckpoint      Code = "checkpoint_invalid" // malformed or not signed by a known key: is it the right --key?
	CodeCheckpointShard Code = "checkpoint_shard"   // of another shard
	CodeCheckpointFork  Code = "checkpoint_fork"    // two signed histories
	CodeCheckpointAhead Code = "checkpoint_ahead"   // the log was longer than the rows: the end is missing
	CodeNoCheckpoint    Code = "no_checkpoint"      // nothing is signed, or there is nothing
	CodeWitnesses       Code = "witness_quorum"     // too few witnesses signed
	CodeRange           Code = "range_unproved"     // the range is not proved to be part of the signed tree
	CodeNoTrustedKey    Code = "no_trusted_key"     // no checkpoint key was given
	CodeTooShort        Code = "too_short"          // fewer records than asked for
	CodeCheckpointLost  Code = "checkpoint_missing" // a published checkpoint is not in the evidence; the auditor stores it again when it starts

	// Completeness.
	CodeIncomplete Code = "completeness_unproved" // the records given hold, and a damaged record elsewhere in the log could be the session's
	CodeDerived    Code = "derived_row"           // a row of an index is missing, changed or invented; the evidence may hold, and the auditor makes the row anew when it starts
	CodeSchema     Code = "schema_differs"        // a table, view, column or row policy is not what the migrations make, or no auditor of this version has migrated the database yet

	// Bundles.
	CodeMember  Code = "bundle_member"  // a member differs from its digest or its source
	CodeRecords Code = "bundle_records" // the records are not those of the session or range
)

// DefaultMaxFindings is how many findings a report lists by default.
const DefaultMaxFindings = 100

// Finding is one failed check: in which row (Seq, 0 if it is about no row), in which field or
// bundle member, and what differs. It never quotes a body.
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

// Report is the outcome of a verification. OK is true only if every check was made and held.
// Findings lists the first findings; Total counts all.
type Report struct {
	OK        bool   `json:"ok"`
	Shard     string `json:"shard"`
	Tenant    string `json:"tenant,omitempty"`  // of a session's verification
	Session   string `json:"session,omitempty"` // likewise
	Records   int    `json:"records"`
	Sessions  int    `json:"sessions"`
	Decisions int    `json:"decisions"` // decisions that were checked for signature and request
	Approvals int    `json:"approvals"` // approvals that were checked for their signature
	// SignaturesUnchecked counts the decisions and approvals that hold a credential in a name. The
	// name is redacted, so their signature can be checked only against the log's message.
	SignaturesUnchecked int `json:"unsigned,omitempty"`
	Compared            int `json:"compared"`         // records that were compared with the log's messages
	Erased              int `json:"erased,omitempty"` // messages that erasure records say are gone from the log
	// Expired counts the records that have no text any more under a retention policy;
	// ExpiredBy counts them by the policy's id.
	Expired         int            `json:"expired,omitempty"`
	ExpiredBy       map[string]int `json:"expired_by,omitempty"`
	Checkpoints     int            `json:"checkpoints"` // checkpoints that were checked for signature and root
	Size            int64          `json:"size"`        // of the tree over all rows, or of the checkpoint
	Root            tlog.Hash      `json:"root"`
	Signed          int64          `json:"signed"`                    // size of the newest checkpoint that holds
	AfterCheckpoint int64          `json:"not_signed,omitempty"`      // records after that checkpoint: none of them is proved
	NotInEvidence   uint64         `json:"not_in_evidence,omitempty"` // messages of the log behind the last record: none of them was verified
	Witnessed       int64          `json:"witnessed,omitempty"`       // size of the newest checkpoint with a witness quorum
	// Cosigned has, for each known witness, the newest valid checkpoint that the witness
	// signed.
	Cosigned []tree.Cosignature `json:"cosigned,omitempty"`
	From     uint64             `json:"from,omitempty"` // of a part's verification: its sequences
	To       uint64             `json:"to,omitempty"`   // likewise
	// Proved says that the records are complete and unchanged. A report that is OK but not
	// Proved shows that its records are in the signed tree, but not that none is missing.
	Proved bool `json:"proved"`
	// RestsOn says what the report relies on, for a reader.
	RestsOn  string       `json:"rests_on,omitempty"`
	Derived  uint64       `json:"derived_compared,omitempty"` // sequence up to which derived tables were compared
	Findings []Finding    `json:"problems"`
	Total    int          `json:"total_problems"`
	ByCode   map[Code]int `json:"by_code,omitempty"`

	maxFindings int
}

func newReport(limit int) *Report {
	if limit <= 0 {
		limit = DefaultMaxFindings
	}
	return &Report{Findings: []Finding{}, maxFindings: limit}
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
