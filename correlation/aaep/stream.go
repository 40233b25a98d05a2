package aaep

import (
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

// outputs holds the streamed outputs of a session, at most maxOutputs.
type outputs struct {
	list   []*streamedOutput
	naming namingSet
}

func (s *outputs) storedItems() int { return len(s.list) }

// streamedOutput is one streamed output (AAEP 4.3.3).
type streamedOutput struct {
	id           string
	firstEvent   eventRef
	lastPosition int64 // of the last chunk
	nextPosition int64 // the start of the next chunk, in characters
	nextUTF16    int64 // the same in UTF-16 units
	complete     bool
	missing      *missingRange      // nil if nothing is missing that may come late
	openFinding  *catalogue.Finding // that it was not closed before the session ended
}

// missingRange is a missing part of an output, in characters.
type missingRange struct {
	from, to int64
	overtakenFinding
}

// fillMissing applies a chunk that came late, and reports whether the chunk is one.
func (o *streamedOutput) fillMissing(r *reports, e *Event, p *aaep.OutputStreaming) bool {
	h := o.missing
	if h == nil || p.Position == nil || *p.Position != h.from || !h.isAfter(e) {
		return false
	}
	end := h.from + int64(utf8.RuneCountInString(p.Chunk))
	if end > h.to {
		return false
	}
	if h.from = end; end == h.to {
		r.retract(h.finding, "what was missing came late", e)
		o.missing = nil
	}
	return true
}

// namingSet says whether chunks name their output.
type namingSet uint8

const (
	streamNamed namingSet = 1 << iota
	streamUnnamed
)

func (s *outputs) handleChunk(r *reports, e *Event, p *aaep.OutputStreaming) {
	s.checkMixedNaming(r, e, p.OutputID != "")
	o := s.find(fact.BoundID(p.OutputID))
	done := isTrue(p.Complete)
	if o == nil {
		o = &streamedOutput{id: fact.BoundID(p.OutputID), firstEvent: e.eventRef()}
		s.add(o)
		if p.Position != nil {
			o.advancePast(p)
		}
		o.complete = done
		return
	}
	if o.fillMissing(r, e, p) {
		return
	}
	if o.complete {
		r.add("AAEP-C-143", "", o.firstEvent, e.eventRef())
		if done {
			r.add("AAEP-C-142", "closed again", o.firstEvent, e.eventRef())
		}
		return
	}
	o.complete = done
	if p.Position == nil {
		return
	}
	o.checkPosition(r, e, p, done)
	o.advancePast(p)
}

func (o *streamedOutput) checkPosition(r *reports, e *Event, p *aaep.OutputStreaming, done bool) {
	at := *p.Position
	switch {
	case at == o.nextPosition, at == o.lastPosition && done && p.Chunk == "":
	case at < o.lastPosition:
		r.add("AAEP-C-140", "", o.firstEvent, e.eventRef())
	case at == o.nextUTF16:
		r.add("AAEP-C-141", "it counts UTF-16 units, not characters", o.firstEvent, e.eventRef()).Case = "unit"
	default:
		found := r.add("AAEP-C-141", "", o.firstEvent, e.eventRef())
		if o.missing = nil; at > o.nextPosition && e.ID != "" {
			o.missing = &missingRange{o.nextPosition, at, overtakenFinding{eventOrder{e.Time, e.Number}, found}}
		}
	}
}

func (o *streamedOutput) advancePast(p *aaep.OutputStreaming) {
	o.lastPosition = *p.Position
	o.nextPosition = o.lastPosition + int64(utf8.RuneCountInString(p.Chunk))
	o.nextUTF16 = o.lastPosition
	for _, r := range p.Chunk {
		o.nextUTF16 += int64(max(utf16.RuneLen(r), 1))
	}
}

func (s *outputs) find(id string) *streamedOutput {
	for _, o := range s.list {
		if o.id == id {
			return o
		}
	}
	return nil
}

func (s *outputs) add(o *streamedOutput) {
	if len(s.list) >= maxOutputs {
		drop := 0
		for i, old := range s.list {
			if old.complete {
				drop = i
				break
			}
		}
		s.list = append(s.list[:drop], s.list[drop+1:]...)
	}
	s.list = append(s.list, o)
}

func (s *outputs) checkMixedNaming(r *reports, e *Event, named bool) {
	bit := streamUnnamed
	if named {
		bit = streamNamed
	}
	if s.naming |= bit; s.naming == streamNamed|streamUnnamed {
		r.addOnce(reportedMixedOutputs, "AAEP-C-144", e.eventRef())
	}
}

// closeAll closes the outputs at the end of the session. It keeps those whose end may come yet, as the session's end may have
// overtaken it.
func (s *outputs) closeAll(r *reports, e *Event, succeeded bool) {
	for _, o := range s.list {
		o.close(r, e, succeeded)
	}
	s.list = slices.DeleteFunc(s.list, func(o *streamedOutput) bool { return o.complete })
}

// closeOvertaken applies a chunk that the session's end has overtaken.
func (s *outputs) closeOvertaken(r *reports, e *Event, p *aaep.OutputStreaming) {
	if o := s.find(fact.BoundID(p.OutputID)); o != nil && isTrue(p.Complete) {
		r.retract(o.openFinding, overtakenReason, e)
		s.list = slices.DeleteFunc(s.list, func(other *streamedOutput) bool { return other == o })
	}
}

func (o *streamedOutput) close(r *reports, e *Event, succeeded bool) {
	if o.complete {
		return
	}
	found := r.add("AAEP-C-142", "never closed", o.firstEvent, e.eventRef())
	if o.openFinding = found; !succeeded {
		asHint(found)
	}
}
