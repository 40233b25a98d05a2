package aaepsession

import (
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/aaep"
)

// output is one streamed output (AAEP 4.3.3).
type output struct {
	id       string
	first    ref
	position int64 // of the last chunk
	next     int64 // where the next chunk begins, in characters
	units    int64 // the same in UTF-16 units
	complete bool
	hole     *hole // nil if nothing is missing, or nothing that may come late
}

// hole is what is missing of an output, in characters.
type hole struct {
	from, to int64
	overtaking
}

// fills takes a chunk that was under way when a later one came, and tells whether it
// is one.
func (s *Session) fills(o *output, e *Event, p *aaep.OutputStreaming) bool {
	h := o.hole
	if h == nil || p.Position == nil || *p.Position != h.from || !h.by(e) {
		return false
	}
	end := h.from + int64(utf8.RuneCountInString(p.Chunk))
	if end > h.to {
		return false
	}
	if h.from = end; end == h.to {
		s.retract(h.said, "what was missing came late", e)
		o.hole = nil
	}
	return true
}

// stream says whether chunks name their output.
type stream uint8

const (
	streamNamed stream = 1 << iota
	streamUnnamed
)

func (s *Session) streamed(e *Event, p *aaep.OutputStreaming) {
	s.explained, s.wentOn = true, true
	s.phases |= provedWriting
	s.mixed(e, p.OutputID != "")
	o := s.output(bounded(p.OutputID))
	done := isTrue(p.Complete)
	if o == nil {
		o = &output{id: bounded(p.OutputID), first: e.ref()}
		s.addOutput(o)
		if p.Position != nil {
			o.advance(p)
		}
		o.complete = done
		return
	}
	if s.fills(o, e, p) {
		return
	}
	if o.complete {
		s.breach("AAEP-C-143", "", o.first, e.ref())
		if done {
			s.breach("AAEP-C-142", "closed again", o.first, e.ref())
		}
		return
	}
	o.complete = done
	if p.Position == nil {
		return
	}
	s.position(e, p, o, done)
	o.advance(p)
}

func (s *Session) position(e *Event, p *aaep.OutputStreaming, o *output, done bool) {
	at := *p.Position
	switch {
	case at == o.next, at == o.position && done && p.Chunk == "":
	case at < o.position:
		s.breach("AAEP-C-140", "", o.first, e.ref())
	case at == o.units:
		s.breach("AAEP-C-141", "it counts UTF-16 units, not characters", o.first, e.ref()).Case = "unit"
	default:
		b := s.breach("AAEP-C-141", "", o.first, e.ref())
		if o.hole = nil; at > o.next && e.ID != "" {
			o.hole = &hole{o.next, at, overtaking{b, e.Time, e.Number}}
		}
	}
}

func (o *output) advance(p *aaep.OutputStreaming) {
	o.position = *p.Position
	o.next = o.position + int64(utf8.RuneCountInString(p.Chunk))
	o.units = o.position
	for _, r := range p.Chunk {
		o.units += int64(max(utf16.RuneLen(r), 1))
	}
}

func (s *Session) output(id string) *output {
	for _, o := range s.outputs {
		if o.id == id {
			return o
		}
	}
	return nil
}

func (s *Session) addOutput(o *output) {
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

func (s *Session) mixed(e *Event, named bool) {
	bit := streamUnnamed
	if named {
		bit = streamNamed
	}
	if s.streams |= bit; s.streams == streamNamed|streamUnnamed && s.said&saidMixedOutputs == 0 {
		s.said |= saidMixedOutputs
		s.breach("AAEP-C-144", "", e.ref())
	}
}

func (s *Session) closeOutput(e *Event, o *output, succeeded bool) {
	if o.complete {
		return
	}
	b := s.breach("AAEP-C-142", "never closed", o.first, e.ref())
	if !succeeded {
		hint(b)
	}
}
