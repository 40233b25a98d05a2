package aaep

import (
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

// lifecycle is the session's start and end.
type lifecycle struct {
	hasEvents, started, ended bool
	restored                  bool // from a tombstone: counts and tables are incomplete
	startEvent, endEvent      eventRef
	endOrder                  eventOrder
	endedAt                   time.Time // by the broker
	lastEvent                 eventRef
	overtakenStart            *overtakenFinding
	stray                     *catalogue.Finding // what reportStray has reported, while the start may still come
	startTime                 time.Time
}

// checkSecondStart reports whether the event starts a session that has started before.
func (l *lifecycle) checkSecondStart(r *reports, e *Event) bool {
	if _, starts := e.Payload.(*aaep.SessionStarted); !starts || !l.started {
		return false
	}
	r.add("AAEP-C-061", "", l.startEvent, e.eventRef())
	r.add("AAEP-C-051", "", l.startEvent, e.eventRef())
	return true
}

// check reports whether the event lies between the session's start and its end: by the log, or by
// its publisher's word if it came so soon after the end that the end may have overtaken it. For a
// start see checkSecondStart.
func (l *lifecycle) check(r *reports, e *Event) bool {
	_, starts := e.Payload.(*aaep.SessionStarted)
	if !starts && !l.restored && !l.started && !l.hasEvents {
		if found := r.add("AAEP-C-060", "", e.eventRef()); e.ID != "" {
			l.overtakenStart = &overtakenFinding{eventOrder{e.Time, e.Number}, found}
		}
	}
	l.hasEvents, l.lastEvent = true, e.eventRef()
	if !l.ended || starts {
		return true
	}
	switch {
	case e.isTerminal():
		r.add("AAEP-C-062", "", l.endEvent, e.eventRef())
	case l.endOrder.isAfter(e) && !e.At.After(l.endedAt.Add(fact.MaxOvertaken)):
		return true
	default:
		r.add("AAEP-C-063", "", l.endEvent, e.eventRef())
	}
	return false
}

// reportStray reports that the event that came before the session's start came while another
// session of the publisher runs.
func (l *lifecycle) reportStray(r *reports, e *Event) {
	l.stray = r.add("AAEP-C-054", "", e.eventRef())
}

// overtakenFinding is an event that came before another one, and the finding about it.
type overtakenFinding struct {
	eventOrder
	finding *catalogue.Finding
}

// eventOrder is an event's place in its session, as its publisher says.
type eventOrder struct {
	time   time.Time
	number *int64
}

// isAfter reports whether the event was emitted after another one, by their numbers or else
// their times.
func (o eventOrder) isAfter(other *Event) bool {
	if o.number != nil && other.Number != nil {
		return *other.Number < *o.number
	}
	return !other.Time.IsZero() && other.Time.Before(o.time)
}

// start applies the first event.
func (l *lifecycle) start(r *reports, e *Event) {
	if !l.started {
		l.startEvent, l.startTime = e.eventRef(), e.producerTime()
	}
	if o := l.overtakenStart; o != nil && o.isAfter(e) {
		r.retract(o.finding, "its start was under way", e)
		if l.stray != nil {
			r.retract(l.stray, "its start was under way", e)
		}
	}
	l.overtakenStart, l.stray = nil, nil
	l.started = true
}

// end applies the terminal event.
func (l *lifecycle) end(e *Event) {
	l.ended, l.endEvent, l.endOrder, l.endedAt = true, e.eventRef(), eventOrder{e.Time, e.Number}, e.At
}

// checkDuration compares the duration in the terminal event with the observed one.
func (l *lifecycle) checkDuration(r *reports, e *Event, p *aaep.SessionCompleted) {
	if ms := p.DurationMS; ms != nil && durationsDiffer(*ms, e.producerTime().Sub(l.startTime).Milliseconds()) {
		asHint(r.add("AAEP-C-071", "the duration", e.eventRef())).Case = "duration"
	}
}

// isComplete reports whether all events since the session's start were seen.
func (l *lifecycle) isComplete() bool { return l.started && !l.restored }

func (l *lifecycle) hasEnded() bool { return l.ended }

func (l *lifecycle) neverStarted() bool { return l.hasEvents && !l.started && !l.restored }

func (l *lifecycle) isRunning() bool { return l.started && !l.ended }

func (l *lifecycle) silenceFinding() *catalogue.Finding {
	if !l.isRunning() {
		return nil
	}
	found := newFinding("AAEP-C-064", "", l.startEvent, l.lastEvent)
	found.Case = strconv.FormatUint(l.lastEvent.seq, 10) // a session may fall silent several times
	return found
}

func (l *lifecycle) tombstone() Tombstone {
	m := tombstoneKnown
	if l.started {
		m |= tombstoneStarted
	}
	if l.ended {
		m |= tombstoneEnded
	}
	return m
}

func restoreLifecycle(m Tombstone, last eventRef) lifecycle {
	return lifecycle{hasEvents: true, restored: true, lastEvent: last, started: m&tombstoneStarted != 0, ended: m&tombstoneEnded != 0}
}
