// Package callplan is what countersign-bench calls plans and what it concludes: what call number i is,
// when it is due, what the runtime sends for it, whether lags are bounded, and which rate to try next.
// It is pure: no clock, no connection. Begin with Schedule, Texts and RateSearch.
package callplan

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Schedule is an open loop: call i is due at a time that no answer delays.
type Schedule struct {
	Begin     time.Time
	PerSecond float64
}

// Due is the time at which call i must be made.
func (s Schedule) Due(i int) time.Time {
	return s.Begin.Add(time.Duration(float64(i) / s.PerSecond * float64(time.Second)))
}

// Count is the number of calls that are due in a time from the begin on.
func (s Schedule) Count(d time.Duration) int { return int(s.PerSecond * d.Seconds()) }

// Kind is the course of a call.
type Kind uint8

const (
	Allowed  Kind = iota // ask, allow, Pre, Post
	Denied               // ask, deny, Pre
	Approved             // ask, ask; a reviewer approves; ask again, allow, Pre, Post
	Drifted              // as allowed, but other arguments ran: the correlator reports it
)

// kindCycle is after how many calls the kinds repeat, and kindStep spreads them over a cycle.
const (
	kindCycle = 100
	kindStep  = 37
)

// Of a cycle, 5 calls are denied, 1 is approved by a reviewer and 1 drifts.
var kindShares = []struct {
	kind  Kind
	below int
}{{Denied, 5}, {Approved, 6}, {Drifted, 7}}

// KindOf is the kind of call i.
func KindOf(i int) Kind {
	place := i * kindStep % kindCycle
	for _, s := range kindShares {
		if place < s.below {
			return s.kind
		}
	}
	return Allowed
}

// callsSession is the number of calls in a session.
const callsSession = 20

// sessionPause is the time between two calls of a session. A verdict that takes longer makes the
// calls of a session overlap, which is a finding (AH-C-054).
const sessionPause = 2 * time.Second

// OpenSessions is how many sessions are open at a time at a rate.
func OpenSessions(perSecond float64) int { return max(1, int(perSecond*sessionPause.Seconds())) }

// sessionOf is the session of call i: the calls of the open sessions alternate.
func sessionOf(i, open int) int { return i/(open*callsSession)*open + i%open }

// Variant is how much a runtime says of each call.
type Variant string

const (
	Plain    Variant = "plain"
	Governed Variant = "governed" // the action-governance profile, 1.8 KB
)

// Texts makes the messages of calls. Run separates the names of two runs on one log.
type Texts struct {
	Variant Variant
	Run     int
	Open    int // sessions at a time
}

// Session is the id of the session of call i.
func (t Texts) Session(i int) string { return fmt.Sprintf("r%d-%06d", t.Run, sessionOf(i, t.Open)) }
func (t Texts) callID(i int) string  { return fmt.Sprintf("r%d-call-%d", t.Run, i) }

// Tools and arguments by kind. The example policies allow mail to colleagues, ask for mail to
// others, and deny what deletes a database.
const (
	colleague = `{"to":"dana@acme.example","subject":"Minutes of %d","body":"%s"}`
	stranger  = `{"to":"press@newspaper.example","subject":"Minutes of %d","body":"%s"}`
	database  = `{"database":"production-%d","reason":"%s"}`
)

func (t Texts) tool(kind Kind) (name, arguments string) {
	switch kind {
	case Denied:
		return "delete_database", database
	case Approved:
		return "send_email", stranger
	}
	return "send_email", colleague
}

// arguments are what call i asks for.
func (t Texts) arguments(i int) string {
	_, format := t.tool(KindOf(i))
	return fmt.Sprintf(format, i, t.filling())
}

// executed are the arguments that ran.
func (t Texts) executed(i int) string {
	if KindOf(i) == Drifted {
		return fmt.Sprintf(colleague, i+1, t.filling())
	}
	return t.arguments(i)
}

func (t Texts) filling() string {
	if t.Variant == Governed {
		return strings.Repeat("All figures are final. ", 18)
	}
	return "Attached."
}

// Ruling is what the runtime learnt of a call from the answers.
type Ruling struct {
	Verdict            events.Verdict
	Workflow, Decision string // of an approval that the call ran under
}

// Request is the PreToolUse of call i, which asks for admission.
func (t Texts) Request(i int, now time.Time) []byte { return t.pre(i, now, "") }

// Announcement is the same event as it is reported, with the verdict.
func (t Texts) Announcement(i int, now time.Time, r Ruling) []byte {
	return t.pre(i, now, `,"admission_verdict":{"verdict":"`+string(r.Verdict)+`"}`)
}

func (t Texts) pre(i int, now time.Time, metadata string) []byte {
	return t.event(i, "a", "PreToolUse", now, `,"evidence_phase":"pre_commit","tool_input":`+t.arguments(i), metadata)
}

// Post is the report of its execution.
func (t Texts) Post(i int, now time.Time, r Ruling) []byte {
	approved := ""
	if r.Workflow != "" {
		approved = `,"approval":{"required":true,"status":"approved","workflow_id":"` + r.Workflow + `","decision_ref":"` + r.Decision + `"}`
	}
	at := now.UTC().Format(time.RFC3339Nano)
	return t.event(i, "b", "PostToolUse", now, `,"correlation_id":"`+t.eventID(i, "a")+`"`,
		`,"tool_input_executed":`+t.executed(i)+`,"execution":{"outcome":"succeeded","started_at":"`+at+`","completed_at":"`+at+`"}`+approved)
}

func (t Texts) eventID(i int, mark string) string {
	return fmt.Sprintf("%s%07d-0000-4000-8000-%012d", mark, t.Run, i)
}

func (t Texts) event(i int, mark, typ string, now time.Time, members, metadata string) []byte {
	tool, _ := t.tool(KindOf(i))
	governed := ""
	if t.Variant == Governed {
		governed = governedMetadata
	}
	return fmt.Appendf(nil, `{"schema_version":1,"event_id":"%s","event_type":"%s","timestamp":"%s","source":"mail-agent","session_id":"%s",`+
		`"tool_name":"%s",%s%s,"metadata":{"tool_call_id":"%s"%s%s}}`,
		t.eventID(i, mark), typ, now.UTC().Format(time.RFC3339Nano), t.Session(i), tool, t.describedAction(i), members, t.callID(i), governed, metadata)
}

// describedAction is what call i acts on. While a call waits for approval, the same action on the
// same resource is asked for as well, so that one has a resource of its own.
func (t Texts) describedAction(i int) string {
	switch KindOf(i) {
	case Denied:
		return `"action":"delete","resource_kind":"database","resource":"production","resource_scope":"production","operation_risk":"destructive_write"`
	case Approved:
		return fmt.Sprintf(`"action":"send","resource_kind":"email","resource":"press-%d-%d","resource_scope":"remote","operation_risk":"external_transfer"`, t.Run, i)
	}
	return `"action":"send","resource_kind":"email","resource":"outbox","resource_scope":"internal_network","operation_risk":"write"`
}

// sampleHash is a digest of the right form.
const sampleHash = "sha256:a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"

// governedMetadata is what the action-governance profile adds to an event's metadata.
const governedMetadata = `,"tool_identity":{"canonical_name":"email.send_message","provider_name":"send_mail","source":"mcp_tools_call","schema_hash":"` + sampleHash + `"},` +
	`"provider_translation":{"provider_surface":"mcp_tools_call","model_facing_tool":"send_mail","provider":"smtp","adapter_version":"1.4.2","schema_hash":"` + sampleHash + `"},` +
	`"risk":{"risk_class":"external_side_effect","requires_human_approval":false,"data_exfiltration_risk":"low","writes_external_system":true,"idempotent":false,"contains_secret":false},` +
	`"validation":{"status":"passed","validator":"jsonschema","schema_hash":"` + sampleHash + `"},"redaction":{"applied":false,"fields":[]},"retry":{"attempt":1},` +
	`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
