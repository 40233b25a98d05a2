package main

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// critical is the urgency of events that no subscription may filter out.
const critical = "critical"

// event is an event of AAEP, or a part of one.
type event map[string]any

// producer is the agent. Its sessions share the connection to the gateway.
type producer struct {
	gateway  gateway
	patience time.Duration

	mu      sync.Mutex
	waiting map[string]chan reply // by reply token
}

func newProducer(g gateway, patience time.Duration) *producer {
	return &producer{gateway: g, patience: patience, waiting: map[string]chan reply{}}
}

// deliver hands a reply to the question that it answers. A reply to no open question is ignored.
func (p *producer) deliver(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.waiting[r.Token] <- r:
	default: // no question, or more replies than it reads
	}
}

// expect opens a question under a new reply token, until close is called.
func (p *producer) expect() (token string, replies <-chan reply, closeQuestion func()) {
	token = newID("rpl_")
	c := make(chan reply, 8)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[token] = c
	return token, c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, token)
	}
}

// newID makes an identifier that cannot be guessed.
func newID(prefix string) string { return prefix + rand.Text() }

// session is one request of the user. It belongs to one goroutine.
type session struct {
	p     *producer
	id    string
	next  int // sequence_number of the next event
	state string
	tools int // tools that ran
}

// envelope makes an event that is not published yet.
func (s *session) envelope(typ string, fields event) event {
	e := event{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + typ, "event_id": newID("evt_"), "session_id": s.id,
		"timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "producer": event{"agent_id": "flight-assistant", "agent_version": "1.0.0"},
		"aaep_version": "1.0.0", "urgency": "normal", "localization_hints": event{"primary_language": "en"},
	}
	maps.Copy(e, fields)
	return e
}

// emit publishes an event; it is on the log when emit returns.
func (s *session) emit(ctx context.Context, typ string, fields event) error {
	e := s.envelope(typ, fields)
	e["sequence_number"] = s.next
	s.next++
	return s.p.gateway.publish(ctx, e)
}

// enter tells the listeners what the agent does now.
func (s *session) enter(ctx context.Context, state string) error {
	if s.state == state {
		return nil
	}
	from := s.state
	s.state = state
	return s.emit(ctx, "state.changed", event{"from_state": from, "to_state": state})
}

// say streams an answer, a chunk an event. Positions count characters.
func (s *session) say(ctx context.Context, chunks ...string) error {
	if err := s.enter(ctx, "writing_output"); err != nil {
		return err
	}
	id, position := newID("out_"), 0
	for i, chunk := range chunks {
		err := s.emit(ctx, "output.streaming", event{"chunk": chunk, "position": position, "complete": i == len(chunks)-1,
			"output_id": id, "coalesce_hint": "sentence", "content_type": "text/plain"})
		if err != nil {
			return err
		}
		position += utf8.RuneCountInString(chunk)
	}
	return s.enter(ctx, "idle")
}

// useTool asks Countersign about a call, and runs the tool if it is allowed.
func (s *session) useTool(ctx context.Context, call event, tool func() error) (allowed bool, err error) {
	if err := s.enter(ctx, "thinking"); err != nil {
		return false, err
	}
	call = maps.Clone(call)
	call["tool_call_id"] = newID("call_")
	verdict, permitted, err := s.p.gateway.admit(ctx, s.envelope("tool.invoked", call))
	if err != nil || verdict != allow {
		return false, err
	}
	return true, s.runTool(ctx, call, permitted, tool)
}

// runTool runs a tool that is allowed, and tells how it went. The permission is checked last: it expires soon.
func (s *session) runTool(ctx context.Context, call event, permitted permission, tool func() error) error {
	if err := s.enter(ctx, "calling_tool"); err != nil {
		return err
	}
	if err := s.emit(ctx, "tool.invoked", call); err != nil {
		return err
	}
	failed := s.p.gateway.check(ctx, permitted, s.id, call)
	if failed == nil {
		s.tools++
		failed = tool()
	}
	completed := event{"tool": call["tool"], "tool_call_id": call["tool_call_id"], "status": "success"}
	if failed != nil {
		completed["status"], completed["error_message"] = "error", "The tool failed."
	}
	return errors.Join(s.emit(context.WithoutCancel(ctx), "tool.completed", completed), failed)
}

// confirm asks the user about a call that cannot be undone. Which replies count, and that the first of them
// counts once, is the admitter's to say: each reply leads to a question to it. Without an accepted reply in
// time the call is not made.
func (s *session) confirm(ctx context.Context, call event, action, consequence string) (accepted bool, permitted permission, err error) {
	token, replies, closeQuestion := s.p.expect()
	defer closeQuestion()
	if err := errors.Join(s.enter(ctx, "thinking"), s.enter(ctx, "awaiting_input")); err != nil {
		return false, permitted, err
	}
	err = s.emit(ctx, "awaiting.confirmation", event{
		"urgency": critical, "action": action, "consequence": consequence, "reply_token": token, "timeout_seconds": int(s.p.patience.Seconds()),
		"default_decision": "reject", "risk_level": call["risk_level"], "irreversible": true, "summary_normal": "May the agent do this?",
		"extra_context": event{"tool": call["tool"], "tool_call_id": call["tool_call_id"]},
	})
	if err != nil {
		return false, permitted, err
	}
	late := time.After(s.p.patience)
	for verdict := ""; verdict != allow; {
		select {
		case <-replies:
			if verdict, permitted, err = s.p.gateway.admit(ctx, s.envelope("tool.invoked", call)); err != nil {
				return false, permitted, err
			}
			if verdict == deny {
				return false, permitted, s.enter(ctx, "thinking")
			}
		case <-late:
			return false, permitted, s.enter(ctx, "thinking")
		case <-ctx.Done():
			return false, permitted, ctx.Err()
		}
	}
	return true, permitted, nil
}

// clarify asks the user a question in free text. An answer of another kind is none.
func (s *session) clarify(ctx context.Context, question string) (answer string, answered bool, err error) {
	token, replies, closeQuestion := s.p.expect()
	defer closeQuestion()
	if err := errors.Join(s.enter(ctx, "thinking"), s.enter(ctx, "awaiting_input")); err != nil {
		return "", false, err
	}
	err = s.emit(ctx, "awaiting.clarification", event{"urgency": critical, "question": question, "reply_token": token,
		"timeout_seconds": int(s.p.patience.Seconds()), "accepted_response_kinds": []string{"freetext"}, "summary_normal": "The agent asks a question."})
	if err != nil {
		return "", false, err
	}
	late := time.After(s.p.patience)
	for !answered {
		select {
		case r := <-replies:
			text, isText := r.Response.(string)
			answer, answered = strings.TrimSpace(text), isText && r.Type == "clarification.reply"
		case <-late:
			return "", false, s.enter(ctx, "thinking")
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	return answer, true, s.enter(ctx, "thinking")
}
