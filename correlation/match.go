package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Values of Call.Match.
const (
	matchEqual        = "equal"
	matchDrift        = "drift"
	matchInconclusive = "inconclusive"
)

// inputMatch is what is known of what was admitted and what ran.
type inputMatch struct {
	match, reason   string
	differences     []events.Difference
	moreDifferences int
}

// compareCallInput holds what ran against what was admitted, or announced where
// nothing was admitted.
func (j *judge) compareCallInput(c *call, f *fact, st effectiveVerdict) {
	j.calls.releaseCallDifferences(c)
	if c.tool != "" && f.tool != "" && c.tool != f.tool {
		c.inputMatch = inputMatch{match: matchDrift}
		j.reportDrift(c, f, st, false, caseOtherTool)
		return
	}
	result := argsUnknown
	if st.recorded != nil {
		result = compareToDecision(&f.args, st.recorded.argsDigest)
	}
	if result == argsUnknown {
		result = compareArguments(&c.args, &f.args)
	}
	switch {
	case result == argsEqual:
		c.inputMatch = inputMatch{match: matchEqual}
	case result == argsDifferent:
		c.inputMatch = c.inputDifferences(f, st)
		j.calls.keepCallDifferences(c)
		j.reportDrift(c, f, st, f.hasMutationReason, "")
	case f.args.known || c.args.known:
		c.inputMatch = inputMatch{match: matchInconclusive, reason: c.inconclusiveReason(f, st)}
	}
}

// inconclusiveReason says why nobody can tell whether what ran is what was
// admitted.
func (x *details) inconclusiveReason(f *fact, st effectiveVerdict) string {
	switch {
	case !f.args.known:
		return events.MatchNotReported
	case x.args.known && len(x.args.redactedPaths)+len(f.args.redactedPaths) > 0:
		if x.args.canonical == nil || f.args.canonical == nil {
			return events.MatchNotKept
		}
		return events.MatchRedacted
	case st.recorded == nil || st.recorded.argsDigest == "":
		return events.MatchNotReported
	case f.args.digestLike(st.recorded.argsDigest) == "":
		return events.MatchDigestForm
	}
	return events.MatchRedacted
}

// inputDifferences says where what ran is not what was admitted. Both must be known to
// the letter: the admitted arguments are those that the call is open with, if the
// decision is about them.
func (x *details) inputDifferences(f *fact, st effectiveVerdict) inputMatch {
	r := inputMatch{match: matchDrift}
	paths := slices.Concat(x.args.redactedPaths, f.args.redactedPaths)
	switch {
	case !x.args.known, st.recorded != nil && st.recorded.argsDigest != "" && compareToDecision(&x.args, st.recorded.argsDigest) != argsEqual:
		r.reason = events.MatchDigestOnly
		return r
	case x.args.canonical == nil || len(f.args.canonical) > maxArgsPerCall || f.args.canonical == nil:
		r.reason = events.MatchNotKept
		return r
	}
	admitted, ok := x.args.unmaskedTree(paths)
	executed, too := f.args.unmaskedTree(paths)
	if !ok || !too {
		r.reason = events.MatchNotKept
		return r
	}
	if r.differences, r.moreDifferences = listDifferences(admitted, executed); len(r.differences) == 0 {
		r.reason = events.MatchRedacted
	}
	return r
}

// keepCallDifferences counts what a call's differences take for as long as it is
// remembered, and drops them if there is no room.
func (cs *calls) keepCallDifferences(c *call) {
	size := 0
	for _, d := range c.differences {
		size += len(d.Pointer) + differenceSize
	}
	if cs.counts.argsBytes+size > cs.opts.MaxArgsBytes {
		c.inputMatch = inputMatch{match: c.match, reason: events.MatchNotKept}
		return
	}
	c.differencesBytes = size
	cs.counts.argsBytes += size
}

// differenceSize is what a difference takes beside its pointer's text.
const differenceSize = 32

func (cs *calls) releaseCallDifferences(c *call) {
	cs.counts.argsBytes -= c.differencesBytes
	if c.differencesBytes = 0; c.details != nil {
		c.differences = nil
	}
}
