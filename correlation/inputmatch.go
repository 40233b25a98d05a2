package correlation

import (
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Values of Call.Match.
const (
	matchEqual        = "equal"
	matchDrift        = "drift"
	matchInconclusive = "inconclusive"
)

// inputMatch is the result of comparing the admitted call with the executed one.
type inputMatch struct {
	match, reason   string
	differences     []events.Difference
	moreDifferences int
}

// compareCallInput compares what ran with what was admitted. If nothing was admitted, the
// announcement takes its place.
func (j *judge) compareCallInput(c *call, f *fact.Fact, verdict effectiveVerdict) {
	j.calls.releaseCallDifferences(c)
	if c.tool != "" && f.Tool != "" && c.tool != f.Tool {
		c.inputMatch = inputMatch{match: matchDrift}
		j.reportDrift(c, f, verdict, false, caseOtherTool)
		return
	}
	result := fact.ArgsUnknown
	if verdict.recorded != nil {
		result = fact.CompareToDecision(&f.Args, verdict.recorded.ArgsDigest)
	}
	if result == fact.ArgsUnknown {
		if result = fact.CompareArguments(&c.args, &f.Args); result == fact.ArgsEqual && !c.allowsArguments(verdict) {
			result = fact.ArgsUnknown
		}
	}
	switch {
	case result == fact.ArgsEqual:
		c.inputMatch = inputMatch{match: matchEqual}
	case result == fact.ArgsDifferent:
		c.inputMatch = c.inputDifferences(f, verdict)
		j.calls.keepCallDifferences(c)
		j.reportDrift(c, f, verdict, f.HasMutationReason, "")
	case f.Args.Known || c.args.Known:
		c.inputMatch = inputMatch{match: matchInconclusive, reason: c.inconclusiveReason(f, verdict)}
	}
}

// inconclusiveReason says why the comparison is inconclusive.
func (x *details) inconclusiveReason(f *fact.Fact, verdict effectiveVerdict) string {
	switch {
	case !f.Args.Known:
		return events.MatchNotReported
	case x.args.Known && len(x.args.RedactedPaths)+len(f.Args.RedactedPaths) > 0:
		if x.args.Canonical == nil || f.Args.Canonical == nil {
			return events.MatchNotKept
		}
		return events.MatchRedacted
	case verdict.recorded == nil || verdict.recorded.ArgsDigest == "":
		return events.MatchNotReported
	case f.Args.DigestLike(verdict.recorded.ArgsDigest) == "":
		return events.MatchDigestForm
	}
	return events.MatchRedacted
}

// inputDifferences lists where the executed arguments differ from the admitted ones. Both must
// be kept in full. The admitted arguments are those of the request or announcement, if the
// decision's digest matches them.
func (x *details) inputDifferences(f *fact.Fact, verdict effectiveVerdict) inputMatch {
	r := inputMatch{match: matchDrift}
	paths := slices.Concat(x.args.RedactedPaths, f.Args.RedactedPaths)
	switch {
	case !x.args.Known, verdict.recorded != nil && verdict.recorded.ArgsDigest != "" && fact.CompareToDecision(&x.args, verdict.recorded.ArgsDigest) != fact.ArgsEqual:
		r.reason = events.MatchDigestOnly
		return r
	case x.args.Canonical == nil || len(f.Args.Canonical) > maxArgsPerCall || f.Args.Canonical == nil:
		r.reason = events.MatchNotKept
		return r
	}
	admitted, ok := x.args.UnmaskedTree(paths)
	executed, too := f.Args.UnmaskedTree(paths)
	if !ok || !too {
		r.reason = events.MatchNotKept
		return r
	}
	if r.differences, r.moreDifferences = listDifferences(admitted, executed); len(r.differences) == 0 {
		r.reason = events.MatchRedacted
	}
	return r
}

// Bounds of the differences of one call. Options bounds the arguments that are kept.
const (
	maxDifferences = 32
	maxPointer     = 256  // bytes; a deeper difference is reported at the place above it
	maxPointers    = 2048 // bytes of all pointers of one call
)

// listDifferences lists the places where b differs from a, as JSON pointers (RFC 6901),
// ordered by the bytes of member names. more counts the differences that are not in the list.
// A difference shows no values.
func listDifferences(a, b any) (list []events.Difference, more int) {
	d := differenceList{}
	d.walk("", a, b)
	return d.list, d.more
}

type differenceList struct {
	list     []events.Difference
	more     int
	size     int
	deepPath string // the last place reported for deeper differences
}

func (d *differenceList) walk(at string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, is := b.(map[string]any); is {
			d.compareObjects(at, a, b)
			return
		}
	case []any:
		if b, is := b.([]any); is {
			d.compareLists(at, a, b)
			return
		}
	default:
		switch b.(type) {
		case map[string]any, []any:
		default: // texts, numbers in canonical form, booleans and null
			if a == b {
				return
			}
		}
	}
	d.add(at, events.DifferenceChanged)
}

func (d *differenceList) compareObjects(at string, a, b map[string]any) {
	names := make([]string, 0, len(a)+len(b))
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		inA, isA := a[name]
		inB, isB := b[name]
		d.compareMember(at, name, inA, inB, isA, isB)
	}
}

func (d *differenceList) compareLists(at string, a, b []any) {
	for i := range max(len(a), len(b)) {
		var inA, inB any
		if i < len(a) {
			inA = a[i]
		}
		if i < len(b) {
			inB = b[i]
		}
		d.compareMember(at, strconv.Itoa(i), inA, inB, i < len(a), i < len(b))
	}
}

func (d *differenceList) compareMember(at, name string, a, b any, isA, isB bool) {
	if len(name) <= maxPointer {
		name = strictjson.EscapePointer(name)
	}
	if len(at)+1+len(name) > maxPointer {
		if !isA || !isB || !equalTrees(a, b) {
			d.addDeep(at)
		}
		return
	}
	switch at += "/" + name; {
	case !isA:
		d.add(at, events.DifferenceAdded)
	case !isB:
		d.add(at, events.DifferenceRemoved)
	default:
		d.walk(at, a, b)
	}
}

func equalTrees(a, b any) bool {
	inner := differenceList{}
	inner.walk("", a, b)
	return inner.more+len(inner.list) == 0
}

// addDeep reports once that something below a place differs.
func (d *differenceList) addDeep(at string) {
	if n := len(d.list); n > 0 && d.list[n-1].Pointer == at || d.deepPath == at && at != "" {
		return
	}
	d.deepPath = at
	d.add(at, events.DifferenceChanged)
}

func (d *differenceList) add(at, kind string) {
	if len(d.list) == maxDifferences || d.size+len(at) > maxPointers {
		d.more++
		return
	}
	d.size += len(at)
	d.list = append(d.list, events.Difference{Pointer: at, Kind: kind})
}
