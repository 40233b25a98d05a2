package format

import (
	"cmp"
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
)

// The part of OCSF that this package writes: https://schema.ocsf.io, version 1.6.0.
const (
	ocsfVersion = "1.6.0"

	ocsfAPIActivity = 6003 // decisions, calls and approvals; category 6, application activity
	ocsfDetection   = 2004 // findings; category 2, findings
)

// ocsfActivities maps names of actions to activities of class 6003. Every other action is 99, with its
// own name.
var ocsfActivities = map[string]int{"create": 1, "read": 2, "update": 3, "write": 3, "delete": 4}

// ocsfControls maps verdicts to the profile security_control. action_id: 1 allowed, 2 denied, 0 not
// known (yet). disposition_id: 1 allowed, 2 blocked, 23 challenge, 99 other, by its name (14, delayed,
// does not fit a defer: it means that a restart is needed). status_id: 1 success, 2 failure, 99
// other.
var ocsfControls = map[events.Verdict]struct {
	action, disposition, status int
	name                        string
}{
	events.Allow: {1, 1, 1, "Allowed"},
	events.Ask:   {0, 23, 99, "Challenge"},
	events.Defer: {0, 99, 99, "Deferred"},
	events.Deny:  {2, 2, 2, "Blocked"},
}

// ocsfStates maps call states to status_id.
var ocsfStates = map[events.CallState]int{events.CallOpen: 0, events.CallCompleted: 1, events.CallFailed: 2, events.CallDenied: 2, events.CallAbandoned: 0, events.CallOrphaned: 99}

// ocsfStatuses are the captions of status_id; for 99 the status is Countersign's own word.
var ocsfStatuses = map[int]string{0: "Unknown", 1: "Success", 2: "Failure"}

func ocsfStatus(id int, own string) string { return cmp.Or(ocsfStatuses[id], own) }

func newOCSF(w *encode.Writer) encode.Encoder {
	o := ocsfWriter{w}
	return siemEncoder{w, o.writeDecision, o.writeCall, o.writeApproval, o.writeFinding}
}

type ocsfWriter struct{ w *encode.Writer }

// objectMembers is a JSON object. addNonEmpty omits empty strings, empty lists, empty objects and nil.
type objectMembers map[string]any

func (m objectMembers) addNonEmpty(pairs ...any) objectMembers {
	for i := 0; i+1 < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			if v == "" {
				continue
			}
		case []string:
			if len(v) == 0 {
				continue
			}
		case objectMembers:
			if len(v) == 0 {
				continue
			}
		case nil:
			continue
		}
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// baseEvent has the members that every event of every class must have.
func (o ocsfWriter) baseEvent(i encode.Item, class, activity int, activityName, uid string, severity int, profiles []string) objectMembers {
	r := i.Record
	product := objectMembers{"name": "Countersign", "vendor_name": "Countersign", "version": o.w.Version}
	meta := objectMembers{"version": ocsfVersion, "product": product}.addNonEmpty("uid", uid, "tenant_uid", r.Tenant, "sequence", r.Seq, "log_name", r.Shard,
		"event_code", r.Kind, "original_time", r.BrokerTime.String(), "correlation_uid", encode.SafeName(r.Session), "profiles", profiles)
	return objectMembers{
		"class_uid": class, "category_uid": class / 1000, "activity_id": activity, "type_uid": class*100 + activity, "time": r.BrokerTime.UnixMilli(),
		"severity_id": severity, "metadata": meta, "unmapped": objectMembers{"evidence": objectMembers{"shard": r.Shard, "seq": r.Seq, "record_hash": hex.EncodeToString(i.Hash[:])}},
	}.addNonEmpty("activity_name", activityName)
}

// activityEvent is an event of class 6003: the actor, the operation and the source.
func (o ocsfWriter) activityEvent(i encode.Item, action, uid string, severity int, profiles []string, tool, agent, source string) objectMembers {
	id, known := ocsfActivities[strings.ToLower(action)]
	other := ""
	if !known {
		id, other = 99, cmp.Or(action, "Execute tool")
	}
	actor := objectMembers{}.addNonEmpty("app_uid", agent)
	if len(actor) == 0 { // an actor must not be empty; the publisher is authenticated
		actor = actor.addNonEmpty("app_name", cmp.Or(source, "unknown"))
	}
	if s := i.Record.Session; s != "" {
		actor["session"] = objectMembers{"uid": encode.SafeName(s)}
	}
	e := o.baseEvent(i, ocsfAPIActivity, id, other, uid, severity, profiles)
	e["actor"] = actor
	e["api"] = objectMembers{"operation": cmp.Or(tool, "unknown")}
	e["src_endpoint"] = objectMembers{"name": cmp.Or(source, "unknown")}
	return e
}

func (o ocsfWriter) writeDecision(i encode.Item, d events.Decision) error {
	e := o.activityEvent(i, d.Action, d.DecisionID, gradeOf(verdictGrades, d.Verdict).ocsf, []string{"security_control"}, cmp.Or(d.Tool, d.Action), d.Agent, d.Source)
	e["api"].(objectMembers).addNonEmpty("request", objectMembers{}.addNonEmpty("uid", cmp.Or(d.ToolCallID, d.EventID)), "service", objectMembers{}.addNonEmpty("name", d.Protocol))
	c, known := ocsfControls[d.Verdict]
	if !known {
		c = ocsfControls[events.Deny]
	}
	e.addNonEmpty("action_id", c.action, "disposition_id", c.disposition, "disposition", c.name, "status_id", c.status, "status", ocsfStatus(c.status, string(d.Verdict)), "status_code", string(d.Verdict),
		"status_detail", strings.Join(encode.DecidingCodes(d), " "), "message", cmp.Or(d.Tool, d.Action, "request")+": "+string(d.Verdict))
	e["unmapped"].(objectMembers).addNonEmpty("mode", d.Mode, "enforced_verdict", observedVerdict(d))
	if d.Policy != nil && d.Policy.Name != "" {
		e["policy"] = objectMembers{"name": d.Policy.Name, "version": encode.FormatUint(d.Policy.Revision)}.addNonEmpty("uid", d.Policy.Digest)
	}
	return o.w.WriteJSON(e)
}

func (o ocsfWriter) writeCall(i encode.Item, c events.Call) error {
	e := o.activityEvent(i, "execute", c.CallID+"-"+string(c.State)+"-"+encode.FormatUint(i.Record.Seq), gradeOf(stateGrades, c.State).ocsf, nil, c.Tool, c.Agent, c.Source)
	e["api"].(objectMembers).addNonEmpty("request", objectMembers{}.addNonEmpty("uid", c.ToolCallID), "service", objectMembers{}.addNonEmpty("name", c.Protocol))
	status := ocsfStates[c.State]
	e.addNonEmpty("status_id", status, "status", ocsfStatus(status, string(c.State)), "status_code", string(c.State), "status_detail", c.Outcome, "message", cmp.Or(c.Tool, "call")+": "+string(c.State))
	if begin, end := callSpan(c); !begin.IsZero() {
		e.addNonEmpty("start_time", begin.UnixMilli(), "end_time", end.UnixMilli(), "duration", end.Sub(begin.Time).Milliseconds())
	}
	e["unmapped"].(objectMembers).addNonEmpty("verdict", string(c.Verdict), "decision_id", c.DecisionID, "match", c.Match, "rules", c.Findings)
	return o.w.WriteJSON(e)
}

func (o ocsfWriter) writeApproval(i encode.Item, a events.Approval) error {
	act := cmp.Or(a.Act, a.Status, "change")
	e := o.activityEvent(i, "approval "+act, a.WorkflowID+"-"+act+"-"+encode.FormatUint(i.Record.Seq), approvalGrade.ocsf, nil, a.Tool, "", a.Source)
	if a.Approver != "" {
		actor := e["actor"].(objectMembers)
		delete(actor, "app_name") // the publisher: the reviewer acts here
		actor["user"] = objectMembers{"name": a.Approver}
	}
	e.addNonEmpty("status_code", a.Status, "status_detail", a.Refused, "message", "approval "+act+": "+a.Status)
	e["unmapped"].(objectMembers).addNonEmpty("workflow_id", a.WorkflowID, "decision_id", a.DecisionID, "tool_call_id", a.ToolCallID)
	return o.w.WriteJSON(e)
}

// Activities of class 2004.
const (
	ocsfFindingCreated = 1
	ocsfFindingClosed  = 3
)

func (o ocsfWriter) writeFinding(i encode.Item, f events.Finding) error {
	activity, status, caption, uid := ocsfFindingCreated, 1, "New", f.FindingID
	if f.Retracts != "" {
		activity, status, caption, uid = ocsfFindingClosed, 4, "Resolved", f.Retracts
	}
	e := o.baseEvent(i, ocsfDetection, activity, "", f.FindingID, gradeOf(findingGrades, f.Severity).ocsf, nil)
	e["finding_info"] = objectMembers{"uid": uid, "title": cmp.Or(f.Rule, "unknown")}.addNonEmpty("desc", f.Explanation, "types", []string{"AI agent governance"})
	e.addNonEmpty("status_id", status, "status", caption, "message", f.Explanation, "is_alert", f.Retracts == "" && f.Severity != events.SeverityInfo)
	if f.Remedy != "" {
		e["remediation"] = objectMembers{"desc": f.Remedy}
	}
	e["unmapped"].(objectMembers).addNonEmpty("source", f.Source, "session", f.Session, "tool_call_id", f.ToolCallID, "call_id", f.CallID, "enforced", f.Enforced)
	return o.w.WriteJSON(e)
}
