// Package toyprotocol adds the toy protocol of the tests to the stage of admission: one row in its
// table (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"encoding/json"
	"testing"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/internal/protocol"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Token is the protocol's token in subjects.
const Token = "toy"

// Request asks for a call of send_mail, with Arguments.
const (
	Request   = `{"do":"send_mail","with":` + Arguments + `,"run":"s1","no":"c1"}`
	Arguments = `{"to":"a@example.com","password":"hunter2-secret"}`
)

// Policy allows every call of send_mail.
const Policy = `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: toys}
spec:
  match: {protocols: [toy], tools: [send_mail]}
  rules: [{name: all, when: 'event_type == "do"', verdict: allow, reason: toy_only}]
`

// AddRow adds the row until the test ends. The test program must link package admission.
func AddRow(t testing.TB) {
	t.Cleanup(protocol.Add(Token, protocol.Row{Protocol: evaluator{}, Carrier: "extra", Source: "/from"}))
}

// evaluator reads requests {"do": tool, "with": arguments, "run": session, "no": tool call id}
// and makes replies {"go": whether the call may run, "why": text}. It decides nothing.
type evaluator struct{}

func (evaluator) Read(r call.Request) (c call.Call, o call.Opinion) {
	o.Verdict = events.Allow
	tree, err := strictjson.ParseObject(r.Body, r.Limits)
	if err != nil {
		o.RefuseUndecodable(Token, err)
		return c, o
	}
	c.Event, c.EventType = tree, "do"
	c.Tool, _ = tree["do"].(string)
	c.Session, _ = tree["run"].(string)
	c.ToolCallID, _ = tree["no"].(string)
	if c.Tool == "" {
		o.Refuse(Token, call.CodeSchemaInvalid, "/do")
		return c, o
	}
	if c.Args, _ = tree["with"].(map[string]any); c.Args != nil {
		if c.ArgsCanonical, err = strictjson.Canonical(c.Args); err != nil {
			o.RefuseUndecodable(Token, err)
		}
	}
	return c, o
}

func (evaluator) HasNativeEvaluator() bool { return false }

func (evaluator) NativeVerdict(v events.Verdict) string {
	return map[bool]string{true: "go", false: "stop"}[v == events.Allow]
}

func (evaluator) Reply(_ call.Call, d events.Decision, reason string) ([]byte, error) {
	return json.Marshal(map[string]any{"go": d.Verdict == events.Allow, "why": reason})
}
