package correlation

import (
	"encoding/binary"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// A closed call is remembered for late messages, and most calls get none. Its details are
// compacted into one string: about a fifth of their size, and nothing for the garbage
// collector to scan. The engine expands them when it needs them. The summary, which is not
// compacted, shows for most messages that the call is not the one they are about.

// callSummary answers questions about a compacted call without expanding it. It is not up to
// date while the call is expanded.
type callSummary struct {
	nameFilter uint64 // a Bloom filter of the call's event ids and workflow
	argsPrefix uint64 // the first 8 bytes of the SHA-256 of its arguments
	exactArgs  bool   // argsPrefix tells it from calls with other arguments
	denied     bool   // its direct verdict is deny
}

func (c *call) summarise() callSummary {
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

// directlyDenied reports whether the direct verdict of the call is deny.
func (c *call) directlyDenied() bool {
	if c.details == nil {
		return c.summary.denied
	}
	return c.directVerdict().verdict == events.Deny
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
	cs.codec.startReading(c.compacted)
	cs.codec.codeDetails(c.details)
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
		cs.codec.startWriting()
		cs.codec.codeDetails(c.details)
		if b := cs.codec.finishWriting(); string(b) != c.compacted {
			c.compacted = string(b)
		}
		c.details = nil
	}
	cs.dirtyCalls = cs.dirtyCalls[:0]
}

// compactedDecisionIDs are a call's decisionIDs. They are the first field of the compacted
// form, so a compacted call is not expanded for them.
func (c *call) compactedDecisionIDs() []string {
	if c.details != nil {
		return c.decisionIDs
	}
	var ids []string
	var p detailsCodec
	p.startReading(c.compacted)
	p.codeStrings(&ids)
	return ids
}

// codedWords are frequent texts; the code of a word is its index and one. The first codes are
// the protocols': see protocolRow.wordCode.
var codedWords = [...]string{
	6: "allow", "ask", "defer", "deny", fact.StatusPending, fact.StatusApproved, fact.StatusConsumed,
	"failed", "denied", "abandoned", "orphaned", matchEqual, matchDrift, matchInconclusive, "succeeded", "success", "error",
}

// wordCode is the code of a word, 0 if it has none.
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

// protocolWordCode is the code of a protocol's name, 0 if it has none.
func protocolWordCode(token string) byte { return rowOf(token).wordCode }

// codeWord writes or reads a text that may have a code.
func codeWord[T ~string](p *detailsCodec, s *T) {
	t := string(*s)
	if p.reading {
		*s = T(p.readText())
		return
	}
	if code := wordCode(t); code != 0 {
		p.writeCode(code)
		return
	}
	p.codeText(&t)
}

func (p *detailsCodec) writeCode(code byte) { p.output = append(p.output, code) }
