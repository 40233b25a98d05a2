package aaep

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func event(t testing.TB, n int, typ, members string) *Event {
	t.Helper()
	raw := fmt.Sprintf(`{"type":"aaep:agent.%s","event_id":"evt_%d","session_id":"sess_1","timestamp":"2026-11-20T12:00:00.000Z"%s}`, typ, n, members)
	e, err := aaep.Decode([]byte(raw), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	out := NewEvent(e)
	out.Seq, out.At = uint64(n), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return out
}

// TestBounds: whatever a session does, it is remembered within its bounds, and
// what was forgotten is not held against it.
func TestBounds(t *testing.T) {
	s := &Session{}
	s.Apply(event(t, 0, "session.started", ""))
	for i := range 1000 {
		for _, found := range s.Apply(event(t, i, "awaiting.confirmation", fmt.Sprintf(`,"action":"a%d","reply_token":"rpl_%d","timeout_seconds":60`, i, i))) {
			if found.Check != "AAEP-C-014" && found.Check != "AAEP-C-041" {
				t.Fatalf("%s at question %d", found.Check, i)
			}
		}
		s.Apply(event(t, i, "tool.invoked", fmt.Sprintf(`,"tool":"t","tool_call_id":"call_%d"`, i)))
		s.Apply(event(t, i, "output.streaming", fmt.Sprintf(`,"output_id":"out_%d","chunk":"","position":0,"complete":%v`, i, i%2 == 0)))
	}
	if len(s.tools.open) != maxOpenInvocations || len(s.questions.list) != maxQuestions || len(s.outputs.list) != maxOutputs || s.StoredItems() != 1+maxOpenInvocations+maxQuestions+maxOutputs {
		t.Errorf("%d invocations, %d questions, %d outputs", len(s.tools.open), len(s.questions.list), len(s.outputs.list))
	}
	for i := range 2 * maxReplies {
		reply, err := aaep.Decode(fmt.Appendf(nil, `{"type":"confirmation.reply","reply_token":"rpl_999","decision":"perhaps%d"}`, i), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(NewEvent(reply))
	}
	if n := len(s.questions.list[maxQuestions-1].replies); n != maxReplies {
		t.Errorf("%d answers are remembered", n)
	}
}

// TestLongReplyAgain: a reply that is delivered again is none, however long it is.
func TestLongReplyAgain(t *testing.T) {
	s := &Session{}
	s.Apply(event(t, 0, "session.started", ""))
	s.Apply(event(t, 1, "awaiting.clarification", `,"question":"Why?","reply_token":"rpl_1","timeout_seconds":60,"accepted_response_kinds":["freetext"]`))
	for n := range 2 {
		reply, err := aaep.Decode(fmt.Appendf(nil, `{"type":"clarification.reply","reply_token":"rpl_1","subscription_id":"sub_1","response":%q}`, strings.Repeat("because ", 300)), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if found := s.Apply(NewEvent(reply)); len(found) > 0 {
			t.Errorf("delivery %d: %+v", n+1, *found[0])
		}
	}
}

// TestRestore: a session that was forgotten is known to have been there.
func TestRestore(t *testing.T) {
	s := &Session{}
	s.Apply(event(t, 0, "session.started", ""))
	restored := Restore(s.Tombstone(), "evt", 1)
	if !restored.IsRunning() || restored.NeverStarted() {
		t.Error("it is not running any more")
	}
	if found := restored.Apply(event(t, 1, "state.changed", `,"from_state":"deciding","to_state":"thinking"`)); len(found) != 1 { // a hint
		t.Errorf("what was forgotten is held against it: %+v", found[len(found)-1])
	}
	s.Apply(event(t, 2, "session.completed", ""))
	if found := Restore(s.Tombstone(), "evt", 1).Apply(event(t, 3, "progress.updated", "")); found[len(found)-1].Check != "AAEP-C-063" {
		t.Errorf("its end is forgotten: %+v", found)
	}
	if Restore(0, "evt", 1).IsRunning() || (&Session{}).SilenceFinding() != nil {
		t.Error("a new session is not new")
	}
}

// numbered is event with a sequence number and a time in seconds.
func numbered(t testing.TB, n int, typ, members string) *Event {
	t.Helper()
	e := event(t, n, typ, fmt.Sprintf(`,"sequence_number":%d%s`, n, members))
	e.Time = e.Time.Add(time.Duration(n) * time.Second)
	return e
}

// TestOvertakenByTheEnd: what its publisher emitted before the session's end is not held against
// the session because the end was stored first; what it emitted afterwards is.
func TestOvertakenByTheEnd(t *testing.T) {
	s := &Session{}
	s.Apply(numbered(t, 0, "session.started", ""))
	s.Apply(numbered(t, 1, "tool.invoked", `,"tool":"t","tool_call_id":"call_1"`))
	end := s.Apply(numbered(t, 3, "session.completed", ""))
	missing := end[0]
	if missing.Check != "AAEP-C-065" {
		t.Fatalf("the gap: %+v", *missing)
	}
	retracted := false
	for _, found := range s.Apply(numbered(t, 2, "tool.completed", `,"tool_call_id":"call_1","success":true`)) {
		retracted = retracted || found.Replaces == missing
		if found.Check == "AAEP-C-063" || found.Check == "AAEP-C-083" {
			t.Errorf("overtaken: %s", found.Check)
		}
	}
	if !retracted {
		t.Error("the gap is still reported")
	}
	late := numbered(t, 1, "progress.updated", "")
	late.At = late.At.Add(time.Hour)
	if found := s.Apply(late); found[len(found)-1].Check != "AAEP-C-063" {
		t.Errorf("an hour after the end: %+v", found)
	}
	after := s.Apply(numbered(t, 4, "progress.updated", ""))
	if len(after) == 0 || after[len(after)-1].Check != "AAEP-C-063" {
		t.Errorf("after the end: %+v", after)
	}
}

// TestForgottenQuestions: a grave invocation whose question may have been forgotten with its session is
// no finding. Many questions excuse nothing.
func TestForgottenQuestions(t *testing.T) {
	grave := func(n int) *Event {
		return event(t, n, "tool.invoked", fmt.Sprintf(`,"tool":"t","tool_call_id":"call_%d","irreversible":true`, n))
	}
	has := func(list []*catalogue.Finding, check string) bool {
		return slices.ContainsFunc(list, func(f *catalogue.Finding) bool { return f.Check == check })
	}
	s := &Session{}
	s.Apply(event(t, 0, "session.started", ""))
	if !has(s.Apply(grave(1)), "AAEP-C-100") {
		t.Error("an invocation without a question is no finding")
	}
	if has(Restore(s.Tombstone(), "evt", 1).Apply(grave(2)), "AAEP-C-100") {
		t.Error("what was forgotten with the session is held against it")
	}
	for name, ask := range map[string]string{
		"clarifications":               `awaiting.clarification,"question":"Why?","accepted_response_kinds":["freetext"]`,
		"confirmations":                `awaiting.confirmation,"action":"a"`,
		"confirmations of other calls": `awaiting.confirmation,"action":"a","extra_context":{"tool_call_id":"call_x"}`,
	} {
		s := &Session{}
		s.Apply(event(t, 0, "session.started", ""))
		typ, fields, _ := strings.Cut(ask, ",")
		for i := range maxQuestions + 1 {
			s.Apply(event(t, 1000+i, typ, fmt.Sprintf(`,%s,"reply_token":"rpl_%d","timeout_seconds":86400`, strings.ReplaceAll(fields, "call_x", fmt.Sprint("call_x", i)), i)))
		}
		if !has(s.Apply(grave(2)), "AAEP-C-100") {
			t.Errorf("%s that were forgotten permit an invocation", name)
		}
	}
}

// TestStartOvertakenByTheEnd: a start that everything else overtook takes back the finding that
// the session had not started.
func TestStartOvertakenByTheEnd(t *testing.T) {
	s := &Session{}
	early := s.Apply(numbered(t, 1, "progress.updated", ""))
	at := slices.IndexFunc(early, func(f *catalogue.Finding) bool { return f.Check == "AAEP-C-060" })
	if at < 0 {
		t.Fatalf("%d findings, none that it has not started", len(early))
	}
	s.Apply(numbered(t, 2, "session.completed", ""))
	if !slices.ContainsFunc(s.Apply(numbered(t, 0, "session.started", "")), func(f *catalogue.Finding) bool { return f.Replaces == early[at] }) {
		t.Error("the finding stands")
	}
}
