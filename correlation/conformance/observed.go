package conformance

import "hash/fnv"

// sessionTally is what a session's events gave to judge.
type sessionTally struct {
	counts         map[Facet]uint64
	ids            map[uint64]bool
	calls          map[string]callState
	openModelCalls int // model calls that were announced, less those that ended
	openRequests   int // requests about subscriptions, less the answers
	ended          bool
	partial        bool
}

// callState is what events say of one call. A call that claims to have waited, or
// does not say that it did not, must carry its answer; one that was announced must
// end.
type callState struct{ needsVerdict, hasVerdict, announced, ended bool }

func (c callState) merge(d callState) callState {
	return callState{c.needsVerdict || d.needsVerdict, c.hasVerdict || d.hasVerdict, c.announced || d.announced, c.ended || d.ended}
}

func (o *sessionTally) addFacets(list facetList) {
	for _, f := range list {
		o.counts[f]++
	}
}

// addEvent counts one event, and what it is beside others, and tells whether it had not
// come before.
func (o *sessionTally) addEvent(id string, list facetList) (fresh bool) {
	if o.counts[Event] > 0 {
		o.counts[FollowingEvents]++
	}
	o.addFacets(list)
	if id != "" && o.rememberID(id) {
		o.counts[RepeatedEvents]++
		return false
	}
	return true
}

// rememberID notes an id and tells whether it was noted before.
func (o *sessionTally) rememberID(id string) (known bool) {
	key := hashID(id)
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

func hashID(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// isGoverned tells whether a call with this id was announced as a governed one.
func (o *sessionTally) isGoverned(id string) bool {
	return id != "" && o.ids[hashID("governed\x00"+id)]
}

func (o *sessionTally) addCall(id string, c callState) {
	known, there := o.calls[id]
	if !there && len(o.calls) >= maxCalls {
		o.partial = true
		return
	}
	o.calls[id] = known.merge(c)
}

// addOpenCounts gives what a session shows only when all of it was seen.
func (o *sessionTally) addOpenCounts(counts map[Facet]uint64) {
	if o.openModelCalls > 0 && !o.ended {
		counts[OpenModelCalls] += uint64(o.openModelCalls)
	}
	if o.openRequests > 0 {
		counts[OpenSubscriptionRequests] += uint64(o.openRequests)
	}
	for _, c := range o.calls {
		if c.needsVerdict && !c.hasVerdict {
			counts[CallsWithoutVerdict]++
		}
		if c.announced && !c.ended && !o.ended {
			counts[OpenCalls]++
		}
	}
}
