package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// history remembers the event ids and contents of each publisher, and the findings that were
// emitted about it.
type history struct {
	opts         *engineOptions `snapshot:"-"` // not part of a snapshot
	sources      *tables.LRU[fact.PublisherKey, *sourceState]
	eventIDCount int // of all publishers
}

func newHistory(o *engineOptions) *history {
	return &history{opts: o, sources: tables.NewLRU[fact.PublisherKey, *sourceState]()}
}

// sourceState is what is remembered of a publisher over all its sessions.
type sourceState struct {
	key             fact.PublisherKey
	firstContents   *tables.FIFO[fact.Sum, firstContent] // by event id
	variants        map[fact.Sum][]eventContent          // further contents under an id; rare
	emittedFindings *tables.FIFO[fact.Sum, struct{}]     // findings that were emitted
}

func (s *sourceState) ID() fact.PublisherKey { return s.key }

func (s *sourceState) Owner() tables.PublisherKey { return s.key.TenantTableKey() }

func (s *sourceState) Holds(*tables.Share) {}

// eventContent identifies a content that came under an event id.
type eventContent struct{ contentSum, coreSum fact.Sum }

// firstContent is the first content under an event id.
type firstContent struct {
	eventContent
	seq uint64
}

// hasContent reports whether a content came under an id before, and whether its core did.
func (s *sourceState) hasContent(id fact.Sum, first, v eventContent) (same, sameCore bool) {
	same, sameCore = first.contentSum == v.contentSum, first.coreSum == v.coreSum
	for _, o := range s.variants[id] {
		same, sameCore = same || o.contentSum == v.contentSum, sameCore || o.coreSum == v.coreSum
	}
	return same, sameCore
}

// addVariant records one more content under an id.
func (s *sourceState) addVariant(id fact.Sum, v eventContent) {
	if len(s.variants[id]) == maxVariants-1 {
		return
	}
	if s.variants == nil {
		s.variants = map[fact.Sum][]eventContent{}
	}
	s.variants[id] = append(s.variants[id], v)
}

// dropOldestIDs forgets the n oldest event ids.
func (s *sourceState) dropOldestIDs(n int) {
	for i := range n {
		if len(s.variants) == 0 {
			break
		}
		delete(s.variants, s.firstContents.KeyAt(i))
	}
	s.firstContents.DropOldest(n)
}

// novelty says whether an event is new.
type novelty int

const (
	novel     novelty = iota // not seen before, or in conflict with an event that was
	duplicate                // seen before with equal bytes
	amended                  // seen before with another verdict or approval
)

func (h *history) ensureSource(k fact.PublisherKey) *sourceState {
	if s, ok := h.sources.Get(k); ok {
		return s
	}
	s := &sourceState{
		key:             k,
		firstContents:   tables.NewFIFO[fact.Sum, firstContent](tables.NoLimit),
		emittedFindings: tables.NewFIFO[fact.Sum, struct{}](findingsPerEvent * h.opts.MaxEventsPerSource),
	}
	if h.sources.Len() >= h.opts.MaxPublishers {
		if old, found := h.sources.Surplus(tables.ByPlaces, s.Owner(), k); found {
			h.eventIDCount -= old.firstContents.Len()
			h.sources.Remove(old.key)
		}
	}
	h.sources.Add(s)
	return s
}

// classifyNovelty records the id and the content of a fact, and says whether they are new.
// conflict means that another content came under the same id before; before is the sequence of
// the first. Requests are not recorded: AgentHook resumes after an approval by sending the
// same event again, and an event may be published after it was a request.
func (h *history) classifyNovelty(f *fact.Fact) (n novelty, conflict bool, before uint64) {
	switch {
	case f.Kind == fact.KindRequest || f.Kind == fact.KindOtherRequest || f.Kind == fact.KindAdmissionReply:
		return novel, false, 0
	case f.Kind == fact.KindDecision && f.DecisionID == "": // only in recordings
		return novel, false, 0
	case f.Kind != fact.KindDecision && f.EventID == "":
		return novel, false, 0
	}
	id, v := f.IDSum(), eventContent{f.ContentSum, f.CoreSum}
	s := h.ensureSource(fact.PublisherKey{Tenant: f.Key.Tenant, Source: f.Key.Source})
	known := s.firstContents.Lookup(id)
	if known == nil {
		h.trimEventIDs(s)
		*s.firstContents.Add(id) = firstContent{v, f.Seq}
		h.eventIDCount++
		return novel, false, 0
	}
	same, sameCore := s.hasContent(id, known.eventContent, v)
	if same {
		return duplicate, false, 0
	}
	s.addVariant(id, v)
	if sameCore {
		return amended, false, 0
	}
	return novel, true, known.seq
}

// trimEventIDs makes room for one more event id before it is added, so that a full table does
// not grow again. It forgets ids of the publisher that was silent for longest, then ids of the
// speaking one. Each publisher keeps Options.MaxEventsPerSource ids.
func (h *history) trimEventIDs(speaking *sourceState) {
	for h.eventIDCount >= h.opts.MaxEvents {
		from := speaking
		if silent, found := h.sources.Oldest(); found && silent.firstContents.Len() > h.opts.MaxEventsPerSource {
			from = silent
		}
		over := from.firstContents.Len() - h.opts.MaxEventsPerSource
		if from == speaking {
			over++ // counting the id to be added
		}
		n := min(over, tables.EvictionBatch(h.opts.MaxEvents))
		if n <= 0 {
			return
		}
		from.dropOldestIDs(n)
		h.eventIDCount -= n
	}
}

func (h *history) sourceCount() int { return h.sources.Len() }

func (h *history) idCount() int { return h.eventIDCount }

// emittedFindings are the keys of the emitted findings about a publisher.
func (h *history) emittedFindings(k fact.PublisherKey) *tables.FIFO[fact.Sum, struct{}] {
	return h.ensureSource(k).emittedFindings
}

// hasDecision reports whether a decision on a call of the publisher was seen.
func (h *history) hasDecision(k fact.PublisherKey, decisionID string) bool {
	s, there := h.sources.Peek(k)
	return there && s.firstContents.Lookup(fact.SumOf("decision", decisionID)) != nil
}

// sharedNames returns an equal key whose texts are in memory already, if there is one.
func (h *history) sharedNames(k fact.PublisherKey) fact.PublisherKey {
	if s, there := h.sources.Peek(k); there {
		return s.key
	}
	return k
}
