package agenthook

import (
	"cmp"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
)

// approvalWorkflow is an approval, by the events of the session.
type approvalWorkflow struct {
	status             string
	event              eventRef // the event with that status
	requested, expires time.Time
}

// finalStatuses are statuses that an approval keeps.
var finalStatuses = map[string]bool{"approved": true, "denied": true, "expired": true, "cancelled": true}

// approvalWorkflows are a session's approvals by workflow, at most maxWorkflows.
type approvalWorkflows struct{ byID fifoMap[*approvalWorkflow] }

// track checks an approval's changes of status (SPEC 10, AHP-007).
func (ws *approvalWorkflows) track(out *findingList, x *Event) {
	a := x.approval
	if a == nil || a.Status == "" || x.VoidApproval {
		return
	}
	key := fact.BoundID(cmp.Or(a.WorkflowID, x.CallID))
	w := ws.byID.get(key)
	if w == nil || key == "" {
		w = &approvalWorkflow{}
	}
	if finalStatuses[w.status] && a.Status != w.status {
		out.add("AH-C-102", "", w.event, x.eventRef()).Call = x.CallID
	}
	if at := fact.ParseInstant(a.RequestedAt); !at.IsZero() {
		w.requested = at
	}
	if at := fact.ParseInstant(a.ExpiresAt); !at.IsZero() {
		w.expires = at
	}
	decided := fact.ParseInstant(a.DecidedAt)
	early := !w.requested.IsZero() && decided.Before(w.requested)
	late := !w.expires.IsZero() && decided.After(w.expires)
	if !decided.IsZero() && (early || late) {
		out.add("AH-C-109", "", w.event, x.eventRef()).Call = x.CallID
	}
	w.status, w.event = fact.BoundID(a.Status), x.eventRef()
	if key != "" {
		ws.byID.put(key, w, maxWorkflows)
	}
}
