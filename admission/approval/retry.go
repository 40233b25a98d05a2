package approval

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Reason codes that approvals give in decisions.
const (
	ReasonGranted         = "approval_granted"          // an approval was used: the ask became allow
	ReasonDenied          = "approval_denied"           // a reviewer said no to exactly this
	ReasonPending         = "approval_pending"          // the request waits for a workflow that was open before
	ReasonNotNamed        = "approval_not_named"        // there is an approval, and the retry must name its workflow
	ReasonPolicyChanged   = "approval_policy_changed"   // there was a workflow, under other policies
	ReasonOtherCall       = "approval_for_other_call"   // there is a workflow for this call, but not for this action (without arguments: for another document)
	ReasonUnknown         = "approval_unknown"          // the workflow that the request names is none of its own
	ReasonEvasion         = "approval_evasion"          // another workflow is about the same tool and arguments or the same call, or about the same action on the same resource (AgentHook H-09)
	ReasonBacklog         = "approval_backlog_full"     // the publisher has as many open workflows as it may have
	ReasonNotTransferable = "approval_not_transferable" // there is an approval, for another call
	ReasonOtherAsk        = "approval_for_other_ask"    // there is a workflow for this action, but other reasons or terms ask now
	ReasonNotEnough       = "approval_not_enough"       // there is an approval, and the verdict has a part that no approval lifts
)

// Retry describes a request to a workflow of the same action.
type Retry struct {
	Call, Event string
	Agent       string // that asks; "" if it does not say
	Previous    string // metadata.retry.previous_tool_call_id: the call that this one repeats
	Named       string // the workflow that the request names
	Policy      events.PolicyRef
	Now         time.Time

	// Unapprovable, Asks and Terms are those of the verdict without an approval; see Workflow.
	Unapprovable bool
	Asks         []string
	Terms        Terms
}

// RetryStatus is the status of a slot's workflow for a request of the same action.
type RetryStatus int

// The statuses.
const (
	Vacant    RetryStatus = iota // no workflow applies; a new one may be opened
	Outdated                     // the workflow is for other policies; a new one replaces it
	Waiting                      // undecided: the request waits for it
	Refused                      // denied by a reviewer
	Granted                      // approved, and for this request
	NotNamed                     // approved, but the retry must name it
	OtherCall                    // approved, but for another call
	OtherAsk                     // the workflow is for other reasons or terms; a new one replaces it
	NotEnough                    // approved, but an approval does not lift all of the verdict
)

// MatchRetry returns the status of a workflow for a request of the same action. A nil workflow
// is Vacant.
func (w *Workflow) MatchRetry(r Retry) RetryStatus {
	switch {
	case w == nil || w.Over(r.Now):
		return Vacant
	case !samePolicy(w.Policy, r.Policy):
		return Outdated
	case w.Status == Denied:
		return Refused
	case !r.Unapprovable && !w.coversReasons(r):
		return OtherAsk
	case w.Status == Pending:
		return Waiting
	case r.Unapprovable:
		return NotEnough
	case w.Terms.Resume == ResumeWorkflowID && r.Named != w.ID:
		return NotNamed
	case !w.CoversRequest(r):
		return OtherCall
	}
	return Granted
}

// InForce reports whether a workflow is not over, and was opened under these policies.
func (w *Workflow) InForce(policy events.PolicyRef, now time.Time) bool {
	return !w.Over(now) && samePolicy(w.Policy, policy)
}

// coversReasons reports whether an approval of the workflow covers the current verdict: the
// same reasons to ask or fewer, and the same reviewers.
func (w *Workflow) coversReasons(r Retry) bool {
	for _, code := range r.Asks {
		if !slices.Contains(w.Asks, code) {
			return false
		}
	}
	return !w.Unapprovable && w.Terms.sameReviewers(r.Terms.withDefaults())
}

// CoversRequest reports whether a request waits for the workflow, or names a waiting one that
// it repeats. The slot covers everything but the call and, without a session, the agent: an approval is for
// the agents that asked before it was given.
func (w *Workflow) CoversRequest(r Retry) bool {
	switch {
	case r.Agent != "" && !w.hasAgent(r.Agent):
		return false
	case r.Named == w.ID, w.Terms.Resume == ResumeManual:
		return true
	case r.Call != "":
		return slices.Contains(w.Calls, r.Call) || r.Previous != "" && slices.Contains(w.Calls, r.Previous)
	}
	return r.Event != "" && slices.Contains(w.Events, r.Event) || len(w.Calls) == 0 && len(w.Events) == 0
}

// Join adds the request's call and agent to those that wait for a pending workflow. joined is false if it
// waits already, or if there is no room for another call: its status will then be OtherCall.
func (w Workflow) Join(r Retry) (next Workflow, joined bool) {
	call := missingID(w.Calls, r.Call)
	event := missingID(w.Events, r.Event)
	agent := missingID(w.Agents, r.Agent)
	if call == "" && agent == "" && (event == "" || r.Call != "") {
		return w, false // further events of a known call need not be recorded
	}
	next, err := w.applyAct(ActJoin, "", "", r.Now)
	if err != nil {
		return w, false
	}
	if call != "" {
		next.Calls = append(slices.Clip(next.Calls), call)
	}
	if agent != "" {
		next.Agents = append(slices.Clip(next.Agents), agent)
	}
	if event != "" && len(next.Events) < MaxCalls {
		next.Events = append(slices.Clip(next.Events), event)
	}
	return next, true
}

func missingID(list []string, id string) string {
	if id == "" || slices.Contains(list, id) || len(list) >= MaxCalls {
		return ""
	}
	return id
}

// Opening are the inputs of a new workflow.
type Opening struct {
	Slot, ID, Tenant, Source, Session, DecisionID string
	Keys                                          Keys
	ArgsDigest                                    string
	Policy                                        events.PolicyRef
	Mandate                                       *events.MandateRef
	Terms                                         Terms
	Preview                                       Preview
	PreviewDigest                                 string
	Call, Event, Agent                            string
	Unapprovable                                  bool
	Asks                                          []string
	Now, ExpiresAt                                time.Time
}

// Open returns a new pending workflow.
func Open(o Opening) Workflow {
	w := Workflow{
		V: storedVersion, ID: o.ID, Slot: o.Slot, Tenant: o.Tenant, Source: o.Source, Session: o.Session, DecisionID: o.DecisionID,
		ActionID: o.Keys.ActionID, ActionDigest: o.Keys.Action, Evasion: o.Keys.Evasion, Runs: o.Keys.Runs, Tool: o.Keys.Tool, ArgsDigest: o.ArgsDigest,
		Policy: o.Policy, Mandate: o.Mandate, Terms: o.Terms.withDefaults(), Preview: o.Preview, PreviewDigest: o.PreviewDigest,
		Unapprovable: o.Unapprovable, Asks: o.Asks, RequestedAt: events.At(o.Now), ExpiresAt: events.At(o.ExpiresAt),
	}
	if o.Call != "" {
		w.Calls = []string{o.Call}
	}
	if o.Event != "" {
		w.Events = []string{o.Event}
	}
	if o.Agent != "" {
		w.Agents = []string{o.Agent}
	}
	w.Status, w.LastAct, w.Step, w.ChangedAt = transitions[""][ActOpen], ActOpen, 1, w.RequestedAt
	return w
}
