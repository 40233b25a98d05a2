package checks

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// confirmationChecks are the checks of questions and answers, 2.F, and 2.G.
var confirmationChecks = []catalogue.Check{
	specification.Check("100", "4.3.1, 6.1, A.8.4", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "questions, replies, invocations; binding by extensions.countersign.tool_call_id, extra_context.tool_call_id, else the latest accepted question", "Something irreversible was invoked that the user had not accepted.", fixConfirm),
	specification.Check("101", "2.3.5", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "questions, replies, invocations", "Something of high risk was invoked that the user had not accepted.", fixConfirm),
	specification.Check("102", "6.3.4", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "questions, replies, invocations", "One acceptance was used for a second invocation.", fixConfirm),
	specification.Check("103", "6.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "questions, replies, invocations and completions; leaving awaiting_input withdraws the agent's questions, unless it is the notice of one that was resolved, and authorises nothing", "The action went on while the user was still being asked.", fixConfirm),
	specification.Check("104", "6.1, 6.4, A.8.5", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "questions, replies, invocations, event time and broker time (the broker's decides, but for 10 seconds)", "The action was taken although it had been rejected.", fixConfirm),
	specification.Check("105", "6.4, 6.3.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "questions, replies, invocations, event time and broker time (the broker's decides, but for 10 seconds); a call that the question names is early until the question's time is over", "The default was acted on before its time, or an answer that came after it.", fixConfirm),
	specification.Check("106", "6.1, 4.5.3, 9.4.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "Nothing followed a rejection that would show it was taken note of.", fixConfirm),
	specification.Check("107", "4.5.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "whole session", "The user accepted an action, and the session ended without it.", fixConfirm),
	specification.Check("108", "6.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "questions", "The user is asked again about an action while the first question is still open.", fixConfirm),
	specification.Check("109", "6.8", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "questions, replies, invocations; a hint unless it was acted on", "An answer came after its question had been withdrawn.", fixReply),
	specification.Check("110", "6.3.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "questions and replies of the publisher, and of others that asked under its token; a hint if these did, or if another subscriber was first", "A reply is to no question that is open.", fixReply),
	specification.Check("111", "6.3.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "question and reply, event time and broker time (the broker's decides, but for 10 seconds; a reply that is only dated wrong counts)", "A reply came when its time was over, or before its question.", fixReply),
	specification.Check("112", "6.3.4, 6.2.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "replies of the tenant, and subscriptions as far as they are published: one replies through two publishers, after it was closed, or although it was accepted as one that does not reply", "A reply came from where none may come from.", fixReply),
	specification.Check("113", "6.3.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "question and reply", "A reply is none of those that its question allows.", fixReply),
	specification.Check("114", "6.3.4", catalogue.Must, events.SeverityInfo, catalogue.ScopeSession, "questions, replies, invocations; a hint beside AAEP-C-105, C-109 or C-115, which say what was done on it; what the sender of a reply was told is between the two", "A reply that failed was not ignored, or its sender was told why it failed.", fixReply),
	specification.Check("115", "6.3.5, 5.9, 6.7.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "question, replies, invocations", "A later answer was acted on although an earlier one counts.", fixReply),
	specification.Undecidable("116", "6.3.2", catalogue.Must, catalogue.ScopeSession, "reply, producer", "A changed action was taken for a plain yes.", "No message says whether a producer supports changed actions, and what it did afterwards is in words (args_summary)."),
	specification.Check("117", "6.5.5", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "question and reply", "An answer is of a kind, or a choice, that was not offered.", fixReply),
	specification.Check("118", "4.4.1, 9.4.2, 10.1.3", catalogue.Must, events.SeverityInfo, catalogue.ScopeSession, "reply; that the user allowed it is nowhere on the log", "A program answered for the user.", "Check that the user wanted this answer to be given for them, and keep the proof."),
	specification.Check("119", "10.2", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "question and invocation; of high severity if the user was told of less than it is", "What was invoked is described as less, as more, or as another tool than what the user accepted.", fixConfirm),
	specification.Undecidable("120", "5.8.2, 8.2.5", catalogue.Must, catalogue.ScopeEndpoint, "subscriptions", "A question stayed open although no subscription was left that could answer.", "A producer may have subscriptions that are not published. A reply on a closed one is AAEP-C-112, a default that acts too early C-105."),
	specification.Check("121", "6.7.2, 5.9", catalogue.Should, events.SeverityLow, catalogue.ScopeSession, "events in order", "A question was answered, and nothing told the others so before the session ended.", fixConfirm),
	specification.Check("122", "6.4.3", catalogue.Should, events.SeverityInfo, catalogue.ScopeSession, "events in order, event time", "A long wait for an answer came without a countdown.", "Send progress at about half and a tenth of the time left."),
	specification.Check("123", "A.4", catalogue.Must, events.SeverityInfo, catalogue.ScopeSession, "events in order, a session that acts after an answer and ends in awaiting_input included; said once a session", "A question was asked or answered without the change of state that goes with it.", fixStates),
	specification.Check("124", "6.8", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "whole session", "The session ended with a question still open.", fixConfirm),
	specification.Undecidable("125", "10.2", catalogue.Should, catalogue.ScopeEndpoint, "own logs", "Attempts to reply are not on record.", "Only a published reply is known. Each that does not count is a finding (AAEP-C-109 to C-113, C-117)."),
}
