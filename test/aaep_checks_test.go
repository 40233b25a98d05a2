package e2e_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// heard is what one listener got in one scenario, and what it said.
type heard struct {
	events  []object
	replies []object
	request object        // subscription.request
	answer  object        // to it
	took    time.Duration // from the user's request to the last event
}

// aaepCheck is a check of AAEP's conformance suite under the name that the suite gives it. Where the suite's own
// check cannot fail, ours asks for what its title promises.
type aaepCheck struct {
	id       string
	scenario string
	check    func(heard) error
}

const (
	typeStarted      = "aaep:agent.session.started"
	typeInvoked      = "aaep:agent.tool.invoked"
	typeCompleted    = "aaep:agent.tool.completed"
	typeStreaming    = "aaep:agent.output.streaming"
	typeConfirmation = "aaep:agent.awaiting.confirmation"
)

var aaepTerminal = []string{"aaep:agent.session.completed", "aaep:agent.session.errored", "aaep:agent.session.cancelled"}

func isTerminal(e object) bool { return slices.Contains(aaepTerminal, e.text("type")) }

// aaepChecks are the checks of levels 1 to 3, by scenario. L1-ENV-006, the JSON Schemas, is checked of all events at once.
var aaepChecks = []aaepCheck{
	{"L1-ENV-001", "tool", eachEvent(func(e object) bool {
		return !slices.ContainsFunc([]string{"@context", "type", "event_id", "session_id", "timestamp", "producer"}, func(k string) bool { return e[k] == nil })
	})},
	{"L1-ENV-002", "tool", eachEvent(formed("event_id", `^evt_[A-Za-z0-9]{1,64}$`))},
	{"L1-ENV-003", "tool", eachEvent(formed("session_id", `^sess_[A-Za-z0-9]{1,64}$`))},
	{"L1-ENV-004", "tool", eachEvent(formed("timestamp", `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`))},
	{"L1-ENV-005", "tool", eachEvent(func(e object) bool { return e.text("producer.agent_id") != "" })},
	{"L1-LIFE-001", "short", countOf("terminal events", atLeast(1), isTerminal)},
	{"L1-LIFE-002", "short", countOf("terminal events", exactly(1), isTerminal)},
	{"L1-LIFE-003", "short", func(h heard) error {
		first, last := indexes(h, func(e object) bool { return e.text("type") == typeStarted }), indexes(h, isTerminal)
		if !slices.Equal(first, []int{0}) || !slices.Equal(last, []int{len(h.events) - 1}) {
			return errorf("started at %v, ended at %v of %d", first, last, len(h.events))
		}
		return nil
	}},
	{"L1-LIFE-004", "short", countOf(typeStarted, exactly(1), ofType(typeStarted))},
	{"L1-TOOL-001", "tool", invokedFirst},
	{"L1-TOOL-002", "tool", onePair},
	{"L1-TOOL-003", "tool", eachOf(typeCompleted, func(e object) bool {
		return slices.Contains([]string{"success", "error", "timeout"}, e.text("status"))
	})},
	{"L1-TOOL-004", "tool", sameTool},
	{"L2-TOOL-005", "accepted", func(h heard) error {
		question := indexes(h, ofType(typeConfirmation))
		for _, i := range indexes(h, func(e object) bool { return e.text("type") == typeInvoked && e["irreversible"] == true }) {
			if len(question) == 0 || question[0] > i {
				return errorf("event %d runs what cannot be undone; asked at %v", i, question)
			}
		}
		return countOf(typeInvoked, exactly(1), ofType(typeInvoked))(h)
	}},
	{"L1-STREAM-001", "tool", positionsGrow},
	{"L1-STREAM-002", "tool", countOf("last chunks", exactly(1), func(e object) bool { return e.text("type") == typeStreaming && e["complete"] == true })},
	{"L1-STREAM-003", "tool", func(h heard) error {
		chunks := ofTypes(h, typeStreaming)
		for i, e := range chunks {
			if e["complete"] == true && i != len(chunks)-1 {
				return errorf("chunk %d of %d ends the output", i, len(chunks))
			}
		}
		return nil
	}},
	{"L1-STREAM-004", "tool", eachOf(typeStreaming, func(e object) bool {
		return e["coalesce_hint"] == nil || slices.Contains([]string{"none", "word", "sentence", "paragraph", "completion"}, e.text("coalesce_hint"))
	})},
	{"L1-STREAM-005", "tool", eachOf(typeStreaming, func(e object) bool {
		return e["content_type"] == nil || formed("content_type", `^[a-zA-Z][\w.+-]*/[a-zA-Z][\w.+-]*$`)(e)
	})},
	{"L1-SAFETY-002", "failing", isCritical("aaep:agent.session.errored")},
	{"L1-SAFETY-007", "failing", eachEvent(func(e object) bool { return !strings.Contains(string(e.bytes()), aaepSecret) })},
	{"L2-CONF-FLOW-ACCEPT-001", "accepted", countOf(typeConfirmation, exactly(1), ofType(typeConfirmation))},
	{"L2-CONF-001", "accepted", eachOf(typeConfirmation, formed("reply_token", `^rpl_[A-Za-z0-9]{1,64}$`))},
	{"L2-CONF-002", "duplicate", func(h heard) error { // the first reply accepts, the second rejects
		if len(h.replies) != 2 {
			return errorf("%d replies", len(h.replies))
		}
		return countOf(typeInvoked, exactly(1), ofType(typeInvoked))(h)
	}},
	{"L2-CONF-003", "accepted", eachOf(typeConfirmation, func(e object) bool { return slices.Contains([]string{"accept", "reject"}, e.text("default_decision")) })},
	{"L2-CONF-004", "accepted", eachOf(typeConfirmation, func(e object) bool {
		return !slices.ContainsFunc([]string{"action", "consequence", "reply_token", "timeout_seconds", "default_decision"}, func(k string) bool { return e[k] == nil })
	})},
	{"L2-CONF-005", "rejected", countOf(typeInvoked, exactly(0), ofType(typeInvoked))},
	{"L2-CONF-005-DEFAULT", "unanswered", countOf(typeInvoked, exactly(0), ofType(typeInvoked))},
	{"L2-CONF-FLOW-REJECT-002", "rejected", countOf("terminal events", exactly(1), isTerminal)},
	{"L2-CONF-006", "accepted", eachOf(typeConfirmation, func(e object) bool {
		seconds, is := e["timeout_seconds"].(float64)
		return is && seconds == float64(int(seconds)) && seconds >= 1 && seconds <= 86400
	})},
	{"L2-SAFETY-001", "unanswered", eachOf(typeConfirmation, func(e object) bool {
		return e["irreversible"] == true && e.text("risk_level") == "high" && e.text("default_decision") == "reject"
	})},
	{"L2-SAFETY-003", "accepted", isCritical(typeConfirmation)},
	{"L2-CLAR-FLOW-001", "clarified", func(h heard) error { // the answer is used
		if !strings.Contains(string(object{"": h.events}.bytes()), aaepCity) {
			return errorf("the answer is not in the output")
		}
		return nil
	}},
	{"L2-SAFETY-004", "clarified", isCritical("aaep:agent.awaiting.clarification")},
	{"L2-SAFETY-005", "handoff", isCritical("aaep:agent.handoff.requested")},
	{"L3-HS-001", "terms", func(h heard) error {
		return hasMembers(h.request, "type", "aaep_version", "subscriber_id", "capabilities")
	}},
	{"L3-HS-002", "terms", func(h heard) error {
		a := h.answer
		if a.text("type") != "subscription.accepted" || !formed("subscription_id", `^sub_[A-Za-z0-9]{1,64}$`)(a) || a.text("producer.agent_id") == "" {
			return errorf("%s", a.bytes())
		}
		return hasMembers(a, "aaep_version", "honored_capabilities")
	}},
	{"L3-HS-003", "version", func(h heard) error { return isRejected(h, aaepReasons...) }},
	{"L3-REJECT-002", "version", func(h heard) error { return isRejected(h, "version_unsupported") }},
	{"L3-HS-004", "terms", notMore},
	{"L3-HS-005", "terms", func(h heard) error { return hasMembers(h.answer, "type") }},
	{"L3-CAP-LANG", "languages", notMore},
	{"L3-CAP-RATE", "rate", notMore},
	{"L3-SIG-002", "signed", func(h heard) error {
		if !formed("signed_manifest", `^[\w-]+\.[\w-]+\.[\w-]+$`)(h.answer) {
			return errorf("%s", h.answer.bytes())
		}
		return nil
	}},
	{"L3-SAFETY-006", "filtered", func(h heard) error {
		if err := isCritical("aaep:agent.session.errored")(h); err != nil {
			return err
		}
		return eachEvent(func(e object) bool {
			typ := e.text("type")
			return e.text("urgency") == "critical" || !strings.HasPrefix(typ, "aaep:agent.tool.") && !strings.HasPrefix(typ, "aaep:agent.session.")
		})(h)
	}},
	// The suite looks at five seconds, with a fifth more than was agreed. Other sessions use up the rate, too.
	{"L3-SAFETY-008", "rate", func(h heard) error {
		others := indexes(h, func(e object) bool { return e.text("urgency") != "critical" })
		if most := 1.2 * max(h.took, 5*time.Second).Seconds(); float64(len(others)) > most {
			return errorf("%d events that are not critical, at most %.0f agreed", len(others), most)
		}
		return isCritical("aaep:agent.session.errored")(h)
	}},
}

const (
	aaepSecret = "sk-never-repeat-this"
	aaepCity   = "Ljubljana"
)

var aaepReasons = []string{"version_unsupported", "manifest_signature_required", "capabilities_incompatible", "rate_limit", "authentication_required",
	"authorization_denied", "transport_unavailable", "unknown"}

func formed(member, form string) func(object) bool {
	re := regexp.MustCompile(form)
	return func(e object) bool { return re.MatchString(e.text(member)) }
}

func ofType(typ string) func(object) bool {
	return func(e object) bool { return e.text("type") == typ }
}

func ofTypes(h heard, typ string) (list []object) {
	for _, i := range indexes(h, ofType(typ)) {
		list = append(list, h.events[i])
	}
	return list
}

func indexes(h heard, is func(object) bool) (list []int) {
	for i, e := range h.events {
		if is(e) {
			list = append(list, i)
		}
	}
	return list
}

func eachEvent(holds func(object) bool) func(heard) error {
	return func(h heard) error {
		for _, e := range h.events {
			if !holds(e) {
				return errorf("%s", e.bytes())
			}
		}
		return countOf("events", atLeast(1), func(object) bool { return true })(h)
	}
}

// eachOf holds of every event of a type, of which there is one.
func eachOf(typ string, holds func(object) bool) func(heard) error {
	return func(h heard) error { return eachEvent(holds)(heard{events: ofTypes(h, typ)}) }
}

func isCritical(typ string) func(heard) error {
	return eachOf(typ, func(e object) bool { return e.text("urgency") == "critical" })
}

func atLeast(n int) func(int) bool { return func(got int) bool { return got >= n } }
func exactly(n int) func(int) bool { return func(got int) bool { return got == n } }

func countOf(what string, enough func(int) bool, is func(object) bool) func(heard) error {
	return func(h heard) error {
		if n := len(indexes(h, is)); !enough(n) {
			return errorf("%d %s", n, what)
		}
		return nil
	}
}

func hasMembers(o object, names ...string) error {
	for _, n := range names {
		if o[n] == nil {
			return errorf("%s is missing in %s", n, o.bytes())
		}
	}
	return nil
}

func invokedFirst(h heard) error {
	seen := map[string]bool{}
	for _, e := range h.events {
		switch e.text("type") {
		case typeInvoked:
			seen[e.text("tool_call_id")] = true
		case typeCompleted:
			if !seen[e.text("tool_call_id")] {
				return errorf("%s ends before it begins", e.text("tool_call_id"))
			}
		}
	}
	return nil
}

func onePair(h heard) error {
	begun, ended := map[string]int{}, map[string]int{}
	for _, e := range ofTypes(h, typeInvoked) {
		begun[e.text("tool_call_id")]++
	}
	for _, e := range ofTypes(h, typeCompleted) {
		ended[e.text("tool_call_id")]++
	}
	for id, n := range begun {
		if id == "" || n != 1 {
			return errorf("%q begins %d times", id, n)
		}
	}
	if len(begun) == 0 || !maps.Equal(begun, ended) {
		return errorf("begun %v, ended %v", begun, ended)
	}
	return nil
}

func sameTool(h heard) error {
	names := map[string]string{}
	for _, e := range h.events {
		switch id := e.text("tool_call_id"); {
		case e.text("type") == typeInvoked:
			names[id] = e.text("tool")
		case e.text("type") == typeCompleted && names[id] != e.text("tool"):
			return errorf("%s begins as %s and ends as %s", id, names[id], e.text("tool"))
		}
	}
	return nil
}

func positionsGrow(h heard) error {
	last := -1.0
	for _, e := range ofTypes(h, typeStreaming) {
		position, is := e["position"].(float64)
		if !is || position <= last {
			return errorf("position %v after %v", e["position"], last)
		}
		last = position
	}
	if last <= 0 {
		return errorf("no output of several chunks")
	}
	return nil
}

func isRejected(h heard, reasons ...string) error {
	if h.answer.text("type") != "subscription.rejected" || h.answer.text("reason_message") == "" || !slices.Contains(reasons, h.answer.text("reason_code")) {
		return errorf("%s", h.answer.bytes())
	}
	return nil
}

// notMore holds if nothing was honoured beyond what was asked for.
func notMore(h heard) error {
	if h.answer.text("type") != "subscription.accepted" {
		return errorf("%s", h.answer.bytes())
	}
	asked, honored := h.request["capabilities"].(object), object(h.answer["honored_capabilities"].(map[string]any))
	rate := func(o object) float64 { return numberOf(o["max_events_per_second"]) }
	if most := rate(asked); most > 0 && (rate(honored) == 0 || rate(honored) > most) {
		return errorf("a rate of %v, asked for %v", rate(honored), most)
	}
	for _, name := range []string{"supports_confirmation_reply", "supports_clarification_reply"} {
		if asked[name] != true && honored[name] == true {
			return errorf("%s was not asked for", name)
		}
	}
	for _, name := range []string{"languages", "coalesce_boundaries", "supported_conformance_levels", "supported_extensions"} {
		given, _ := honored[name].([]any)
		for _, v := range given {
			if !strings.Contains(string(object{"": asked[name]}.bytes()), fmt.Sprintf("%v", v)) {
				return errorf("%s: %v was not asked for", name, v)
			}
		}
	}
	if asked["accept_signed_manifests_only"] == true && honored["accept_signed_manifests_only"] != true {
		return errorf("signed manifests were asked for")
	}
	return nil
}

func numberOf(v any) float64 {
	switch n := v.(type) {
	case int:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// Every check can fail.
func TestAAEPChecksCanFail(t *testing.T) {
	for _, c := range aaepChecks {
		broken := []heard{
			{}, // nothing was heard
			{answer: object{"type": "subscription.accepted", "honored_capabilities": map[string]any{"max_events_per_second": 9.0, "supports_confirmation_reply": true, "languages": []any{"xx"}}},
				request: object{"capabilities": object{"max_events_per_second": 1}}},
			{events: brokenSession(), replies: []object{{}, {}}, answer: object{}, request: object{"capabilities": object{}}},
		}
		if !slices.ContainsFunc(broken, func(h heard) bool { return c.check(h) != nil }) {
			t.Errorf("%s finds nothing wrong", c.id)
		}
	}
}

// brokenSession breaks what a session must keep to.
func brokenSession() []object {
	e := func(typ string, members object) object {
		return aaepEvent("s", typ, members).with("urgency", "normal").with("tool_call_id", members["id"])
	}
	return []object{
		e("tool.completed", object{"id": "a", "tool": "x", "status": "fine"}), e("tool.invoked", object{"id": "a", "tool": "y", "irreversible": true}), e("tool.invoked", object{"id": "a"}),
		e("tool.completed", object{"id": "a", "tool": "z"}), e("awaiting.confirmation", object{}),
		e("output.streaming", object{"position": 3.0, "complete": true, "coalesce_hint": "?", "content_type": "?"}), e("output.streaming", object{"position": 1.0, "chunk": aaepSecret}),
		e("session.completed", nil), e("session.errored", nil), {"type": typeStarted},
	}
}
