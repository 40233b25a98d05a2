package evidence

import (
	"fmt"

	"github.com/countersign-dev/countersign/events"
)

// HeadFunc fetches the head of a session as it is stored; the zero Head when
// the session has no record yet.
type HeadFunc func(SessionKey) (Head, error)

// Chain holds the heads of sessions while batches are built. Heads of a batch
// are staged until Commit; after a failed insert, Rollback forgets them. It is
// not for concurrent use.
type Chain struct {
	load   HeadFunc
	limit  int
	heads  map[SessionKey]Head
	staged map[SessionKey]Head
}

// NewChain makes a chain that asks load for heads it does not hold. It holds
// about limit heads between batches; zero means 100 000.
func NewChain(load HeadFunc, limit int) *Chain {
	if limit <= 0 {
		limit = 100_000
	}
	return &Chain{load: load, limit: limit, heads: map[SessionKey]Head{}, staged: map[SessionKey]Head{}}
}

// Missing lists, once each, the sessions of keys whose heads are not held, so
// that a shell can fetch them in one query and Put them.
func (c *Chain) Missing(keys []SessionKey) []SessionKey {
	var out []SessionKey
	seen := map[SessionKey]bool{}
	for _, k := range keys {
		if _, held := c.heads[k]; k.Session != "" && !held && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// Put gives the chain a head that was read from the store.
func (c *Chain) Put(k SessionKey, h Head) { c.heads[k] = h }

// Head is the current head of a session, staged ones first.
func (c *Chain) Head(k SessionKey) (Head, error) {
	if k.Session == "" {
		return Head{}, nil
	}
	if h, ok := c.staged[k]; ok {
		return h, nil
	}
	if h, ok := c.heads[k]; ok {
		return h, nil
	}
	h, err := c.load(k)
	if err != nil {
		return Head{}, fmt.Errorf("the head of session %.64q: %w", k.Session, err)
	}
	c.heads[k] = h
	return h, nil
}

func (c *Chain) stage(k SessionKey, h Head) {
	if k.Session != "" {
		c.staged[k] = h
	}
}

// Commit makes the staged heads the stored ones. Call it when the batch is
// durable.
func (c *Chain) Commit() {
	if len(c.heads)+len(c.staged) > c.limit {
		clear(c.heads)
	}
	for k, h := range c.staged {
		c.heads[k] = h
	}
	clear(c.staged)
}

// Rollback forgets the staged heads and, as nobody knows what was stored, all
// others too.
func (c *Chain) Rollback() {
	clear(c.staged)
	clear(c.heads)
}

// BuildBatch makes the records of consecutive messages and stages their heads
// in c. On an error nothing is staged.
func (b *Builder) BuildBatch(c *Chain, msgs []events.LogMessage, keys Keys) (built []Built, err error) {
	defer func() {
		if err != nil {
			clear(c.staged)
		}
	}()
	built = make([]Built, 0, len(msgs))
	for i, m := range msgs {
		if i > 0 && m.Seq != msgs[i-1].Seq+1 {
			return nil, fmt.Errorf("%w: %d follows %d", ErrOrder, m.Seq, msgs[i-1].Seq)
		}
		key := b.Scope(m)
		head, err := c.Head(key)
		if err != nil {
			return nil, err
		}
		one, err := b.Build(m, head, keys)
		if err != nil {
			return nil, err
		}
		c.stage(key, one.Head())
		built = append(built, one)
	}
	return built, nil
}
