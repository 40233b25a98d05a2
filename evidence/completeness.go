package evidence

import (
	"fmt"
	"slices"
)

// A session's or a tenant's records are picked out of a shard. What was picked is
// all there is only if the whole shard was read and every record that was left out
// was seen to be another's: its text is there, hashes to its leaf of the signed
// tree, and says so.

// incompletenessCodes are the problems of a shard's verification after which a record may be one
// that was asked for although it does not look like it.
var incompletenessCodes = []Code{
	CodeRowOrder, CodeGap, CodeDuplicate, CodeConflict, CodeShard, CodeNotCanonical, CodeColumn, CodeHash, CodeTextMissing,
	CodeRoot, CodeRootsUnchecked, CodeCheckpoint, CodeCheckpointShard, CodeCheckpointFork, CodeCheckpointAhead, CodeNoCheckpoint, CodeNoTrustedKey, CodeRange, CodeLogGap,
}

// FirstIncompleteness reports whether a shard's verification found something after which nothing
// that is picked out of the shard is proved to be all there is, and gives the first
// such problem as far as it is listed.
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

// AddFindings adds problems that were found beside the verification.
func (r *Report) AddFindings(list ...Finding) {
	for _, p := range list {
		r.appendFinding(p)
	}
	r.OK = r.OK && len(list) == 0
}

// CheckCompleteness takes the verification of the whole shard that a session's records were
// picked out of: the session's report says whether they are all.
func (r *Report) CheckCompleteness(shard Report) {
	if p, hides := shard.FirstIncompleteness(); hides {
		r.AddFindings(Finding{Code: CodeIncomplete, Seq: p.Seq, Field: p.Field,
			Detail: fmt.Sprintf("it is not proved that no other record is of this session; in the shard: %s", p)})
		return
	}
	r.Proved = r.OK
}
