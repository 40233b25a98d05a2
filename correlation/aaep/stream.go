package aaep

import (
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/aaep"
)

// streamedOutput is one streamed output (AAEP 4.3.3).
type streamedOutput struct {
	id           string
	firstEvent   eventRef
	lastPosition int64 // of the last chunk
	nextPosition int64 // where the next chunk begins, in characters
	nextUTF16    int64 // the same in UTF-16 units
	complete     bool
	missing      *missingRange // nil if nothing is missing, or nothing that may come late
}

// missingRange is what is missing of an output, in characters.
type missingRange struct {
	from, to int64
	overtakenFinding
}

// fillMissing takes a chunk that was under way when a later one came, and tells whether it
// is one.
func (s *Session) fillMissing(o *streamedOutput, e *Event, p *aaep.OutputStreaming) bool {
	h := o.missing
	if h == nil || p.Position == nil || *p.Position != h.from || !h.isEarlier(e) {
		return false
	}
	end := h.from + int64(utf8.RuneCountInString(p.Chunk))
	if end > h.to {
		return false
	}
	if h.from = end; end == h.to {
		s.retractFinding(h.finding, "what was missing came late", e)
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

func (s *Session) handleChunk(e *Event, p *aaep.OutputStreaming) {
	s.stateExplained, s.actedSinceAnswer = true, true
	s.announcedPhases |= provedWriting
	s.checkMixedNaming(e, p.OutputID != "")
	o := s.findOutput(boundID(p.OutputID))
	done := isTrue(p.Complete)
	if o == nil {
		o = &streamedOutput{id: boundID(p.OutputID), firstEvent: e.eventRef()}
		s.addOutput(o)
		if p.Position != nil {
			o.advancePast(p)
		}
		o.complete = done
		return
	}
	if s.fillMissing(o, e, p) {
		return
	}
	if o.complete {
		s.addFinding("AAEP-C-143", "", o.firstEvent, e.eventRef())
		if done {
			s.addFinding("AAEP-C-142", "closed again", o.firstEvent, e.eventRef())
		}
		return
	}
	o.complete = done
	if p.Position == nil {
		return
	}
	s.checkPosition(e, p, o, done)
	o.advancePast(p)
}

func (s *Session) checkPosition(e *Event, p *aaep.OutputStreaming, o *streamedOutput, done bool) {
	at := *p.Position
	switch {
	case at == o.nextPosition, at == o.lastPosition && done && p.Chunk == "":
	case at < o.lastPosition:
		s.addFinding("AAEP-C-140", "", o.firstEvent, e.eventRef())
	case at == o.nextUTF16:
		s.addFinding("AAEP-C-141", "it counts UTF-16 units, not characters", o.firstEvent, e.eventRef()).Case = "unit"
	default:
		b := s.addFinding("AAEP-C-141", "", o.firstEvent, e.eventRef())
		if o.missing = nil; at > o.nextPosition && e.ID != "" {
			o.missing = &missingRange{o.nextPosition, at, overtakenFinding{b, e.Time, e.Number}}
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

func (s *Session) findOutput(id string) *streamedOutput {
	for _, o := range s.outputs {
		if o.id == id {
			return o
		}
	}
	return nil
}

func (s *Session) addOutput(o *streamedOutput) {
	if len(s.outputs) >= maxOutputs {
		drop := 0
		for i, old := range s.outputs {
			if old.complete {
				drop = i
				break
			}
		}
		s.outputs = append(s.outputs[:drop], s.outputs[drop+1:]...)
	}
	s.outputs = append(s.outputs, o)
}

func (s *Session) checkMixedNaming(e *Event, named bool) {
	bit := streamUnnamed
	if named {
		bit = streamNamed
	}
	if s.streamNaming |= bit; s.streamNaming == streamNamed|streamUnnamed && s.reportedOnce&reportedMixedOutputs == 0 {
		s.reportedOnce |= reportedMixedOutputs
		s.addFinding("AAEP-C-144", "", e.eventRef())
	}
}

func (s *Session) closeOutput(e *Event, o *streamedOutput, succeeded bool) {
	if o.complete {
		return
	}
	b := s.addFinding("AAEP-C-142", "never closed", o.firstEvent, e.eventRef())
	if !succeeded {
		asHint(b)
	}
}
