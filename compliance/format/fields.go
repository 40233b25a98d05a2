package format

import (
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
)

var ocsfFields = []encode.Field{
	{Names: []string{"class_uid"}, From: "6003 (API Activity) for decisions, with the profile `security_control`, calls and approvals; 2004 (Detection Finding) for findings, created or, if retracted, closed"},
	{Names: []string{"activity_id"}, From: "the action: create 1, read 2, write and update 3, delete 4, everything else 99 with `activity_name`"},
	{Names: []string{"actor"}, From: "the agent (`app_uid`), else the publisher (`app_name`); of an approval the reviewer (`user.name`); the session"},
	{Names: []string{"api.operation", "api.request.uid", "api.service.name"}, From: "tool, tool call id, protocol"},
	{Names: []string{"src_endpoint.name"}, From: "the authenticated publisher"},
	{Names: []string{"action_id", "disposition_id", "status_id"}, From: "allow 1, 1, 1; ask 0, 23 (challenge), 99; defer 0, 99 (`Deferred`), 99; deny 2, 2 (blocked), 2"},
	{Names: []string{"time", "metadata.original_time"}, From: "when the log stored the record"},
	{Names: []string{"metadata.uid"}, From: "the decision; the call, its state and sequence; the workflow, its act and sequence; the finding"},
	{Names: []string{"unmapped"}, From: "the record of evidence, and what OCSF has no place for"},
}

var cefFields = []encode.Field{
	{Names: []string{"rt", "start", "end"}, From: "the log's time; of a call its first and last step"},
	{Names: []string{"act", "outcome", "reason"}, From: "verdict; success, pending or failure, of a call its own word; codes"},
	{Names: []string{"externalId", "app", "sproc", "suser", "shost"}, From: "identifier, protocol, tool, agent or reviewer, publisher"},
	{Names: []string{"cat", "msg"}, From: "severity and explanation of a finding"},
	{Names: []string{"cs1", "cs2", "cs3", "cs4", "cs5", "cs6"}, From: "tenant, session, record of evidence, tool call, policy or retracted finding, what an observed policy would have given; the labels say which"},
}

// Grade is the severity of a kind of record in the formats for a SIEM.
type Grade struct {
	Record    string // what it is, and its verdict, state or severity
	OCSF, CEF int
}

// Grades lists the severities of all kinds of records.
func Grades() []Grade {
	var list []Grade
	add := func(kind, value string, g severityGrade) {
		list = append(list, Grade{kind + " " + value, g.ocsf, g.cef})
	}
	for _, v := range []events.Verdict{events.Allow, events.Ask, events.Defer, events.Deny} {
		add("decision", string(v), verdictGrades[v])
	}
	for _, s := range []events.CallState{events.CallOpen, events.CallCompleted, events.CallDenied, events.CallFailed, events.CallAbandoned, events.CallOrphaned} {
		add("call", string(s), stateGrades[s])
	}
	for _, s := range events.Severities {
		add("finding", string(s), findingGrades[s])
	}
	return append(list, Grade{"approval", approvalGrade.ocsf, approvalGrade.cef})
}
