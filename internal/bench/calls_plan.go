package bench

import (
	"fmt"
	"strings"
	"time"
)

// The calls of `calls`: what call number i is, when it is due, and what the runtime sends for it.
// Nothing here reads a clock.

// schedule is an open loop: call i is due at a time that no answer delays.
type schedule struct {
	begin     time.Time
	perSecond float64
}

// due is the time at which call i must be made.
func (s schedule) due(i int) time.Time {
	return s.begin.Add(time.Duration(float64(i) / s.perSecond * float64(time.Second)))
}

// count is the number of calls that are due in a time from the begin on.
func (s schedule) count(d time.Duration) int { return int(s.perSecond * d.Seconds()) }

// callKind is the course of a call.
type callKind uint8

const (
	callAllowed  callKind = iota // ask, allow, Pre, Post
	callDenied                   // ask, deny, Pre
	callApproved                 // ask, ask; a reviewer approves; ask again, allow, Pre, Post
	callDrifted                  // as allowed, but other arguments ran: the correlator reports it
)

// kindCycle is after how many calls the kinds repeat, and kindStep spreads them over a cycle.
const (
	kindCycle = 100
	kindStep  = 37
)

// Of a cycle, 5 calls are denied, 1 is approved by a reviewer and 1 drifts.
var kindShares = []struct {
	kind  callKind
	below int
}{{callDenied, 5}, {callApproved, 6}, {callDrifted, 7}}

func kindOf(i int) callKind {
	place := i * kindStep % kindCycle
	for _, s := range kindShares {
		if place < s.below {
			return s.kind
		}
	}
	return callAllowed
}

// callsSession is the number of calls in a session.
const callsSession = 20

// openSessions is how many sessions are open at a time at a rate: each makes four calls a second.
func openSessions(perSecond float64) int { return max(1, int(perSecond/4)) }

// sessionOf is the session of call i: the calls of the open sessions alternate.
func sessionOf(i, open int) int { return i/(open*callsSession)*open + i%open }

// callVariant is how much a runtime says of each call.
type callVariant string

const (
	variantPlain    callVariant = "plain"
	variantGoverned callVariant = "governed" // the action-governance profile, 1.8 KB
)

// callTexts makes the messages of calls. Run separates the names of two runs on one log.
type callTexts struct {
	variant callVariant
	run     string
	open    int // sessions at a time
}

func (t callTexts) session(i int) string { return fmt.Sprintf("%s-%06d", t.run, sessionOf(i, t.open)) }
func (t callTexts) callID(i int) string  { return fmt.Sprintf("%s-call-%d", t.run, i) }

// Tools and arguments by kind. The example policies allow mail to colleagues, ask for mail to
// others, and deny what deletes a database.
const (
	colleague = `{"to":"dana@acme.example","subject":"Minutes of %d","body":"%s"}`
	stranger  = `{"to":"press@newspaper.example","subject":"Minutes of %d","body":"%s"}`
	database  = `{"database":"production-%d","reason":"%s"}`
)

func (t callTexts) tool(kind callKind) (name, arguments string) {
	switch kind {
	case callDenied:
		return "delete_database", database
	case callApproved: // a tool of its own: while it waits, the same one would be asked for as well
		return "mail.forward", stranger
	}
	return "send_email", colleague
}

// arguments are what call i asks for.
func (t callTexts) arguments(i int) string {
	_, format := t.tool(kindOf(i))
	return fmt.Sprintf(format, i, t.filling())
}

// executed are the arguments that ran.
func (t callTexts) executed(i int) string {
	if kindOf(i) == callDrifted {
		return fmt.Sprintf(colleague, i+1, t.filling())
	}
	return t.arguments(i)
}

func (t callTexts) filling() string {
	if t.variant == variantGoverned {
		return strings.Repeat("All figures are final. ", 18)
	}
	return "Attached."
}

// pre is the PreToolUse of call i, which asks for admission and is reported as well.
func (t callTexts) pre(i int, now time.Time) []byte {
	return t.event(i, "a", "PreToolUse", now, `,"evidence_phase":"pre_commit","tool_input":`+t.arguments(i), "")
}

// post is the report of its execution.
func (t callTexts) post(i int, now, ran time.Time) []byte {
	at := ran.UTC().Format(time.RFC3339Nano)
	return t.event(i, "b", "PostToolUse", now, `,"correlation_id":"`+t.eventID(i, "a")+`"`,
		`,"tool_input_executed":`+t.executed(i)+`,"execution":{"outcome":"succeeded","started_at":"`+at+`","completed_at":"`+at+`"}`)
}

func (t callTexts) eventID(i int, mark string) string {
	return fmt.Sprintf("%s0000000-0000-4000-8000-%012d", mark, i)
}

func (t callTexts) event(i int, mark, typ string, now time.Time, members, metadata string) []byte {
	tool, _ := t.tool(kindOf(i))
	governed := ""
	if t.variant == variantGoverned {
		governed = governedMetadata
	}
	return fmt.Appendf(nil, `{"schema_version":1,"event_id":"%s","event_type":"%s","timestamp":"%s","source":"mail-agent","session_id":"%s",`+
		`"tool_name":"%s",%s%s,"metadata":{"tool_call_id":"%s"%s%s}}`,
		t.eventID(i, mark), typ, now.UTC().Format(time.RFC3339Nano), t.session(i), tool, describedAction(tool), members, t.callID(i), governed, metadata)
}

func describedAction(tool string) string {
	if tool == "delete_database" {
		return `"action":"delete","resource_kind":"database","resource":"production","resource_scope":"production","operation_risk":"destructive_write"`
	}
	return `"action":"send","resource_kind":"email","resource":"outbox","resource_scope":"internal_network","operation_risk":"write"`
}
