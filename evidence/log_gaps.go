package evidence

// AddLogGaps adds to a report of a shard what its log no longer has: how many
// messages erasure records explain, and those that none does, each a problem. The
// evidence of both is whole; a log that lost messages by itself is not to be
// trusted with the next ones.
func (r *Report) AddLogGaps(erased int, unexplained []uint64) {
	r.Erased = erased
	for _, seq := range unexplained {
		r.addFinding(CodeLogGap, seq, "", "the log no longer has this message, and no erasure record says why")
	}
	r.OK = r.OK && len(unexplained) == 0
}
