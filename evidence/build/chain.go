package build

import (
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// HeadFunc fetches the stored head of a session, or the zero Head when the session has
// no record yet.
type HeadFunc func(events.SessionID) (evidence.Head, error)

// Chain holds the heads of sessions while batches are built. The heads of a batch are
// staged until Commit. If a batch cannot be stored, the caller begins again with a new Chain.
// A Chain is not safe for concurrent use.
type Chain struct {
	load   HeadFunc
	limit  int
	heads  map[events.SessionID]evidence.Head
	staged map[events.SessionID]evidence.Head
}

// NewChain makes a chain that asks load for heads it does not hold. It holds
// about limit heads between batches; zero means 100 000.
func NewChain(load HeadFunc, limit int) *Chain {
	if limit <= 0 {
		limit = 100_000
	}
	return &Chain{load: load, limit: limit, heads: map[events.SessionID]evidence.Head{}, staged: map[events.SessionID]evidence.Head{}}
}

// MissingHeads lists the sessions of keys that have no head in c, each once. The caller can
// fetch these heads in one query and pass them to PutHead.
func (c *Chain) MissingHeads(keys []events.SessionID) []events.SessionID {
	var out []events.SessionID
	seen := map[events.SessionID]bool{}
	for _, k := range keys {
		if _, held := c.heads[k]; k.Session != "" && !held && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// PutHead stores a head that the caller read from the store.
func (c *Chain) PutHead(k events.SessionID, h evidence.Head) { c.heads[k] = h }

// Head returns the current head of a session: the staged one if there is one, otherwise
// the stored one.
func (c *Chain) Head(k events.SessionID) (evidence.Head, error) {
	if k.Session == "" {
		return evidence.Head{}, nil
	}
	if h, ok := c.staged[k]; ok {
		return h, nil
	}
	if h, ok := c.heads[k]; ok {
		return h, nil
	}
	h, err := c.load(k)
	if err != nil {
		return evidence.Head{}, fmt.Errorf("the head of session %.64q: %w", k.Session, err)
	}
	c.heads[k] = h
	return h, nil
}

func (c *Chain) stageHead(k events.SessionID, h evidence.Head) {
	if k.Session != "" {
		c.staged[k] = h
	}
}

// Commit makes the staged heads those that the next batch follows, and forgets older ones when there
// are too many. The caller may call it before the batch is durable, if it makes no further record
// after a batch that could not be stored.
func (c *Chain) Commit() {
	if len(c.heads)+len(c.staged) > c.limit {
		clear(c.heads)
	}
	for k, h := range c.staged {
		c.heads[k] = h
	}
	clear(c.staged)
}

// BuildBatch makes the records of consecutive messages and stages their heads
// in c. On an error nothing of the batch is staged.
func (b *Builder) BuildBatch(c *Chain, msgs []events.LogMessage, keys Keys) ([]Built, error) {
	return b.BuildParts(c, msgs, keys, 1, func(parts []func()) { parts[0]() })
}

// BuildParts is BuildBatch split into independent parts. All records of a session are made
// in one part, in their order. run must call every part, on any goroutine, and return
// when all calls have returned. With more than one part, keys must be safe for concurrent
// use.
func (b *Builder) BuildParts(c *Chain, msgs []events.LogMessage, keys Keys, parts int, run func(parts []func())) ([]Built, error) {
	w := b.getWorkspace()
	defer b.workspaces.Put(w)
	scopes, sessions := make([]recordScope, len(msgs)), make([]events.SessionID, len(msgs))
	heads := make(map[events.SessionID]evidence.Head, len(msgs)/4)
	for i, m := range msgs {
		if i > 0 && m.Seq != msgs[i-1].Seq+1 {
			return nil, fmt.Errorf("%w: %d follows %d", ErrOrder, m.Seq, msgs[i-1].Seq)
		}
		var err error
		if scopes[i], err = b.readScope(w, m, keys); err != nil {
			return nil, fmt.Errorf("record %d: %w", m.Seq, err)
		}
		sessions[i] = scopes[i].Key
		if _, known := heads[sessions[i]]; known || sessions[i].Session == "" {
			continue
		}
		head, err := c.Head(sessions[i])
		if err != nil {
			return nil, err
		}
		heads[sessions[i]] = head
	}
	built := make([]Built, len(msgs))
	work := make([]batchPart, max(1, parts))
	calls := make([]func(), len(work))
	for p := range work {
		work[p] = batchPart{b: b, keys: keys, msgs: msgs, scopes: scopes, sessions: sessions, headsBefore: heads, built: built, headsAfter: map[events.SessionID]evidence.Head{}}
		calls[p] = work[p].buildRecords
	}
	for i, k := range sessions {
		p := &work[partOf(k, i, len(work))]
		p.indexes = append(p.indexes, i)
	}
	run(calls)
	for i := range work {
		if work[i].err != nil {
			return nil, work[i].err
		}
	}
	for i := range work {
		for k, h := range work[i].headsAfter {
			c.stageHead(k, h)
		}
	}
	return built, nil
}

// partOf returns the part that builds message i. All messages of a session have the same
// part.
func partOf(k events.SessionID, i, parts int) int {
	if k.Session == "" {
		return i % parts
	}
	h := uint32(2166136261) // FNV-1a
	for _, s := range [...]string{k.Tenant, "\x00", k.Session} {
		for j := range len(s) {
			h = (h ^ uint32(s[j])) * 16777619
		}
	}
	return int(h % uint32(parts))
}

// batchPart is one part of a batch. It reads what all parts share and writes only its own
// elements of built.
type batchPart struct {
	b           *Builder
	keys        Keys
	msgs        []events.LogMessage
	scopes      []recordScope
	sessions    []events.SessionID
	headsBefore map[events.SessionID]evidence.Head // of the sessions before the batch
	built       []Built
	indexes     []int                              // the messages of this part
	headsAfter  map[events.SessionID]evidence.Head // of its sessions, after it
	err         error
}

func (p *batchPart) buildRecords() {
	w := p.b.getWorkspace()
	defer p.b.workspaces.Put(w)
	for _, i := range p.indexes {
		key := p.sessions[i]
		head, begun := p.headsAfter[key]
		if !begun {
			head = p.headsBefore[key]
		}
		if p.built[i], p.err = p.b.buildRecord(w, p.scopes[i], p.msgs[i], head, p.keys); p.err != nil {
			return
		}
		p.headsAfter[key] = p.built[i].Head()
	}
}
