package hooksession

import "time"

// workflow is an approval as the session's events tell of it.
type workflow struct {
	status             string
	ref                ref // the event that said so
	requested, expires time.Time
}

// terminal are the states that an approval does not leave.
var terminal = map[string]bool{"approved": true, "denied": true, "expired": true, "cancelled": true}

// approve follows an approval from event to event (SPEC 10, AHP-007).
func (s *Session) approve(x *Event) {
	a := x.approval
	if a == nil || a.Status == "" || x.VoidApproval {
		return
	}
	key := bounded(first(a.WorkflowID, x.Call))
	w := s.workflows.get(key)
	if w == nil || key == "" {
		w = &workflow{}
	}
	if terminal[w.status] && a.Status != w.status {
		s.breach("AH-C-102", "", w.ref, x.ref()).Call = x.Call
	}
	if at := instant(a.RequestedAt); !at.IsZero() {
		w.requested = at
	}
	if at := instant(a.ExpiresAt); !at.IsZero() {
		w.expires = at
	}
	decided := instant(a.DecidedAt)
	early := !w.requested.IsZero() && decided.Before(w.requested)
	late := !w.expires.IsZero() && decided.After(w.expires)
	if !decided.IsZero() && (early || late) {
		s.breach("AH-C-109", "", w.ref, x.ref()).Call = x.Call
	}
	w.status, w.ref = bounded(a.Status), x.ref()
	if key != "" {
		s.workflows.put(key, w, maxWorkflows)
	}
}
