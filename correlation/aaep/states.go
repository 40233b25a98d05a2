package aaep

import (
	"cmp"
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

// States that the checks know. Others are permitted (AAEP 4.2.1).
const (
	stateIdle     = "idle"
	stateCalling  = "calling_tool"
	stateWriting  = "writing_output"
	stateAwaiting = "awaiting_input"
)

// announcedPhases are the phases that the session announced, or that its events prove.
type announcedPhases uint8

const (
	announcedCalling announcedPhases = 1 << iota
	announcedWriting
	provedWriting
)

// states holds the announced state of each agent of a session (AAEP A.9: they may be in different states), at most maxAgents,
// and what the session's events show of it. An agent that announces none has the state of the agent that announced last:
// one agent may speak for all.
type states struct {
	agents []*agentState // the one that announced last is the last
	phases announcedPhases
	forgot bool // an agent with a state of its own was forgotten
}

// agentState is the announced state of an agent.
type agentState struct {
	agent            string
	current          string   // as its last change of state said
	unleftQuestion   eventRef // the question that was resolved in awaiting_input, while that was not left; else zero
	actedSinceAnswer bool     // the agent acted after that question was resolved
	explained        bool     // an event since explains another state
}

func (s *states) storedItems() int { return len(s.agents) }

// find returns the state that an agent has announced; nil if it announced none.
func (s *states) find(agent string) *agentState {
	i := slices.IndexFunc(s.agents, func(a *agentState) bool { return a.agent == agent })
	if i < 0 {
		return nil
	}
	return s.agents[i]
}

// of returns the state that counts for an agent. Without any, it is one that is not kept; so it is once an agent was forgotten,
// whose state another one's would stand for.
func (s *states) of(agent string) *agentState {
	switch own := s.find(agent); {
	case own != nil:
		return own
	case s.forgot: // it may be in any state, and this one leads to no finding
		return &agentState{agent: agent, current: stateAwaiting}
	case len(s.agents) > 0:
		return s.agents[len(s.agents)-1]
	}
	return &agentState{}
}

// areOne reports whether one state counts for two agents.
func (s *states) areOne(a, b string) bool { return s.of(a).agent == s.of(b).agent }

// checkChange checks that a change of state continues from the agent's last state, or from the one that was announced last.
// complete says that all events since the session's start were seen.
func (s *states) checkChange(r *reports, e *Event, p *aaep.StateChanged, complete bool) {
	own := s.find(e.agent)
	switch {
	case len(s.agents) == 0:
		if complete && p.FromState != stateIdle {
			r.add("AAEP-C-068", "", e.eventRef())
		}
	case own != nil && own.current != p.FromState && !own.explained && s.agents[len(s.agents)-1].current != p.FromState:
		r.add("AAEP-C-069", "", e.eventRef())
	}
}

// enter sets the state of an agent.
func (s *states) enter(agent string, p *aaep.StateChanged) {
	switch p.ToState {
	case stateCalling:
		s.phases |= announcedCalling
	case stateWriting:
		s.phases |= announcedWriting
	}
	own := cmp.Or(s.find(agent), &agentState{agent: agent})
	if p.ToState != stateAwaiting {
		own.unleftQuestion = eventRef{}
	}
	own.current, own.explained = fact.BoundID(p.ToState), false
	s.agents = append(slices.DeleteFunc(s.agents, func(a *agentState) bool { return a == own }), own)
	if len(s.agents) > maxAgents {
		s.agents, s.forgot = slices.Delete(s.agents, 0, 1), true
	}
}

func (s *states) isAwaiting(agent string) bool { return s.of(agent).current == stateAwaiting }

// noteActivity records an event that explains another state of an agent.
func (s *states) noteActivity(agent string) { s.of(agent).explained = true }

// noteAction records an action of an agent itself: a tool call or output.
func (s *states) noteAction(agent string) {
	a := s.of(agent)
	a.explained, a.actedSinceAnswer = true, true
}

// noteWriting records a chunk of output.
func (s *states) noteWriting(agent string) {
	s.noteAction(agent)
	s.phases |= provedWriting
}

// noteResolved records that a question of an agent was resolved.
func (s *states) noteResolved(agent string, question eventRef) {
	if a := s.of(agent); s.isAwaiting(agent) {
		a.unleftQuestion, a.actedSinceAnswer = question, false
	}
}

// reportQuiet reports, once, a missing change of state: awaiting_input is not entered for a
// question, or not left by an agent that acts after the answer.
func reportQuiet(r *reports, proof ...eventRef) {
	r.addOnce(reportedQuietState, "AAEP-C-123", proof...)
}

// checkLeft reports, at the end, that awaiting_input was not left after the last answer.
func (s *states) checkLeft(r *reports, e *Event) {
	for _, a := range s.agents {
		if a.unleftQuestion != (eventRef{}) && a.actedSinceAnswer {
			reportQuiet(r, a.unleftQuestion, e.eventRef())
		}
	}
}

// checkPhases reports, at the end, phases that were not announced. called says that the
// session invoked a tool.
func (s *states) checkPhases(r *reports, e *Event, called bool) {
	if called && s.phases&announcedCalling == 0 {
		r.add("AAEP-C-070", "calling a tool", e.eventRef()).Case = stateCalling
	}
	if s.phases&(provedWriting|announcedWriting) == provedWriting {
		r.add("AAEP-C-070", "writing output", e.eventRef()).Case = stateWriting
	}
}
