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

// matched is what is known of what was admitted and what ran.
type matched struct {
	match, reason string
	differences   []events.Difference
	more          int
}

// compareInput holds what ran against what was admitted, or announced where
// nothing was admitted.
func (m *machine) compareInput(c *call, f *fact, st standing) {
	m.releaseDifferences(c)
	if c.tool != "" && f.tool != "" && c.tool != f.tool {
		c.matched = matched{match: matchDrift}
		m.drift(c, f, st, false, detailOtherTool)
		return
	}
	result := unknown
	if st.ledger != nil {
		result = againstVerdict(&f.args, st.ledger.digest)
	}
	if result == unknown {
		result = compare(&c.args, &f.args)
	}
	switch {
	case result == equal:
		c.matched = matched{match: matchEqual}
	case result == different:
		c.matched = c.differing(f, st)
		m.keepDifferences(c)
		m.drift(c, f, st, f.mutation, "")
	case f.args.known || c.args.known:
		c.matched = matched{match: matchInconclusive, reason: c.undecidedBecause(f, st)}
	}
}

// undecidedBecause says why nobody can tell whether what ran is what was
// admitted.
func (c *call) undecidedBecause(f *fact, st standing) string {
	switch {
	case !f.args.known:
		return events.MatchNotReported
	case c.args.known && len(c.args.redacted)+len(f.args.redacted) > 0:
		if c.args.raw == nil || f.args.raw == nil {
			return events.MatchNotKept
		}
		return events.MatchRedacted
	case st.ledger == nil || st.ledger.digest == "":
		return events.MatchNotReported
	case f.args.in(st.ledger.digest) == "":
		return events.MatchDigestForm
	}
	return events.MatchRedacted
}

// differing says where what ran is not what was admitted. Both must be known to
// the letter: the admitted arguments are those that the call is open with, if the
// decision is about them.
func (c *call) differing(f *fact, st standing) matched {
	r := matched{match: matchDrift}
	paths := slices.Concat(c.args.redacted, f.args.redacted)
	switch {
	case !c.args.known, st.ledger != nil && st.ledger.digest != "" && againstVerdict(&c.args, st.ledger.digest) != equal:
		r.reason = events.MatchDigestOnly
		return r
	case c.args.raw == nil || len(f.args.raw) > maxArgsPerCall || f.args.raw == nil:
		r.reason = events.MatchNotKept
		return r
	}
	admitted, ok := c.args.unmasked(paths)
	executed, too := f.args.unmasked(paths)
	if !ok || !too {
		r.reason = events.MatchNotKept
		return r
	}
	if r.differences, r.more = differences(admitted, executed); len(r.differences) == 0 {
		r.reason = events.MatchRedacted
	}
	return r
}

// keepDifferences counts what a call's differences take for as long as it is
// remembered, and drops them if there is no room.
func (m *machine) keepDifferences(c *call) {
	size := 0
	for _, d := range c.differences {
		size += len(d.Pointer) + differenceSize
	}
	if m.stats.ArgsBytes+size > m.opts.MaxArgsBytes {
		c.matched = matched{match: c.match, reason: events.MatchNotKept}
		return
	}
	c.room = size
	m.stats.ArgsBytes += size
}

// differenceSize is what a difference takes beside its pointer's text.
const differenceSize = 32

func (m *machine) releaseDifferences(c *call) {
	m.stats.ArgsBytes -= c.room
	if c.room = 0; c.details != nil {
		c.differences = nil
	}
}
