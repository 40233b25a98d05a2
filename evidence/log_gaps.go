package evidence

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
