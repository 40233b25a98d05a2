package verify

import (
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// The records of a session or a tenant are selected from a shard. The selection is proved
// complete only if the whole shard was read and every other record was proved to be of
// another session or tenant: its text is there, hashes to its leaf of the signed tree, and
// says so.

// incompletenessCodes are the findings of a shard's verification after which a record may
// belong to the selection although it does not look like it.
var incompletenessCodes = []Code{
	CodeRowOrder, CodeGap, CodeDuplicate, CodeConflict, CodeShard, CodeNotCanonical, CodeColumn, CodeHash, CodeTextMissing,
	CodeRoot, CodeRootsUnchecked, CodeCheckpoint, CodeCheckpointShard, CodeCheckpointFork, CodeCheckpointAhead, CodeNoCheckpoint, CodeNoTrustedKey, CodeRange, CodeLogGap, CodeLogAhead,
}

// FirstIncompleteness reports whether a shard's verification has a finding after which no
// selection from the shard is proved complete. It returns the first such finding, or only
// its code and count if it is not listed.
func (r Report) FirstIncompleteness() (first Finding, hides bool) {
	for _, code := range incompletenessCodes {
		if r.ByCode[code] == 0 {
			continue
		}
		if i := slices.IndexFunc(r.Findings, func(p Finding) bool { return slices.Contains(incompletenessCodes, p.Code) }); i >= 0 {
			return r.Findings[i], true
		}
		return Finding{Code: code, Detail: fmt.Sprintf("%d times", r.ByCode[code])}, true
	}
	return Finding{}, false
}

// AddFindings adds findings that were made outside the verification.
func (r *Report) AddFindings(list ...Finding) {
	for _, p := range list {
		r.appendFinding(p)
	}
	r.OK = r.OK && len(list) == 0
}

// CheckCompleteness sets whether a session's report proves that its records are all there
// are. shard is the verification of the whole shard that they were selected from.
func (r *Report) CheckCompleteness(shard Report) {
	if p, hides := shard.FirstIncompleteness(); hides {
		r.AddFindings(Finding{Code: CodeIncomplete, Seq: p.Seq, Field: p.Field,
			Detail: fmt.Sprintf("it is not proved that no other record is of this session; in the shard: %s", p)})
		return
	}
	r.Proved = r.OK
}

// AddLogGaps adds to a shard's report what its log no longer has: the number of messages
// that erasure records explain, and a finding for each message that none explains. The
// evidence of both is complete, but a log that lost messages without an erasure cannot
// be trusted to keep the next ones.
func (r *Report) AddLogGaps(erased int, unexplained []uint64) {
	r.Erased = erased
	for _, seq := range unexplained {
		r.addFinding(CodeLogGap, seq, "", "the log no longer has this message, and no erasure record says why")
	}
	r.OK = r.OK && len(unexplained) == 0
}

// AddLogAhead adds to a shard's report that its log has messages behind the last record. If an auditor should
// have stored them by now (overdue), that is a finding.
func (r *Report) AddLogAhead(messages uint64, since events.Time, overdue bool) {
	r.NotInEvidence = messages
	r.RestsOn += fmt.Sprintf("; the log has %d more messages, which are NOT in the evidence", messages)
	if !overdue {
		return
	}
	r.AddFindings(newFinding(CodeLogAhead, uint64(r.Size)+1, "", "the evidence ends before this sequence, and the log has %d more messages, one of them since %s: does an auditor run, and does the database store what it writes?", messages, since))
	r.Proved = false
}
