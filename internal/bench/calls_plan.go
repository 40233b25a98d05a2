package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
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

// sessionPause is the time between two calls of a session. A verdict that takes longer makes the
// calls of a session overlap, which is a finding (AH-C-054).
const sessionPause = 2 * time.Second

// openSessions is how many sessions are open at a time at a rate.
func openSessions(perSecond float64) int { return max(1, int(perSecond*sessionPause.Seconds())) }

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
	run     int
	open    int // sessions at a time
}

func (t callTexts) session(i int) string { return fmt.Sprintf("r%d-%06d", t.run, sessionOf(i, t.open)) }
func (t callTexts) callID(i int) string  { return fmt.Sprintf("r%d-call-%d", t.run, i) }

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
	case callApproved:
		return "send_email", stranger
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

// ruling is what the runtime learnt of a call from the answers.
type ruling struct {
	verdict            events.Verdict
	workflow, decision string // of an approval that the call ran under
}

// request is the PreToolUse of call i, which asks for admission.
func (t callTexts) request(i int, now time.Time) []byte { return t.pre(i, now, "") }

// announcement is the same event as it is reported, with the verdict.
func (t callTexts) announcement(i int, now time.Time, r ruling) []byte {
	return t.pre(i, now, `,"admission_verdict":{"verdict":"`+string(r.verdict)+`"}`)
}

func (t callTexts) pre(i int, now time.Time, metadata string) []byte {
	return t.event(i, "a", "PreToolUse", now, `,"evidence_phase":"pre_commit","tool_input":`+t.arguments(i), metadata)
}

// post is the report of its execution.
func (t callTexts) post(i int, now time.Time, r ruling) []byte {
	approved := ""
	if r.workflow != "" {
		approved = `,"approval":{"required":true,"status":"approved","workflow_id":"` + r.workflow + `","decision_ref":"` + r.decision + `"}`
	}
	at := now.UTC().Format(time.RFC3339Nano)
	return t.event(i, "b", "PostToolUse", now, `,"correlation_id":"`+t.eventID(i, "a")+`"`,
		`,"tool_input_executed":`+t.executed(i)+`,"execution":{"outcome":"succeeded","started_at":"`+at+`","completed_at":"`+at+`"}`+approved)
}

func (t callTexts) eventID(i int, mark string) string {
	return fmt.Sprintf("%s%07d-0000-4000-8000-%012d", mark, t.run, i)
}

func (t callTexts) event(i int, mark, typ string, now time.Time, members, metadata string) []byte {
	tool, _ := t.tool(kindOf(i))
	governed := ""
	if t.variant == variantGoverned {
		governed = governedMetadata
	}
	return fmt.Appendf(nil, `{"schema_version":1,"event_id":"%s","event_type":"%s","timestamp":"%s","source":"mail-agent","session_id":"%s",`+
		`"tool_name":"%s",%s%s,"metadata":{"tool_call_id":"%s"%s%s}}`,
		t.eventID(i, mark), typ, now.UTC().Format(time.RFC3339Nano), t.session(i), tool, t.describedAction(i), members, t.callID(i), governed, metadata)
}

// describedAction is what call i acts on. While a call waits for approval, the same action on the
// same resource is asked for as well, so that one has a resource of its own.
func (t callTexts) describedAction(i int) string {
	switch kindOf(i) {
	case callDenied:
		return `"action":"delete","resource_kind":"database","resource":"production","resource_scope":"production","operation_risk":"destructive_write"`
	case callApproved:
		return fmt.Sprintf(`"action":"send","resource_kind":"email","resource":"press-%d-%d","resource_scope":"remote","operation_risk":"external_transfer"`, t.run, i)
	}
	return `"action":"send","resource_kind":"email","resource":"outbox","resource_scope":"internal_network","operation_risk":"write"`
}
