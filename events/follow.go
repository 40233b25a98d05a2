package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events/subject"
)

// Bounds of a FollowRequest.
const (
	FollowMax     = 500              // outputs of one page
	FollowMaxWait = 30 * time.Second // for the first output
	FollowMaxSize = 4096             // bytes of a request
)

// FollowRequest asks for the outputs of a tenant's log in order: the page after a position. It
// is JSON, sent as a request on gov.follow.<tenant> by any NATS client; the answer is a
// FollowPage. A position is a sequence of the log and the log's name; both come from the
// previous page.
type FollowRequest struct {
	Log     string            `json:"log,omitempty"`     // as in the previous page; absent for the current one
	After   *uint64           `json:"after,omitempty"`   // outputs with higher sequences: next of the previous page
	Since   Time              `json:"since,omitzero"`    // instead of After: outputs that were stored then or later; without both, from now on
	Kinds   []string          `json:"kinds,omitempty"`   // of decisions, calls, findings, approvals; all of these if absent. aaep: the AAEP events of the tenant and the replies to them. aioc: the trace events that the admitter writes beside its answers to aioc's gates
	States  map[string]string `json:"states,omitempty"`  // one per kind: a verdict, a call's state, a severity, an approval's status
	Session string            `json:"session,omitempty"` // one session, of aioc a run; excludes approvals
	Max     int               `json:"max,omitempty"`     // outputs of the page, 1 to 500 (default: 100)
	WaitMS  int               `json:"wait_ms,omitempty"` // maximum wait for the first output, up to 30000; 0 does not wait

	// Workflow asks for the newest record of each status of an approval workflow instead of a page. It excludes
	// every other member but Log.
	Workflow string `json:"workflow,omitempty"`
}

// FollowKinds are the kinds of a tenant's outputs; a request without kinds asks for all of them.
var FollowKinds = []string{string(subject.Decisions), string(subject.Calls), string(subject.Findings), string(subject.Approvals)}

// KindAAEP is the kind of what was said in AAEP: the producers' events and the replies to them.
const KindAAEP = subject.ProtoAAEP

// KindAIOC is the kind of aioc's trace events, which the admitter writes.
const KindAIOC = "aioc"

// followEvents are the events of each kind, by the subjects that they may be on.
var followEvents = []struct {
	kind, protocol, typ string // of any type if typ is ""
}{
	{KindAAEP, subject.ProtoAAEP, ""},
	{KindAIOC, subject.ProtoTool, subject.TypeToolEvaluated},
	{KindAIOC, subject.ProtoHandoff, subject.TypeHandoffEvaluated},
}

// FollowEventKinds are the kinds of events. Countersign derives none of them, and a page has
// them only if the request names the kind.
var FollowEventKinds = []string{KindAAEP, KindAIOC}

// followable are all kinds that a request may name.
var followable = slices.Concat(FollowKinds, FollowEventKinds)

// FollowKindOf is the kind of a message by its subject; "" if it has none.
func FollowKindOf(p subject.Parsed) string {
	if slices.Contains(FollowKinds, string(p.Class)) {
		return string(p.Class)
	}
	for _, e := range followEvents {
		if p.Class == subject.Events && p.Protocol == e.protocol && (e.typ == "" || p.Type == e.typ) {
			return e.kind
		}
	}
	return ""
}

// FollowPage is the answer. A request without a position begins at the end of the log: its page is
// empty unless an output arrives while it waits.
type FollowPage struct {
	Log     string       `json:"log,omitempty"`   // the incarnation of the log, e.g. GOV@20261120T064150.123456789Z
	Next    uint64       `json:"next"`            // after of the next request
	End     uint64       `json:"end"`             // the log's last sequence at the start of the page
	Outputs []Output     `json:"outputs"`         // in the order of their sequences
	Error   *FollowError `json:"error,omitempty"` // why there is no page
}

// Output is one message of a page: an output, or an event of a kind that the request named.
type Output struct {
	Seq     uint64          `json:"seq"`              // on the log
	Subject string          `json:"subject"`          // on the log
	At      Time            `json:"at"`               // when the broker stored it
	Record  json.RawMessage `json:"record,omitempty"` // as it was stored, without blanks between its tokens; absent if too large for a page or not JSON
}

// FollowError is the reason why there is no page.
type FollowError struct {
	Code    string `json:"code"`    // see the reason codes of following
	Message string `json:"message"` // for people
}

func (e *FollowError) Error() string { return e.Message + " (" + e.Code + ")" }

// Codes of a FollowError.
const (
	FollowInvalid     = "invalid_request" // the message says what is wrong with the request
	FollowRefused     = "not_your_tenant" // the user is of another tenant: use a user of this one
	FollowReplaced    = "log_replaced"    // there is another log now: begin anew, without log and after
	FollowBeyond      = "beyond_the_log"  // the log has no such sequence yet: the position is of another log
	FollowBusy        = "busy"            // too many requests of this user wait already: ask again when one is answered
	FollowUnavailable = "log_unavailable" // the log does not answer: ask again after a moment
)

// ErrFollow reports an invalid FollowRequest.
var ErrFollow = errors.New("not a request for outputs")

// DecodeFollowRequest reads a request, strictly, and fills in the defaults. An empty request
// asks for the next outputs.
func DecodeFollowRequest(b []byte) (r FollowRequest, err error) {
	if len(b) > FollowMaxSize {
		return r, fmt.Errorf("%w: it has more than %d bytes", ErrFollow, FollowMaxSize)
	}
	if len(b) > 0 {
		if r, err = DecodeRecord[FollowRequest](b); err != nil {
			return r, fmt.Errorf("%w: %w", ErrFollow, err)
		}
	}
	if r.Workflow != "" {
		return r, r.checkWorkflow()
	}
	if len(r.Kinds) == 0 {
		r.Kinds = FollowKinds
	}
	if r.Max == 0 {
		r.Max = 100
	}
	for _, bad := range []struct {
		is   bool
		what string
	}{
		{r.After != nil && !r.Since.IsZero(), "after and since exclude each other"},
		{r.Max < 1 || r.Max > FollowMax, fmt.Sprintf("max must be 1 to %d", FollowMax)},
		{r.WaitMS < 0 || r.WaitMS > int(FollowMaxWait/time.Millisecond), fmt.Sprintf("wait_ms must be 0 to %d", FollowMaxWait/time.Millisecond)},
		{slices.ContainsFunc(slices.Collect(maps.Keys(r.States)), func(k string) bool { return !slices.Contains(r.Kinds, k) }), "states has a kind that is not asked for"},
		{hasDuplicates(r.Kinds), "a kind is named twice"},
		{len(r.Kinds) > len(followable) || slices.ContainsFunc(r.Kinds, func(k string) bool { return !slices.Contains(followable, k) }), fmt.Sprintf("kinds are %v", followable)},
		{slices.ContainsFunc(FollowEventKinds, func(k string) bool { return r.States[k] != "" }), fmt.Sprintf("%v have no states", FollowEventKinds)},
	} {
		if bad.is {
			return r, fmt.Errorf("%w: %s", ErrFollow, bad.what)
		}
	}
	return r, nil
}

// maxWorkflowName is the most bytes of the name of a workflow in a request.
const maxWorkflowName = 128

func (r FollowRequest) checkWorkflow() error {
	alone := r.After == nil && r.Since.IsZero() && r.Kinds == nil && r.States == nil && r.Session == "" && r.Max == 0 && r.WaitMS == 0
	switch {
	case !alone:
		return fmt.Errorf("%w: workflow excludes every other member but log", ErrFollow)
	case len(r.Workflow) > maxWorkflowName:
		return fmt.Errorf("%w: the workflow has more than %d bytes", ErrFollow, maxWorkflowName)
	}
	return nil
}

func hasDuplicates(list []string) bool {
	list = slices.Sorted(slices.Values(list))
	return len(slices.Compact(slices.Clone(list))) < len(list)
}

// Subjects are the log subjects of the outputs that r asks for; none if r asks for approvals of
// a session.
func (r FollowRequest) Subjects(space subject.Space, tenant string) (list []string) {
	for _, e := range followEvents {
		if slices.Contains(r.Kinds, e.kind) {
			list = append(list, space.EventsOf(tenant, e.protocol, r.Session, e.typ))
		}
	}
	for _, kind := range r.Kinds {
		approvals := kind == string(subject.Approvals)
		if approvals && r.Session != "" || slices.Contains(FollowEventKinds, kind) {
			continue
		}
		list = append(list, space.Outputs(subject.Class(kind), tenant, r.States[kind], r.Session))
	}
	return list
}
