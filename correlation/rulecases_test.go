package correlation

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

type ruleCase struct {
	name  string
	play  func(l *ledger)
	want  []string         // the findings, as "rule/severity"
	keeps []string         // the rules that it nearly breaks: there is not even a hint of them
	state events.CallState // of the only call; "" if there are several
}

// breaks are the rules that a case breaks.
func (c ruleCase) breaks() (rules []string) {
	for _, w := range c.want {
		rule, _, _ := strings.Cut(w, "/")
		rules = append(rules, rule)
	}
	return rules
}

var (
	otherArgs = set(post(2), "metadata.tool_input_executed.amount", 999)
	denied    = set(post(2), "metadata.execution.outcome", "denied")
)

// ruleCases are our rules, each broken and, beside it, what is close to breaking
// it. They are to our rules what the corpus is to the checks: TestCoverage reads
// of them which rules are covered.
var ruleCases = []ruleCase{
	{"allowed and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.at(2).event(post(2))
	}, nil, []string{ExecutedWithoutVerdict, OrphanCompletion, ForgedRecord}, events.CallCompleted},
	{"denied and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"denied and failing", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(2).event(set(post(2), "metadata.execution.outcome", "failed"))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"denied and reported as denied", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(denied)
	}, nil, []string{ExecutedDespiteDeny}, events.CallDenied},
	{"denied, cancelled after it began", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(post(2), "metadata.execution.outcome", "cancelled"))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"denied, timed out after it began", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(post(2), "metadata.execution.outcome", "timed_out"))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"never asked, timed out after it began", func(l *ledger) {
		l.event(pre(1))
		l.at(2).event(set(post(2), "metadata.execution.outcome", "timed_out"))
	}, []string{noVerdict}, nil, events.CallFailed},
	{"allowed, timed out after it began with other arguments", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.at(2).event(set(set(post(2), "metadata.execution.outcome", "timed_out"), "metadata.tool_input_executed", tree{"invoice": "B-1"}))
	}, []string{driftHigh}, nil, events.CallFailed},
	{"denied, cancelled, with arguments that ran and no start", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(set(post(2), "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"denied, and cancelled before it began", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(set(set(post(2), "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil), "metadata.tool_input_executed", tree{}))
	}, nil, []string{ExecutedDespiteDeny}, events.CallFailed},
	{"denied and left alone", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(4000).tick()
	}, nil, []string{ExecutedDespiteDeny, MissingCompletion}, events.CallDenied},
	{"denied with other arguments than an open call of the id, and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		other := set(pre(3), "tool_input.amount", 5)
		l.admit(other, "d2", events.Allow)
		l.at(2).event(post(2))
		l.event(set(post(4), "metadata.tool_input_executed.amount", 5))
	}, []string{despiteDeny}, nil, ""},
	{"denied, asked again, and run before the answer", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.request(pre(1), "d2")
		l.at(2).event(post(2))
		l.decide(pre(1), "d2", events.Allow)
	}, []string{despiteDeny, afterTheFact}, nil, ""},
	{"denied, asked again, allowed, and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(0.5).admit(pre(1), "d2", events.Allow)
		l.event(pre(1))
		l.at(2).event(post(2))
	}, nil, []string{ExecutedDespiteDeny}, ""},
	{"denied and tried under another id", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(retry(pre(3)))
		l.at(2).event(set(post(2), "metadata.tool_call_id", "c2"))
	}, []string{despiteDeny}, nil, ""},
	{"denied, run, and run again under a new announcement", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(2).event(post(2))
		for i := range 12 {
			l.event(pre(10 + i))
			l.event(post(30 + i))
		}
	}, slices.Repeat([]string{despiteDeny}, 13), nil, ""},
	{"allowed, tried under another id with the same arguments", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(retry(pre(3)))
		l.at(2).event(set(post(2), "metadata.tool_call_id", "c2"))
	}, nil, []string{ExecutedWithoutVerdict}, ""},
	{"allowed, tried under another id with other arguments", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(retry(set(pre(3), "tool_input.amount", 5)))
		l.at(2).event(set(set(post(2), "metadata.tool_call_id", "c2"), "metadata.tool_input_executed.amount", 5))
	}, []string{noVerdict}, nil, ""},
	{"asked and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Ask)
		l.at(2).event(post(2))
	}, []string{askPending}, nil, events.CallCompleted},
	{"deferred and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Defer)
		l.at(2).event(post(2))
	}, []string{askPending}, nil, events.CallCompleted},
	{"asked and run on an approval that only the publisher knows", func(l *ledger) {
		l.admit(pre(1), "d1", events.Ask)
		l.at(2).event(set(post(2), "metadata.approval", tree{"required": true, "status": "approved"}))
	}, []string{askPending}, nil, events.CallCompleted},
	{"asked, then allowed, and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Ask)
		l.at(0.5).admit(pre(1), "d2", events.Allow)
		l.at(2).event(post(2))
	}, nil, []string{ExecutedWhileAskPending}, events.CallCompleted},
	{"asked, run, and allowed afterwards", func(l *ledger) {
		l.admit(pre(1), "d1", events.Ask)
		l.request(pre(1), "d2")
		l.at(2).event(post(2))
		l.decide(pre(1), "d2", events.Allow)
	}, []string{askPending}, nil, ""},
	{"allowed, then denied, and run", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.admit(pre(1), "d2", events.Deny)
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"never asked", func(l *ledger) {
		l.event(pre(1))
		l.at(2).event(post(2))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"never asked, and no verdict required", func(l *ledger) {
		l.opts.RequireVerdict = false
		l.event(pre(1))
		l.at(2).event(post(2))
	}, nil, []string{ExecutedWithoutVerdict}, events.CallCompleted},
	{"never asked, claiming an allow", func(l *ledger) {
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
		l.at(2).event(post(2))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"asked, no verdict, and the fail mode let it pass", func(l *ledger) {
		l.request(pre(1), "d1")
		l.event(pre(1))
		l.event(failMode("allow"))
		l.at(2).event(post(2))
	}, nil, nil, events.CallCompleted},
	{"never asked, and it claims that the fail mode let it pass", func(l *ledger) {
		l.event(pre(1))
		l.event(failMode("allow"))
		l.at(2).event(post(2))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"never asked, and it claims so when it had run", func(l *ledger) {
		l.event(pre(1))
		l.at(2).event(post(2))
		l.at(3).event(failMode("allow"))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"the fail mode denied, and it ran", func(l *ledger) {
		l.event(pre(1))
		l.event(failMode("deny"))
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"claims a denial of another gate, and runs", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "deny"}))
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"claims a looser verdict than the recorded one", func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
		l.at(2).event(post(2))
	}, []string{despiteDeny, forged}, nil, events.CallCompleted},
	{"after expiry, as it says itself", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(120).event(set(post(2), "metadata.execution.started_at", stamp(100)))
	}, []string{afterExpiry}, nil, events.CallCompleted},
	{"reported after expiry, started before", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(120).event(set(post(2), "metadata.execution.started_at", stamp(30)))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"after expiry by its report", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(120).event(set(post(2), "metadata.execution.started_at", nil))
	}, []string{afterExpiry}, nil, events.CallCompleted},
	{"started in the future", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(20).event(set(post(2), "metadata.execution.started_at", stamp(5000)))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"started before the verdict", func(l *ledger) {
		l.at(10).admit(pre(1), "d1", events.Allow)
		l.at(12).event(set(post(2), "metadata.execution.started_at", stamp(5)))
	}, []string{beforeIt}, nil, events.CallCompleted},
	{"started before the verdict by less than clocks differ", func(l *ledger) {
		l.at(10).admit(pre(1), "d1", events.Allow)
		l.at(12).event(set(post(2), "metadata.execution.started_at", stamp(9.5)))
	}, nil, []string{ExecutedBeforeVerdict}, events.CallCompleted},
	{"run with other arguments", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(otherArgs)
	}, []string{driftHigh}, nil, events.CallCompleted},
	{"run with other arguments than a receipt was bound to", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow, receipted)
		l.at(2).event(otherArgs)
	}, []string{driftReceipt}, nil, events.CallCompleted},
	{"run with other arguments than a receipt was bound to, with a reason", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow, receipted)
		l.at(2).event(set(otherArgs, "metadata.execution.mutation_reason", "rounding"))
	}, []string{driftReason}, nil, events.CallCompleted},
	{"run with other arguments than a receipt was bound to, and a blank for a reason", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow, receipted)
		l.at(2).event(set(otherArgs, "metadata.execution.mutation_reason", " "))
	}, []string{driftReceipt}, nil, events.CallCompleted},
	{"run with other arguments and a reason", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(set(otherArgs, "metadata.execution.mutation_reason", "rounding"))
	}, []string{driftReason}, nil, events.CallCompleted},
	{"run with other arguments than were announced", func(l *ledger) {
		l.opts.RequireVerdict = false
		l.event(pre(1))
		l.at(2).event(otherArgs)
	}, []string{driftHigh}, nil, events.CallCompleted},
	{"arguments of the same value in other words", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		body := strings.Replace(string(encode(post(2))), `"amount":120`, `"amount": 1.2e2`, 1)
		l.at(2).put(space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), nil, []byte(body))
	}, nil, []string{InputDrift}, events.CallCompleted},
	{"arguments that appear out of nothing", func(l *ledger) {
		bare := set(pre(1), "tool_input", nil)
		l.request(bare, "d1")
		l.at(2).event(post(2))
	}, []string{driftHigh, noVerdict}, nil, events.CallCompleted},
	{"another tool than was admitted", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(set(post(2), "tool_name", "Pay_invoice"))
	}, []string{driftHigh}, nil, events.CallCompleted},
	{"never completed", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(4000).tick()
	}, []string{missingHook}, nil, events.CallAbandoned},
	{"not completed by the end of its session", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(set(set(hook(9, "SessionEnd", 5), "tool_name", nil), "metadata", nil))
	}, []string{missingHook}, nil, events.CallAbandoned},
	{"completed after it was given up", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(4000).tick()
		l.event(post(2))
	}, []string{missingHook}, nil, events.CallCompleted},
	{"ended by an error", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(hook(5, "ErrorOccurred", 1))
		l.at(4000).tick()
	}, nil, []string{MissingCompletion}, events.CallFailed},
	{"blocked", func(l *ledger) {
		l.admit(pre(1), "d1", events.Ask)
		l.event(hook(5, "ToolUseBlocked", 1))
		l.event(denied)
	}, nil, []string{ExecutedWhileAskPending, MissingCompletion}, events.CallDenied},
	{"completed without a beginning", func(l *ledger) { l.at(2).event(post(2)) }, []string{orphan}, nil, events.CallOrphaned},
	{"completed twice", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(post(2))
		l.event(post(3))
	}, []string{orphan}, nil, ""},
	{"completed by two contents of one event", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(post(2))
		l.event(set(post(2), "metadata.execution.outcome", "failed"))
	}, []string{conflicting}, nil, events.CallCompleted},
	{"denied before the request is in the log", func(l *ledger) {
		l.decide(pre(1), "d1", events.Deny)
		l.request(pre(1), "")
	}, nil, nil, events.CallDenied},
	{"denied after it was given up", func(l *ledger) {
		l.request(pre(1), "d1")
		l.at(4000).tick()
		l.decide(pre(1), "d1", events.Deny)
	}, []string{missingHook}, nil, events.CallDenied},
	{"the session of calls without one does not end", func(l *ledger) {
		l.event(set(pre(1), "session_id", nil))
		l.event(set(set(set(hook(9, "SessionEnd", 5), "tool_name", nil), "metadata", nil), "session_id", nil))
	}, nil, []string{MissingCompletion}, events.CallOpen},
	{"completed under the id of the call it tries again", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		p := set(set(post(2), "metadata.tool_call_id", "c2"), "metadata.retry", tree{"previous_tool_call_id": "c1"})
		l.at(2).event(p)
	}, nil, []string{OrphanCompletion, SchemaInvalid}, events.CallCompleted},
	{"completed with no id but that of the call it tries again", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		p := set(set(post(2), "metadata.tool_call_id", nil), "metadata.retry", tree{"previous_tool_call_id": "c1"})
		l.at(2).event(p)
	}, []string{schema}, nil, events.CallCompleted},
	{"the same id for other arguments while open", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		other := set(pre(3), "tool_input.amount", 5)
		l.admit(other, "d2", events.Allow)
		l.at(2).event(post(2))
		l.event(set(post(4), "metadata.tool_input_executed.amount", 5))
	}, []string{reused}, nil, ""},
	{"the same id again when it is free", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(post(2))
		other := set(pre(3), "tool_input.amount", 5)
		l.admit(other, "d2", events.Allow)
		l.event(set(set(post(4), "metadata.tool_input_executed.amount", 5), "metadata.execution.started_at", nil))
	}, nil, []string{ReusedToolCallID}, ""},
	{"an event id with two contents", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.event(set(pre(1), "action", "delete"))
		l.at(2).event(post(2))
	}, []string{conflicting}, nil, events.CallCompleted},
	{"a request and an event that differ under one id", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(set(pre(1), "tool_input.amount", 5))
		l.at(2).event(set(post(2), "metadata.tool_input_executed.amount", 5))
	}, []string{conflicting, driftHigh}, nil, events.CallCompleted},
	{"request form and evidence form of one event", func(l *ledger) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
		l.at(2).event(post(2))
	}, nil, []string{DuplicateEventConflict, ForgedRecord}, events.CallCompleted},
	{"allowed by somebody who is no admitter", func(l *ledger) {
		l.request(pre(1), "d1")
		l.signed(decisionOn(pre(1), "d1", events.Allow, l.now), stranger)
		l.at(2).event(post(2))
	}, []string{forged, noVerdict}, nil, events.CallCompleted},
}
