package correlation

// sourceKey is one publisher of one tenant.
type sourceKey struct{ tenant, source string }

// sourceState is what is remembered of a publisher over all its sessions.
type sourceState struct {
	key             sourceKey
	firstContents   *fifoMap[sum, firstContent] // by event id
	variants        map[sum][]eventContent      // what else came under an id, which is rare
	emittedFindings *fifoMap[sum, struct{}]     // findings that were put out
}

func (s *sourceState) id() sourceKey { return s.key }

// eventContent is one content that came under an event id.
type eventContent struct{ contentSum, coreSum sum }

// firstContent is the content that came first under an id.
type firstContent struct {
	eventContent
	seq uint64
}

// hasContent tells whether a content came under an id, and whether its core did.
func (s *sourceState) hasContent(id sum, first, v eventContent) (same, sameCore bool) {
	same, sameCore = first.contentSum == v.contentSum, first.coreSum == v.coreSum
	for _, o := range s.variants[id] {
		same, sameCore = same || o.contentSum == v.contentSum, sameCore || o.coreSum == v.coreSum
	}
	return same, sameCore
}

// addVariant notes one more content under an id.
func (s *sourceState) addVariant(id sum, v eventContent) {
	if len(s.variants[id]) == maxVariants-1 {
		return
	}
	if s.variants == nil {
		s.variants = map[sum][]eventContent{}
	}
	s.variants[id] = append(s.variants[id], v)
}

// dropOldestIDs forgets the n event ids that came first.
func (s *sourceState) dropOldestIDs(n int) {
	for i := range n {
		if len(s.variants) == 0 {
			break
		}
		delete(s.variants, s.firstContents.keyAt(i))
	}
	s.firstContents.dropOldest(n)
}

// novelty is how new an event is.
type novelty int

const (
	novel     novelty = iota // not seen before, or a conflict with what was seen
	duplicate                // seen before, to the letter
	amended                  // seen before but for what it says about verdict and approval
)

func (m *machine) ensureSource(k sourceKey) *sourceState { return m.ensureSourceHashed(k, k.hash()) }

// ensureSourceHashed is source for a key whose hash is known.
func (m *machine) ensureSourceHashed(k sourceKey, hash uint32) *sourceState {
	if s, ok := m.sources.getHashed(k, hash); ok {
		return s
	}
	if m.sources.len() >= m.opts.MaxSources {
		if old, any := m.sources.oldest(); any {
			m.eventIDCount -= old.firstContents.len()
		}
		m.sources.removeOldest()
	}
	s := &sourceState{
		key:             k,
		firstContents:   newFIFOMap[sum, firstContent](noLimit),
		emittedFindings: newFIFOMap[sum, struct{}](findingsPerEvent * m.opts.MaxEventsPerSource),
	}
	m.sources.add(s)
	return s
}

// classifyNovelty remembers a fact's id and content. Requests are not in it: asking
// again with the same event is how AgentHook resumes after an approval, and the
// event that was asked about is none that was seen before.
func (m *machine) classifyNovelty(f *fact) novelty {
	switch {
	case f.kind == kindRequest || f.kind == kindOtherRequest || f.kind == kindAdmissionReply:
		return novel
	case f.kind == kindDecision && f.decisionID == "": // only in recordings
		return novel
	case f.kind != kindDecision && f.eventID == "":
		return novel
	}
	id, v := f.idSum(), eventContent{f.contentSum, f.coreSum}
	s := m.ensureSourceHashed(sourceKey{f.key.tenant, f.key.source}, f.originHashes().source)
	hash := id.hash()
	known := s.firstContents.lookupHashed(id, hash)
	if known == nil {
		m.trimEventIDs(s)
		*s.firstContents.add(id, hash) = firstContent{v, f.seq}
		m.eventIDCount++
		return novel
	}
	same, sameCore := s.hasContent(id, known.eventContent, v)
	if same {
		return duplicate
	}
	s.addVariant(id, v)
	if sameCore {
		return amended
	}
	m.reportRuleFinding(ruleConflict, nil, f, findingFrom(f.eventID).withContent(f.coreSum).withSeq(known.seq))
	return novel
}

// trimEventIDs makes room for one more event id, before it comes, so that what is full
// does not grow once more. Those go first of the publisher that was silent for the
// longest time, then those of the one that just spoke. Nobody loses those that every
// publisher may have.
func (m *machine) trimEventIDs(speaking *sourceState) {
	for m.eventIDCount >= m.opts.MaxEvents {
		from := speaking
		if silent, any := m.sources.oldest(); any && silent.firstContents.len() > m.opts.MaxEventsPerSource {
			from = silent
		}
		over := from.firstContents.len() - m.opts.MaxEventsPerSource
		if from == speaking {
			over++ // with the one that comes
		}
		n := min(over, evictionBatch(m.opts.MaxEvents))
		if n <= 0 {
			return
		}
		from.dropOldestIDs(n)
		m.eventIDCount -= n
	}
}

// idSum gives f.id; whoever reads messages ahead has set it.
func (f *fact) idSum() sum {
	if f.cachedIDSum == (sum{}) {
		if f.kind == kindDecision {
			f.cachedIDSum = sumOf("decision", f.decisionID)
		} else {
			f.cachedIDSum = sumOf("event", f.eventID)
		}
	}
	return f.cachedIDSum
}

// checkRequestConflict compares a request with the event that shares its id: they must be
// the same but for what admission adds (AH-C-050).
func (m *machine) checkRequestConflict(c *call, f *fact) {
	crossed := (f.kind == kindPre && c.frameKind == kindRequest) || (f.kind == kindRequest && c.frameKind == kindPre)
	if !crossed || f.eventID == "" || f.eventID != c.frameEvent {
		return
	}
	if f.frameSum != c.frameSum || compareArguments(&c.args, &f.args) == argsDifferent {
		m.reportRuleFinding(ruleConflict, nil, f, findingFrom(f.eventID).withContent(f.coreSum).withEventsOf(c))
	}
}

// checkSecondInvocation: in AAEP an id belongs to one invocation of a session
// (AAEP-C-052).
func (m *machine) checkSecondInvocation(s *session, c *call, f *fact) {
	if f.kind != kindPre || f.callKey.id == "" {
		return
	}
	sl := s.ensureGroup(f)
	if sl.invokedEvent == "" {
		sl.invokedEvent = firstNonEmpty(f.eventID, "?")
		return
	}
	if sl.invokedEvent != f.eventID {
		v := findingFrom(sl.invokedEvent, f.eventID)
		if o := s.findInGroup(f.callKey, sl.invokedEvent, func(o *call) bool { return o.preEvent == sl.invokedEvent }); o != nil {
			v.withEventsOf(o)
		}
		m.reportRuleFinding(ruleReused, c, f, v.withCase(caseReusedAAEP))
	}
}
