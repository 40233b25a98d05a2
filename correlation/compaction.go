package correlation

import (
	"encoding/binary"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// A call that is over is remembered for what may come late, and usually nothing
// does. Its details are compacted into one text then, about a fifth of their size
// and nothing for the garbage collector to look into, and expanded when a message
// asks. What is kept of them beside that, the summary, tells most messages that
// ask that the call is not the one they look for.

// callSummary is what a compacted call can be asked without expanding it. What it says of
// a call that is not compacted is not up to date.
type callSummary struct {
	nameFilter uint64 // a Bloom filter of the events and the workflow that it goes by
	argsPrefix uint64 // the beginning of its arguments' SHA-256
	exactArgs  bool   // that tells it from calls with other arguments
	denied     bool   // its own verdict is deny
}

func summaryOf(c *call) callSummary {
	o := callSummary{argsPrefix: c.args.SumPrefix(), denied: c.directVerdict().verdict == events.Deny}
	o.exactArgs = c.args.Known && len(c.args.RedactedPaths) == 0
	for _, e := range c.events {
		o.nameFilter |= nameFilterBits(e)
	}
	for i := range c.decisions {
		d := &c.decisions[i]
		o.nameFilter |= nameFilterBits(d.EventID) | nameFilterBits(d.Approval.ValueOrZero().Workflow)
		o.exactArgs = o.exactArgs && (d.ArgsDigest == "" || fact.CompareToDecision(&c.args, d.ArgsDigest) == fact.ArgsEqual)
	}
	o.nameFilter |= nameFilterBits(c.pendingApproval.ValueOrZero().Workflow)
	return o
}

// nameFilterBits are the bits of a name in the filter. A filter that lets too much
// through costs time only.
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

// hasOtherArguments tells that a call that is over has other arguments than a fact, if that
// can be said without expanding it.
func (c *call) hasOtherArguments(f *fact.Fact) bool {
	return c.details == nil && c.summary.exactArgs && f.Args.Known && f.Args.DecisionDigest == "" && len(f.Args.RedactedPaths) == 0 &&
		f.Args.SumPrefix() != c.summary.argsPrefix
}

// mayHaveName tells that a call may go by a name.
func (c *call) mayHaveName(bits uint64) bool {
	return c.details != nil || c.summary.nameFilter&bits == bits
}

// wasDenied reports whether the verdict for this very call is deny.
func (c *call) directlyDenied() bool {
	if c.details == nil {
		return c.summary.denied
	}
	return c.directVerdict().verdict == events.Deny
}

// expand makes a call's details accessible, until the message is through at least.
func (c *call) expand() *call {
	if c == nil || c.details != nil {
		return c
	}
	cs := c.session.calls
	c.details = new(details)
	cs.codec.startReading(c.compacted)
	cs.codec.codeDetails(c.details)
	cs.dirtyCalls = append(cs.dirtyCalls, c)
	return c
}

// compactBatch is how many calls are compacted one after the other: a processor that
// has just done it does it again in less time.
const compactBatch = 64

// compactIfMany compacts calls when there are enough for it to be fast; see compactBatch.
func (cs *calls) compactIfMany() {
	if len(cs.dirtyCalls) >= compactBatch {
		cs.compactCalls()
	}
}

// compactCalls packs the details of the calls that are over.
func (cs *calls) compactCalls() {
	for i, c := range cs.dirtyCalls {
		if cs.dirtyCalls[i] = nil; c.isOpen() || c.details == nil {
			continue
		}
		c.summary = summaryOf(c)
		cs.codec.startWriting()
		cs.codec.codeDetails(c.details)
		if b := cs.codec.finishWriting(); string(b) != c.compacted {
			c.compacted = string(b)
		}
		c.details = nil
	}
	cs.dirtyCalls = cs.dirtyCalls[:0]
}

// compactedDecisionIDs are a call's joins.
func (c *call) compactedDecisionIDs() []string {
	if c.details != nil {
		return c.decisionIDs
	}
	var joins []string
	var p detailsCodec
	p.startReading(c.compacted)
	p.codeStrings(&joins)
	return joins
}

// codedWords are texts that most calls have, by the code that wordCode gives them. The
// first of them are the protocols: see protocolRow.wordCode.
var codedWords = [...]string{
	6: "allow", "ask", "defer", "deny", fact.StatusPending, fact.StatusApproved, fact.StatusConsumed,
	"failed", "denied", "abandoned", "orphaned", matchEqual, matchDrift, matchInconclusive, "succeeded", "success", "error",
}

// wordCode is how a usual word is written; 0 if it is none.
func wordCode(w string) byte {
	switch w {
	case "allow":
		return 7
	case "ask":
		return 8
	case "defer":
		return 9
	case "deny":
		return 10
	case fact.StatusPending:
		return 11
	case fact.StatusApproved:
		return 12
	case fact.StatusConsumed:
		return 13
	case "failed":
		return 14
	case "denied":
		return 15
	case "abandoned":
		return 16
	case "orphaned":
		return 17
	case matchEqual:
		return 18
	case matchDrift:
		return 19
	case matchInconclusive:
		return 20
	case "succeeded":
		return 21
	case "success":
		return 22
	case "error":
		return 23
	}
	return protocolWordCode(w)
}

// protocolWordCode is how a compacted call writes the name of a protocol; 0: in full.
func protocolWordCode(token string) byte { return rowOf(token).wordCode }

// codeWord is a text that may be a usual one.
func codeWord[T ~string](p *detailsCodec, s *T) {
	t := string(*s)
	if p.reading {
		*s = T(p.readText())
		return
	}
	if code := wordCode(t); code != 0 {
		p.output = append(p.output, code)
		return
	}
	p.codeText(&t)
}
