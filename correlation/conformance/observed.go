package conformance

import "hash/fnv"

// observed is what a session's events gave to judge.
type observed struct {
	counts  map[Facet]uint64
	ids     map[uint64]bool
	calls   map[string]callClaim
	models  int // model calls that were announced, less those that ended
	waiting int // requests about subscriptions, less the answers
	ended   bool
	partial bool
}

// callClaim is what events say of one call. A call that claims to have waited, or
// does not say that it did not, must carry its answer; one that was announced must
// end.
type callClaim struct{ claims, answered, announced, over bool }

func (c callClaim) and(d callClaim) callClaim {
	return callClaim{c.claims || d.claims, c.answered || d.answered, c.announced || d.announced, c.over || d.over}
}

func (o *observed) add(list facets) {
	for _, f := range list {
		o.counts[f]++
	}
}

// event counts one event, and what it is beside others, and tells whether it had not
// come before.
func (o *observed) event(id string, list facets) (fresh bool) {
	if o.counts[Event] > 0 {
		o.counts[Sequel]++
	}
	o.add(list)
	if id != "" && o.remember(id) {
		o.counts[Again]++
		return false
	}
	return true
}

// remember notes an id and tells whether it was noted before.
func (o *observed) remember(id string) (known bool) {
	key := keyOf(id)
	switch {
	case o.ids[key]:
		return true
	case len(o.ids) >= maxIDs:
		o.partial = true
	default:
		o.ids[key] = true
	}
	return false
}

func keyOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// governed tells whether a call with this id was announced as a governed one.
func (o *observed) governed(id string) bool {
	return id != "" && o.ids[keyOf("governed\x00"+id)]
}

func (o *observed) call(id string, c callClaim) {
	known, there := o.calls[id]
	if !there && len(o.calls) >= maxCalls {
		o.partial = true
		return
	}
	o.calls[id] = known.and(c)
}

// close gives what a session shows only when all of it was seen.
func (o *observed) close(counts map[Facet]uint64) {
	if o.models > 0 && !o.ended {
		counts[LLMOpen] += uint64(o.models)
	}
	if o.waiting > 0 {
		counts[Unanswered] += uint64(o.waiting)
	}
	for _, c := range o.calls {
		if c.claims && !c.answered {
			counts[Unstamped]++
		}
		if c.announced && !c.over && !o.ended {
			counts[StillOpen]++
		}
	}
}
