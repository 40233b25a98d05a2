package correlation

import (
	"encoding/binary"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// A closed call is remembered for late messages, and most calls get none. Its details are
// compacted into one string, in which the garbage collector has nothing to scan. The engine
// expands them when it needs them. The summary, which is not compacted, shows for most messages
// that the call is not the one they are about.

// callSummary answers questions about a compacted call without expanding it. It is not up to
// date while the call is expanded.
type callSummary struct {
	nameFilter  uint64 // a Bloom filter of the call's event ids and workflow
	argsPrefix  uint64 // the first 8 bytes of the SHA-256 of its arguments
	exactArgs   bool   // argsPrefix tells it from calls with other arguments
	denied      bool   // see wasDenied
	usedReceipt bool   // see usedReceipt
	hasRequest  bool
	hasPre      bool
	announcedIn protocolSet
}

func (c *call) summarise() callSummary {
	o := callSummary{argsPrefix: c.args.SumPrefix(), denied: c.details.wasDenied(), usedReceipt: c.details.usedReceipt(),
		hasRequest: c.hasRequest, hasPre: c.hasPre, announcedIn: c.announcedIn}
	o.exactArgs = c.args.Known && len(c.args.RedactedPaths) == 0
	for _, e := range c.events {
		o.nameFilter |= nameFilterBits(e)
	}
	for i := range c.decisions {
		d := &c.decisions[i]
		o.nameFilter |= nameFilterBits(d.EventID) | nameFilterBits(d.Approval.ValueOrZero().Workflow)
		o.exactArgs = o.exactArgs && (d.ArgsDigest == "" || fact.CompareToDecision(&c.args, d.ArgsDigest) == fact.ArgsEqual)
	}
	o.nameFilter |= nameFilterBits(c.pendingApproval.ValueOrZero().Workflow) | nameFilterBits(c.preEvent)
	return o
}

// nameFilterBits are the bits of a name in the filter. A false match only costs time.
func nameFilterBits(name string) uint64 {
	if name == "" {
		return 0
	}
	var ends [16]byte
	copy(ends[:8], name)
	copy(ends[8:], name[max(0, len(name)-8):])
	h := (binary.LittleEndian.Uint64(ends[:])*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(ends[8:])) * 0xff51afd7ed558ccd
	return 1<<(h>>58) | 1<<(h>>52&63)
}

// hasOtherArguments reports whether the summary of a compacted call shows that its arguments
// differ from a fact's. False means that the call must be expanded to know.
func (c *call) hasOtherArguments(f *fact.Fact) bool {
	return c.details == nil && c.summary.exactArgs && f.Args.Known && f.Args.DecisionDigest == "" && len(f.Args.RedactedPaths) == 0 &&
		f.Args.SumPrefix() != c.summary.argsPrefix
}

// mayHaveName reports whether the call may have a name with these filter bits.
func (c *call) mayHaveName(bits uint64) bool {
	return c.details != nil || c.summary.nameFilter&bits == bits
}

// mayTakeLate reports whether a fact may belong to the call (see belongsToClosedCall). A publisher may repeat one id
// with the same arguments without end: no call that is complete is expanded for it.
func (c *call) mayTakeLate(f *fact.Fact) bool {
	switch o := &c.summary; {
	case c.details != nil:
		return true
	case f.Kind == fact.KindPre && (!o.hasPre || f.CallKey.ID != "" && !o.announcedIn.has(f.Protocol)):
		return true
	case f.Kind == fact.KindRequest:
		return !o.hasRequest
	}
	return c.mayHaveName(nameFilterBits(f.EventID))
}

// mayHaveUsedReceipt reports whether the call may have run on its own receipt.
func (c *call) mayHaveUsedReceipt() bool { return c.details != nil || c.summary.usedReceipt }

// directlyDenied reports whether the call itself was denied.
func (c *call) directlyDenied() bool {
	if c.details == nil {
		return c.summary.denied
	}
	return c.details.wasDenied()
}

// wasDenied reports whether the direct verdict is deny. It is not if the runtime blocked what was allowed, for whatever
// reason, as a gate does that got the verdict too late: to ask again goes around nothing.
func (x *details) wasDenied() bool {
	d := x.lastDecision()
	return x.directVerdict().verdict == events.Deny && (d == nil || d.Verdict != events.Allow)
}

// expand makes a call's details readable, at least until the current message is applied.
func (c *call) expand() *call {
	if c != nil && c.details == nil {
		c.session.calls.expandCall(c)
	}
	return c
}

// expandCall expands a compacted call. compactCalls will compact it again.
func (cs *calls) expandCall(c *call) {
	c.details = new(details)
	cs.codec.Decode(c.compacted, c.details)
	cs.dirtyCalls = append(cs.dirtyCalls, c)
}

// compactBatch is how many calls are compacted at a time. A batch is faster than single calls,
// as the code and its data stay in the processor's caches.
const compactBatch = 64

// compactIfMany compacts calls once a batch has gathered.
func (cs *calls) compactIfMany() {
	if len(cs.dirtyCalls) >= compactBatch {
		cs.compactCalls()
	}
}

// compactCalls compacts the details of closed calls.
func (cs *calls) compactCalls() {
	for i, c := range cs.dirtyCalls {
		if cs.dirtyCalls[i] = nil; c.isOpen() || c.details == nil {
			continue
		}
		c.summary = c.summarise()
		if b := cs.codec.Encode(c.details); string(b) != c.compacted {
			c.compacted = string(b)
		}
		c.details = nil
	}
	cs.dirtyCalls = cs.dirtyCalls[:0]
}
