package main

import (
	"context"
	"errors"
	"strings"
)

// tools are the tools of this agent; fetch_balance always fails.
var tools = []string{"find_flights", "book_flight", "fetch_balance"}

// script is what the agent does for a request.
type script func(context.Context, *session) error

// scripts stand in for a model: the first word that a request contains decides.
var scripts = []struct {
	word string
	play script
}{
	{"book", book}, {"find", find}, {"weather", weather}, {"person", handOff}, {"balance", balance},
}

func scriptOf(request string) script {
	for _, s := range scripts {
		if strings.Contains(strings.ToLower(request), s.word) {
			return s.play
		}
	}
	return func(ctx context.Context, s *session) error {
		return s.say(ctx, "I can find flights, ", "book one ", "and ask you about the weather.")
	}
}

// find runs a tool that can be undone: Countersign's word is enough.
func find(ctx context.Context, s *session) error {
	allowed, err := s.useTool(ctx, event{"tool": "find_flights", "risk_level": "low", "irreversible": false, "summary_normal": "Looking for flights."},
		func() error { return nil })
	if err != nil || !allowed {
		return errors.Join(err, s.say(ctx, "I may not look for flights."))
	}
	return s.say(ctx, "There are two flights. ", "One leaves at nine, ", "the other at noon.")
}

// book runs a tool that cannot be undone: its user must accept, and Countersign must allow it.
func book(ctx context.Context, s *session) error {
	call := event{"tool": "book_flight", "tool_call_id": newID("call_"), "risk_level": "high", "irreversible": true, "summary_normal": "Booking the flight."}
	accepted, permitted, err := s.confirm(ctx, call, "Book the flight at nine", "Your card is charged. The booking cannot be undone.")
	if err != nil {
		return err
	}
	if !accepted {
		return s.say(ctx, "I have booked nothing.")
	}
	if err := s.runTool(ctx, call, permitted, func() error { return nil }); err != nil {
		return err
	}
	return s.say(ctx, "The flight is booked.")
}

// weather asks its user what it needs to know.
func weather(ctx context.Context, s *session) error {
	city, answered, err := s.clarify(ctx, "Of which city?")
	if err != nil {
		return err
	}
	if !answered {
		return s.say(ctx, "I do not know which city you mean.")
	}
	return s.say(ctx, "I know no forecast of "+city+".")
}

// handOff gives the request to a person.
func handOff(ctx context.Context, s *session) error {
	return s.emit(ctx, "handoff.requested", event{"urgency": critical, "reason": "The user asks for a person.", "target_kind": "human", "summary_normal": "Handing over to a person."})
}

// balance runs a tool that fails after some progress.
func balance(ctx context.Context, s *session) error {
	const steps = 20
	_, err := s.useTool(ctx, event{"tool": "fetch_balance", "risk_level": "low", "irreversible": false, "summary_normal": "Fetching the balance."}, func() error {
		for step := 1; step <= steps; step++ {
			if err := s.emit(ctx, "progress.updated", event{"progress": event{"step": step, "total_steps": steps}}); err != nil {
				return err
			}
		}
		return errors.New("the bank does not answer")
	})
	return err
}
