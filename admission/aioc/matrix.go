package aioc

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Reasons of the default-deny matrix (RFC-0002, Default-Deny Rules).
const (
	ReasonNotConfigured = "policy_not_configured"            // no policy is configured
	ReasonError         = "policy_error"                     // the policy failed or took too long
	ReasonDenyMode      = "deprecated_policy_field_denyMode" // the policy returned the withdrawn member denyMode
	ReasonInvalid       = "invalid_policy_result"            // the policy returned something else than a result
	ReasonExpired       = "policy_result_expired"            // an allow that no longer holds
	reasonNoTool        = "deny_unconfigured_tool_"          // no policy for this tool; its name follows
	reasonNoHandoff     = "deny_unconfigured_handoff_"       // no policy for this handoff; its name follows
)

// ErrDeadline reports that a policy took too long. Metadata has an error name of its own for
// it.
var ErrDeadline = errors.New("aioc: the policy took too long")

// Names of errors in metadata. Error messages may quote arguments and never leave the program.
const (
	errorName    = "Error"
	deadlineName = "DeadlineExceeded"
)

// PolicyReturn is the outcome of asking a policy.
type PolicyReturn struct {
	Configured bool   // there is a policy
	Err        error  // it threw, panicked or ran out of time (ErrDeadline, context.DeadlineExceeded)
	Value      []byte // the JSON text of what it returned
	Seed       bool   // RFC-0002 as first accepted: there is no require_approval
}

// ApplyDenyMatrix applies the default-deny matrix, first match wins: no policy, an error, the
// withdrawn member denyMode, an invalid result, an allow that has expired at now; otherwise the
// result, with the mode that applies. Clients use it too: an unreadable reply is no allow.
func ApplyDenyMatrix(r PolicyReturn, now time.Time) wire.PolicyResult {
	switch {
	case !r.Configured:
		return deniedResult(ReasonNotConfigured, nil)
	case r.Err != nil:
		return deniedResult(ReasonError, map[string]any{"errorName": errorClass(r.Err)})
	}
	tree, err := strictjson.ParseObject(r.Value, strictjson.DefaultLimits)
	if err != nil {
		return deniedResult(ReasonInvalid, nil)
	}
	if received, there := tree["denyMode"]; there {
		return deniedResult(ReasonDenyMode, denyModeMetadata(received))
	}
	result, ok := readResult(tree, r.Seed)
	if !ok {
		return deniedResult(ReasonInvalid, nil)
	}
	if result.Decision != wire.Allow {
		return result
	}
	result.ResultMode = ""
	if result.ExpiresAt == "" {
		return result
	}
	switch until, err := events.ParseTime(result.ExpiresAt); {
	case err != nil:
		return deniedResult(ReasonInvalid, nil)
	case !now.Before(until):
		return deniedResult(ReasonExpired, nil)
	}
	return result
}

func deniedResult(reason string, metadata map[string]any) wire.PolicyResult {
	return wire.PolicyResult{Decision: wire.Deny, Reason: reason, ResultMode: wire.ModeThrow, Metadata: metadata}
}

// errorClass is the class of an error, never its text.
func errorClass(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.Is(err, ErrDeadline) || errors.As(err, &timeout) && timeout.Timeout() {
		return deadlineName
	}
	return errorName
}

// denyModeMetadata describes the use of denyMode. It quotes the received value only if it is
// one of the member's former values.
func denyModeMetadata(received any) map[string]any {
	m := map[string]any{"deprecatedField": "denyMode", "replacementField": "resultMode"}
	if word, ok := received.(string); ok && slices.Contains(modes, word) {
		m["receivedValue"] = word
	}
	return m
}

var (
	decisions = []string{wire.Allow, wire.Deny, wire.RequireApproval}
	modes     = []string{wire.ModeThrow, wire.ModeToolResult}
)

// readResult reads a result from an object and reports whether it is valid. policyVersion and
// metadata of a wrong type are left out without an error.
func readResult(tree map[string]any, seed bool) (wire.PolicyResult, bool) {
	var r wire.PolicyResult
	ok := true
	text := func(key string, into *string) bool {
		v, there := tree[key]
		s, isText := v.(string)
		ok = ok && (!there || isText)
		*into = s
		return there
	}
	text("decision", &r.Decision)
	text("reason", &r.Reason)
	text("publicReason", &r.PublicReason)
	text("expiresAt", &r.ExpiresAt)
	moded := text("resultMode", &r.ResultMode)
	r.PolicyVersion, _ = tree["policyVersion"].(string)
	r.Metadata, _ = tree["metadata"].(map[string]any)
	ok = ok && slices.Contains(decisions, r.Decision) && !(seed && r.Decision == wire.RequireApproval) &&
		strings.TrimFunc(r.Reason, isBlank) != "" && (!moded || slices.Contains(modes, r.ResultMode))
	if !moded {
		r.ResultMode = wire.ModeThrow
	}
	return r, ok
}

// isBlank reports white space as any reader may define it.
func isBlank(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' }
