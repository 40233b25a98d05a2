package correlation

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
	"github.com/countersign-dev/countersign/events"
)

// ErrSnapshot says that a snapshot cannot be restored: another program or
// configuration made it, or it is damaged. Nothing is lost with it but time: the
// log can be replayed.
var ErrSnapshot = errors.New("the snapshot cannot be used")

// formatVersion is to be raised when the same state means something else than before, or
// when calls are compacted otherwise. A state of another form is noticed by itself.
const formatVersion = 10

// snapshotState is all that a Correlator knows of the log. What it was configured with
// is no part of it, nor is a tenant's key or a session's.
type snapshotState struct {
	Engine  *engine
	Keys    map[string]ed25519.PublicKey
	Retired map[string]bool
}

// Snapshot writes down all that the Correlator knows, so that Restore makes one
// that goes on as this one does. The same state gives the same bytes. It takes 0.4
// to 0.9 s for every 100,000 calls that are remembered, and holds arguments of calls
// in the clear: keep it like the log.
func (c *Correlator) Snapshot() []byte {
	b, _ := c.SnapshotUnlessStopped(nil)
	return b
}

// SnapshotUnlessStopped is Snapshot for a caller that may have to do something else
// meanwhile: stop, which may be nil, is asked every few milliseconds, and once it
// says yes there is none, which whole tells. The Correlator is the same either way.
func (c *Correlator) SnapshotUnlessStopped(stop func() bool) (b []byte, whole bool) {
	if stop != nil && stop() { // before there is room for it, which takes its time, too
		return nil, false
	}
	c.engine.calls.compactCalls()
	made := c.engine.opts.configDigest()
	b, err := snapshot.Append(append(make([]byte, 0, c.snapshotSize()), made[:]...), &snapshotState{c.engine, c.keys, c.retiredKeys}, 3*c.engine.calls.callCount(), stop)
	return b, err == nil
}

// What a call, a session and an event usually take in a snapshot, in bytes, with all
// that is remembered of each. Too much costs nothing, for memory that is not touched
// is none; too little has all of the snapshot copied when it is nearly done.
const (
	callSize    = 768
	sessionSize = 512
	eventSize   = 128
)

// snapshotSize is for a whole snapshot.
func (c *Correlator) snapshotSize() int {
	return c.engine.calls.snapshotSize() + c.engine.history.idCount()*eventSize
}

// Restore makes a Correlator of a snapshot. The bytes must be those of Snapshot:
// what could have been changed must be verified before. The options must be those
// of the Correlator that it was made of.
func Restore(o Options, b []byte) (*Correlator, error) {
	made := o.withDefaults().configDigest()
	if len(b) < len(made) || [sha256.Size]byte(b) != made {
		return nil, fmt.Errorf("%w: another version or configuration made it", ErrSnapshot)
	}
	s, err := snapshot.Read[snapshotState](b[len(made):])
	if err != nil || s.Engine == nil {
		return nil, errors.Join(ErrSnapshot, err)
	}
	c := New(o)
	s.Engine.configure(c.engine.opts)
	c.engine = s.Engine
	c.engine.recount()
	for kid, pub := range s.Keys {
		c.addKey(kid, pub)
	}
	for kid := range s.Retired {
		c.retiredKeys[kid] = true
	}
	c.decoder = c.NewDecoder()
	return c, nil
}

// recount counts again what a snapshot does not hold.
func (e *engine) recount() {
	e.calls.recount()
	e.trackers.recount()
}

// configDigest tells snapshots of different forms and configurations apart.
func (o Options) configDigest() [sha256.Size]byte {
	o.TenantKey, o.SessionSecret, o.KeyVoucher, o.RetireVoucher, o.Rules = nil, nil, nil, nil, nil
	return sha256.Sum256(fmt.Appendf(nil, "%d\n%+v\n%s", formatVersion, o, stateShape()))
}

// stateShape does not change while the program runs, and takes longer than a small snapshot.
var stateShape = sync.OnceValue(func() string { return snapshot.Shape(reflect.TypeFor[snapshotState]()) })

// Pack gives the groups in order.
func (s *callGroups) Pack() any { return &s.list }

// Unpack takes what Pack gave.
func (s *callGroups) Unpack(form any) {
	*s = callGroups{}
	for _, sl := range *form.(*[]*callGroup) {
		s.add(sl, sl.key.Hash())
	}
}

// Pack gives those that count, in the order of time, which is a heap, too.
func (d *deadlines) Pack() any {
	list := make([]deadline, 0, len(*d))
	for _, x := range *d {
		if !x.isStale() {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b deadline) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.call.order, b.call.order))
	})
	return &list
}

// Unpack takes what Pack gave.
func (d *deadlines) Unpack(form any) { *d = *form.(*[]deadline) }

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
func (c *call) wasDenied() bool {
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
