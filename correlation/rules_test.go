package correlation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

const (
	despiteDeny  = "executed_despite_deny/critical"
	askPending   = "executed_while_ask_pending/high"
	noVerdict    = "executed_without_verdict/high"
	afterExpiry  = "executed_after_expiry/high"
	afterExpiry0 = "executed_after_expiry/low" // nothing says when it began
	beforeIt     = "executed_before_verdict/medium"
	afterTheFact = "executed_before_verdict/high"
	missingHook  = "missing_completion/medium"
	missingAAEP  = "missing_completion/high"
	orphan       = "orphan_completion/high"
	schema       = "schema_invalid/medium"
	reused       = "reused_tool_call_id/high"
	forged       = "forged_record/critical"
	conflicting  = "duplicate_event_conflict/medium"
	driftHigh    = "input_drift/high"
	driftReason  = "input_drift/medium"
	driftReceipt = "input_drift/critical"
)

// TestRules: every case of ruleCases.
func TestRules(t *testing.T) {
	for _, tc := range ruleCases {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			tc.play(l)
			r := l.run()
			wantRules(t, r.findings, tc.want...)
			for _, f := range r.findings {
				if slices.Contains(tc.keeps, f.Rule) {
					t.Errorf("%s is found, as %s: %s", f.Rule, f.Severity, f.Explanation)
				}
			}
			if tc.state != "" {
				if got := r.only(t); got.State != tc.state {
					t.Errorf("state %s, want %s", got.State, tc.state)
				}
			}
		})
	}
}

// endOnly is a completion at a time, with one member of its metadata and no start.
func endOnly(at float64, member string, value any) tree {
	e := set(set(post(2), "timestamp", stamp(at)), "metadata.execution", tree{"outcome": "succeeded"})
	return set(e, "metadata."+member, value)
}

// retry is an event under id c2 that tries c1 again.
func retry(e tree) tree {
	return set(set(e, "metadata.tool_call_id", "c2"), "metadata.retry", tree{"attempt": 2, "previous_tool_call_id": "c1"})
}

func failMode(outcome string) tree {
	e := hook(7, "ErrorOccurred", 0.5)
	return set(e, "metadata", tree{"tool_call_id": "c1", "error_type": "admission_fail_mode", "fail_mode_triggered": true, "outcome": outcome})
}

// TestForged: a decision counts only if an admitter signed it.
func TestForged(t *testing.T) {
	d := func(l *testLog) events.Decision { return decisionOn(pre(1), "d1", events.Allow, l.now) }
	body := func(l *testLog) []byte {
		b, err := events.Encode(d(l))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, play := range map[string]func(l *testLog){
		"no signature": func(l *testLog) { l.put(space.Decision("acme", "allow", "s1"), nil, body(l)) },
		"a stranger's": func(l *testLog) { l.signed(d(l), stranger) },
		"a key without a voucher": func(l *testLog) {
			l.key(stranger, "no")
			l.signed(d(l), stranger)
		},
		"another record's signature": func(l *testLog) {
			l.signed(decisionOn(pre(1), "d0", events.Deny, l.now), signer)
			last := l.msgs[len(l.msgs)-1]
			l.msgs = l.msgs[:len(l.msgs)-1]
			l.put(space.Decision("acme", "allow", "s1"), last.Header, body(l))
		},
		"under another tenant": func(l *testLog) {
			l.signed(d(l), signer)
			l.msgs[len(l.msgs)-1].Subject = space.Decision("other", "allow", "s1")
		},
		"under another verdict": func(l *testLog) {
			l.signed(d(l), signer)
			l.msgs[len(l.msgs)-1].Subject = space.Decision("acme", "deny", "s1")
		},
		"no record":            func(l *testLog) { l.put(space.Decision("acme", "allow", "s1"), nil, []byte(`{"verdict":"allow"`)) },
		"unknown fields":       func(l *testLog) { l.put(space.Decision("acme", "allow", "s1"), nil, []byte(`{"allow":true}`)) },
		"no such verdict":      func(l *testLog) { bad := d(l); bad.Verdict = "maybe"; l.signed(bad, signer) },
		"no trusted publisher": func(l *testLog) { l.opts.KeyVoucher = nil; l.signed(d(l), signer) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.request(pre(1), "d1")
			play(l)
			l.at(2).event(post(2))
			r := l.run()
			rules := r.rules()
			if len(rules) < 2 || rules[len(rules)-1] != forged || rules[0] != noVerdict {
				t.Fatalf("findings %v", rules)
			}
			if c := r.only(t); c.Verdict != "" || c.DecisionID != "" {
				t.Errorf("the call has a verdict: %+v", c)
			}
		})
	}
}

// TestClaimLooserThanRecord: an event cannot loosen a recorded ask.
func TestClaimLooserThanRecord(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Ask)
	l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
	l.admit(pre(1), "d2", events.Allow)
	l.at(2).event(post(2))
	wantRules(t, l.run().findings, forged)
}

// TestRedactedDrift: a redaction makes a comparison inconclusive, and only where
// it hides what differs.
func TestRedactedDrift(t *testing.T) {
	redaction := tree{"applied": true, "fields": []any{"tool_input.invoice"}}
	for _, tc := range []struct {
		name, match string
		post        tree
		want        []string
	}{
		{"the redacted field differs", matchInconclusive, set(set(post(2), "metadata.tool_input_executed.invoice", "***"), "metadata.redaction", redaction), nil},
		{"the redacted field is gone", matchInconclusive, set(set(post(2), "metadata.tool_input_executed.invoice", nil), "metadata.redaction", redaction), nil},
		{"another field differs too", matchDrift, set(set(set(post(2), "metadata.tool_input_executed.invoice", "***"), "metadata.redaction", redaction), "metadata.tool_input_executed.amount", 1), []string{driftHigh}},
		{"redaction is not applied", matchDrift, set(set(post(2), "metadata.tool_input_executed.invoice", "***"), "metadata.redaction", set(redaction, "applied", false)), []string{driftHigh}},
		{"redacted and the same", matchEqual, set(post(2), "metadata.redaction", redaction), nil},
		{"no arguments reported", matchInconclusive, set(post(2), "metadata.tool_input_executed", nil), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Allow)
			l.at(2).event(tc.post)
			r := l.run()
			wantRules(t, r.findings, tc.want...)
			if c := r.only(t); c.Match != tc.match {
				t.Errorf("match %q, want %q", c.Match, tc.match)
			}
		})
	}
}

// TestSchemaInvalid: a finding says what is wrong with a message, without its values.
func TestSchemaInvalid(t *testing.T) {
	const secret = "hunter2hunter2"
	subj := space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PreToolUse")
	for _, tc := range []struct{ name, subject, body, says string }{
		{"not JSON", subj, "{" + secret, "not_json"},
		{"duplicate key", subj, `{"event_id":"` + secret + `","event_id":"x"}`, "duplicate_key"},
		{"duplicate key of its own", subj, `{"` + secret + `":1,"` + secret + `":2}`, "duplicate_key"},
		{"cut off behind a key", subj, `{"tool_input":{"` + secret + `":`, "not_json"},
		{"long path", subj, string(encode(set(pre(1), strings.Repeat("x", 150)+secret, 1))), "at /…"}, // no part of a name
		{"wrong type", subj, strings.Replace(string(encode(pre(1))), `"tool_input":{`, `"tool_input":"`+secret+`","x":{`, 1), "at /tool_input"},
		{"missing field", subj, string(encode(set(pre(1), "timestamp", nil))), "missing property timestamp"},
		{"unknown key", subj, string(encode(set(pre(1), "traceparent", secret))), "at /traceparent"},
		{"bad event id", subj, string(encode(set(pre(1), "event_id", secret))), "at /event_id"},
		{"another session", space.Event("acme", "rt1", subject.ProtoAgentHook, "s2", "PreToolUse"), string(encode(pre(1))), "session"},
		{"another type", space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), string(encode(pre(1))), "event_type"},
		{"another protocol", space.Event("acme", "rt1", subject.ProtoAAEP, "s1", "PreToolUse"), string(encode(pre(1))), "missing property"},
		{"no such protocol", space.Event("acme", "rt1", "gossip", "s1", "PreToolUse"), string(encode(pre(1))), "protocol"},
		{"too few tokens", "gov.events.acme.rt1.agenthook", string(encode(pre(1))), "tokens"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.put(tc.subject, nil, []byte(tc.body))
			r := l.run()
			var texts []string
			for _, f := range r.findings {
				if f.Rule != SchemaInvalid || f.Severity != events.SeverityMedium || f.Tenant != "acme" {
					t.Errorf("finding %+v", f)
				}
				texts = append(texts, f.Explanation)
			}
			all := strings.Join(texts, "\n")
			if !strings.Contains(all, tc.says) || strings.Contains(all, secret) {
				t.Errorf("says %q, want %q and no values", all, tc.says)
			}
		})
	}
}

// TestCompletionOvertakenByTheEnd: a completion that its producer reported before the end of the
// session is not missing, though the end was stored first.
func TestCompletionOvertakenByTheEnd(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.event(wire(90, "session.started", 0, nil))
	l.event(invoked(1, "call_1"))
	l.event(wire(91, "session.completed", 5, nil))
	l.event(completed(2, "call_1", "success"))
	for _, rule := range standingRules(l.run()) {
		if rule == MissingCompletion || rule == "AAEP-C-081" || rule == "AAEP-C-063" {
			t.Errorf("%s stands", rule)
		}
	}
}

// TestAAEP: pairing in AAEP, and the sequences of appendix A that concern it.
func TestAAEP(t *testing.T) {
	start := wire(90, "session.started", 0, nil)
	end := wire(91, "session.completed", 5, nil)
	for _, tc := range []struct {
		name     string
		events   []tree
		want     []string
		inferred bool
	}{
		{"a pair", []tree{start, invoked(1, "call_1"), completed(2, "call_1", "success"), end}, nil, false},
		{"a failed pair", []tree{start, invoked(1, "call_1"), completed(2, "call_1", "error"), end}, nil, false},
		{"without ids", []tree{start, invoked(1, ""), completed(2, "", "success"), end}, nil, true},
		{"two without ids", []tree{start, invoked(1, ""), invoked(2, ""), completed(3, "", "success"), completed(4, "", "success"), end}, nil, true},
		{"id on one side", []tree{start, invoked(1, "call_1"), completed(2, "", "success"), end}, nil, true},
		{"id on the other side", []tree{start, invoked(1, ""), completed(2, "call_1", "success"), end}, nil, true},
		{"A.8.1: completed without invoked", []tree{start, completed(2, "call_1", "success"), end}, []string{orphan}, false},
		{"completed under another id", []tree{start, invoked(1, "call_1"), completed(2, "call_2", "success"), end}, []string{orphan, missingAAEP}, false},
		{"completed twice", []tree{start, invoked(1, "call_1"), completed(2, "call_1", "success"), completed(3, "call_1", "error"), end}, []string{orphan}, false},
		{"A.3: never completed", []tree{start, invoked(1, "call_1"), end}, []string{missingAAEP}, false},
		{"A.3: closed as timed out", []tree{start, invoked(1, "call_1"), completed(2, "call_1", "timeout"), end}, nil, false},
		{"A.8.3: completed after the end", []tree{start, invoked(1, "call_1"), end, set(completed(2, "call_1", "success"), "timestamp", stamp(6))}, []string{missingAAEP}, false},
		{"cancelled with a tool open", []tree{start, invoked(1, "call_1"), wire(92, "session.cancelled", 5, tree{"cancelled_by": "user"})}, []string{missingAAEP}, false},
		{"an id used twice", []tree{start, invoked(1, "call_1"), completed(2, "call_1", "success"), invoked(3, "call_1"), completed(4, "call_1", "success"), end}, []string{reused}, false},
		{"an id used twice at once", []tree{start, invoked(1, "call_1"), invoked(3, "call_1"), completed(2, "call_1", "success"), completed(4, "call_1", "success"), end}, []string{reused}, false},
		{"an event delivered twice", []tree{start, invoked(1, "call_1"), invoked(1, "call_1"), completed(2, "call_1", "success"), completed(2, "call_1", "success"), end}, nil, false},
		{"another tool completed", []tree{start, invoked(1, "call_1"), set(completed(2, "call_1", "success"), "tool", "erase"), end}, []string{driftHigh}, false},
		{"ids in another case", []tree{start, invoked(1, "call_a"), completed(2, "call_A", "success"), end}, []string{orphan, missingAAEP}, false},
		{"open at the end of the recording", []tree{start, invoked(1, "call_1")}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RequireVerdict = false
			var lines []any
			for _, e := range tc.events {
				l.event(e)
				lines = append(lines, e)
			}
			r := l.run()
			wantRules(t, r.findings, tc.want...)
			for _, c := range r.last() {
				if c.State == events.CallCompleted && c.Inferred != tc.inferred {
					t.Errorf("inferred %v: %+v", c.Inferred, c)
				}
			}
			wantRules(t, check(t, subject.ProtoAAEP, lines...), tc.want...)
		})
	}
}

// TestNamesTooLongForTheDecision: the denial of a request whose names the admitter left
// out of the record is of the call that the request names.
func TestNamesTooLongForTheDecision(t *testing.T) {
	long := strings.Repeat("x", 600)
	for name, named := range map[string]func(tree) tree{
		"call":          func(e tree) tree { return set(e, "metadata.tool_call_id", long) },
		"tool":          func(e tree) tree { return set(e, "tool_name", long) },
		"tool, no call": func(e tree) tree { return set(set(e, "tool_name", long), "metadata.tool_call_id", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(named(pre(1)), "d1", events.Deny, func(d *events.Decision) {
				if name == "call" {
					d.ToolCallID = ""
				} else {
					d.Tool = ""
				}
			})
			l.event(named(pre(1)))
			l.event(named(post(2)))
			r := l.run()
			wantRules(t, r.findings, despiteDeny)
			if c := r.only(t); c.DecisionID != "d1" {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestReceiptOfNothing: an execution whose header names a decision must name a recorded one.
func TestReceiptOfNothing(t *testing.T) {
	for _, tc := range []struct {
		name, header string
		want         []string
	}{
		{"its own", "d1", nil},
		{"none", "", nil},
		{"one that was never made", "d-invented", []string{"forged_record/high"}},
	} {
		for _, pair := range [][2]tree{{pre(1), set(post(2), "metadata.execution.started_at", nil)}, {invoked(1, "call_1"), completed(2, "call_1", "success")}} {
			t.Run(tc.name, func(t *testing.T) {
				l := newTestLog(t)
				l.admit(pair[0], "d1", events.Allow)
				l.event(pair[0])
				l.event(pair[1])
				if tc.header != "" {
					l.msgs[len(l.msgs)-1].Header = map[string][]string{events.HeaderDecisionID: {tc.header}}
				}
				wantRules(t, l.run().findings, tc.want...)
			})
		}
	}
}

// TestOtherSessionsSubject: an event counts for the session of the subject that it was
// published under, and settles no call of the session that its body names.
func TestOtherSessionsSubject(t *testing.T) {
	under := func(l *testLog, session string, e tree) {
		l.put(space.Event("acme", "rt1", subject.ProtoAgentHook, session, e["event_type"].(string)), nil, encode(e))
	}
	t.Run("its end", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		under(l, "s2", post(2))
		l.idle(4000)
		r := l.run()
		wantRules(t, r.findings, schema, orphan, missingHook)
		for _, f := range r.findings {
			if want := map[string]string{SchemaInvalid: "s2", OrphanCompletion: "s2", MissingCompletion: "s1"}[f.Rule]; f.Session != want {
				t.Errorf("%s is of session %q, want %q", f.Rule, f.Session, want)
			}
		}
	})
	t.Run("its announcement", func(t *testing.T) {
		l := newTestLog(t)
		under(l, "s2", pre(1))
		l.event(post(2))
		r := l.run()
		wantRules(t, r.findings, schema, orphan)
		if c := r.last()[0]; c.Session != "s2" || c.State != events.CallOpen {
			t.Errorf("%+v", c)
		}
	})
	t.Run("the number of one that is refused", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.RequireVerdict = false
		l.event(set(wire(1, "session.started", 0, nil), "sequence_number", 0))
		twice := `{"event_id":"evt_2",` + string(encode(set(invoked(2, "call_1"), "sequence_number", 1)))[1:]
		l.put(space.Event("acme", "rt1", subject.ProtoAAEP, "sess_9", "agent.tool.invoked"), nil, []byte(twice))
		l.event(set(wire(3, "session.completed", 1, nil), "sequence_number", 2))
		if r := l.run(); !slices.ContainsFunc(r.checks, func(f events.Finding) bool { return f.Rule == "AAEP-C-065" }) {
			t.Errorf("the gap in the session's numbers is not found: %+v", r.checks)
		}
	})
	t.Run("names that are stored as a hash, and none", func(t *testing.T) {
		for _, session := range []string{strings.Repeat("long-", 60), ""} {
			named := func(e tree) tree {
				if session == "" {
					return set(e, "session_id", nil)
				}
				return set(e, "session_id", session)
			}
			l := newTestLog(t)
			l.admit(named(pre(1)), "d1", events.Allow)
			l.event(named(pre(1)))
			l.event(named(set(post(2), "metadata.execution.started_at", nil)))
			for _, f := range l.run().findings {
				if f.Rule != SchemaInvalid || session != "" {
					t.Errorf("%q: %s: %s", session, f.Rule, f.Explanation)
				}
			}
		}
	})
}

// TestAAEPVerdicts: AAEP calls have verdicts without arguments.
func TestAAEPVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		v      events.Verdict
		status string
		after  float64
		want   []string
	}{
		{"allowed", events.Allow, "success", 2, nil},
		{"denied and run", events.Deny, "success", 2, []string{despiteDeny}},
		{"denied, invoked, and ended with an error", events.Deny, "error", 2, []string{despiteDeny}},
		{"denied, invoked, and timed out", events.Deny, "timeout", 2, []string{despiteDeny}},
		{"asked, and closed with an error", events.Ask, "error", 2, nil},
		{"asked and run", events.Ask, "success", 2, []string{askPending}},
		{"invoked after expiry", events.Allow, "success", 100, []string{afterExpiry}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(invoked(1, "call_1"), "d1", tc.v)
			l.at(tc.after).event(invoked(1, "call_1"))
			l.event(completed(2, "call_1", tc.status))
			wantRules(t, l.run().findings, tc.want...)
		})
	}
	t.Run("denied and closed without an invocation", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(invoked(1, "call_1"), "d1", events.Deny)
		l.at(2).event(completed(2, "call_1", "error"))
		wantRules(t, l.run().findings)
	})
	t.Run("invoked, denied, and closed with an error", func(t *testing.T) {
		l := newTestLog(t)
		l.event(invoked(1, "call_1"))
		l.admit(invoked(1, "call_1"), "d1", events.Deny)
		l.at(2).event(completed(2, "call_1", "timeout"))
		wantRules(t, l.run().findings, beforeIt)
	})
	t.Run("denied and invoked, the end first", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(invoked(1, "call_1"), "d1", events.Deny)
		l.at(3).event(completed(2, "call_1", "error"))
		l.event(invoked(1, "call_1"))
		wantRules(t, l.run().findings, despiteDeny)
	})
	t.Run("invoked in time, completed after expiry", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(invoked(1, "call_1"), "d1", events.Allow)
		l.event(invoked(1, "call_1"))
		l.at(300).event(completed(2, "call_1", "success"))
		wantRules(t, l.run().findings)
	})
	t.Run("asked for and never invoked", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(invoked(1, "call_1"), "d1", events.Allow)
		l.at(9000).tick()
		wantRules(t, l.run().findings)
	})
	t.Run("takes as long as it said", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.RequireVerdict = false
		l.event(set(invoked(1, "call_1"), "expected_duration_ms", int((time.Hour)/time.Millisecond)))
		l.at(3000).event(completed(2, "call_1", "success"))
		wantRules(t, l.run().findings)
	})
}

type ruleCase struct {
	name  string
	play  func(l *testLog)
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

// ruleCases are cases that break one of our rules, and cases that nearly do. They are for our
// rules what the corpus is for the checks: TestCoverage reads them.
var ruleCases = []ruleCase{
	{"allowed and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.at(2).event(post(2))
	}, nil, []string{ExecutedWithoutVerdict, OrphanCompletion, ForgedRecord}, events.CallCompleted},
	{"denied and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"denied and failing", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(2).event(set(post(2), "metadata.execution.outcome", "failed"))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"denied and reported as denied", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(denied)
	}, nil, []string{ExecutedDespiteDeny}, events.CallDenied},
	{"denied, cancelled after it began", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(post(2), "metadata.execution.outcome", "cancelled"))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"denied, timed out after it began", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(post(2), "metadata.execution.outcome", "timed_out"))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"never asked, timed out after it began", func(l *testLog) {
		l.event(pre(1))
		l.at(2).event(set(post(2), "metadata.execution.outcome", "timed_out"))
	}, []string{noVerdict}, nil, events.CallFailed},
	{"allowed, timed out after it began with other arguments", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.at(2).event(set(set(post(2), "metadata.execution.outcome", "timed_out"), "metadata.tool_input_executed", tree{"invoice": "B-1"}))
	}, []string{driftHigh}, nil, events.CallFailed},
	{"denied, cancelled, with arguments that ran and no start", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(set(post(2), "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil))
	}, []string{despiteDeny}, nil, events.CallFailed},
	{"denied, and cancelled before it began", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.at(2).event(set(set(set(post(2), "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil), "metadata.tool_input_executed", tree{}))
	}, nil, []string{ExecutedDespiteDeny}, events.CallFailed},
	{"denied and left alone", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(4000).tick()
	}, nil, []string{ExecutedDespiteDeny, MissingCompletion}, events.CallDenied},
	{"denied with other arguments than an open call of the id, and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		other := set(pre(3), "tool_input.amount", 5)
		l.admit(other, "d2", events.Allow)
		l.at(2).event(post(2))
		l.event(set(post(4), "metadata.tool_input_executed.amount", 5))
	}, []string{despiteDeny}, nil, ""},
	{"denied, asked again, and run before the answer", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.request(pre(1), "d2")
		l.at(2).event(post(2))
		l.decide(pre(1), "d2", events.Allow)
	}, []string{despiteDeny, afterTheFact}, nil, ""},
	{"denied, asked again, allowed, and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(0.5).admit(pre(1), "d2", events.Allow)
		l.event(pre(1))
		l.at(2).event(post(2))
	}, nil, []string{ExecutedDespiteDeny}, ""},
	{"denied and tried under another id", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(retry(pre(3)))
		l.at(2).event(set(post(2), "metadata.tool_call_id", "c2"))
	}, []string{despiteDeny}, nil, ""},
	{"denied, run, and run again under a new announcement", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.at(2).event(post(2))
		for i := range 12 {
			l.event(pre(10 + i))
			l.event(post(30 + i))
		}
	}, slices.Repeat([]string{despiteDeny}, 13), nil, ""},
	{"allowed, tried under another id with the same arguments", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(retry(pre(3)))
		l.at(2).event(set(post(2), "metadata.tool_call_id", "c2"))
	}, nil, []string{ExecutedWithoutVerdict}, ""},
	{"allowed, tried under another id with other arguments", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(retry(set(pre(3), "tool_input.amount", 5)))
		l.at(2).event(set(set(post(2), "metadata.tool_call_id", "c2"), "metadata.tool_input_executed.amount", 5))
	}, []string{noVerdict}, nil, ""},
	{"asked and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Ask)
		l.at(2).event(post(2))
	}, []string{askPending}, nil, events.CallCompleted},
	{"deferred and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Defer)
		l.at(2).event(post(2))
	}, []string{askPending}, nil, events.CallCompleted},
	{"asked and run on an approval that only the publisher knows", func(l *testLog) {
		l.admit(pre(1), "d1", events.Ask)
		l.at(2).event(set(post(2), "metadata.approval", tree{"required": true, "status": "approved"}))
	}, []string{askPending}, nil, events.CallCompleted},
	{"asked, then allowed, and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Ask)
		l.at(0.5).admit(pre(1), "d2", events.Allow)
		l.at(2).event(post(2))
	}, nil, []string{ExecutedWhileAskPending}, events.CallCompleted},
	{"asked, run, and allowed afterwards", func(l *testLog) {
		l.admit(pre(1), "d1", events.Ask)
		l.request(pre(1), "d2")
		l.at(2).event(post(2))
		l.decide(pre(1), "d2", events.Allow)
	}, []string{askPending}, nil, ""},
	{"allowed, then denied, and run", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.admit(pre(1), "d2", events.Deny)
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"never asked", func(l *testLog) {
		l.event(pre(1))
		l.at(2).event(post(2))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"never asked, and no verdict required", func(l *testLog) {
		l.opts.RequireVerdict = false
		l.event(pre(1))
		l.at(2).event(post(2))
	}, nil, []string{ExecutedWithoutVerdict}, events.CallCompleted},
	{"never asked, claiming an allow", func(l *testLog) {
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
		l.at(2).event(post(2))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"asked, no verdict, and the fail mode let it pass", func(l *testLog) {
		l.request(pre(1), "d1")
		l.event(pre(1))
		l.event(failMode("allow"))
		l.at(2).event(post(2))
	}, nil, nil, events.CallCompleted},
	{"never asked, and it claims that the fail mode let it pass", func(l *testLog) {
		l.event(pre(1))
		l.event(failMode("allow"))
		l.at(2).event(post(2))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"never asked, and it claims so when it had run", func(l *testLog) {
		l.event(pre(1))
		l.at(2).event(post(2))
		l.at(3).event(failMode("allow"))
	}, []string{noVerdict}, nil, events.CallCompleted},
	{"the fail mode denied, and it ran", func(l *testLog) {
		l.event(pre(1))
		l.event(failMode("deny"))
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"claims a denial of another gate, and runs", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "deny"}))
		l.at(2).event(post(2))
	}, []string{despiteDeny}, nil, events.CallCompleted},
	{"claims a looser verdict than the recorded one", func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
		l.at(2).event(post(2))
	}, []string{despiteDeny, forged}, nil, events.CallCompleted},
	{"after expiry, as it says itself", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(120).event(set(post(2), "metadata.execution.started_at", stamp(100)))
	}, []string{afterExpiry}, nil, events.CallCompleted},
	{"reported after expiry, started before", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(120).event(set(post(2), "metadata.execution.started_at", stamp(30)))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"reported after expiry, and nothing says when it began", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(310, "duration_ms", nil))
	}, []string{afterExpiry0}, nil, events.CallCompleted},
	{"ended after expiry, its duration says that it started before", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(310, "duration_ms", 299_000))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"ended after expiry, its duration says that it started after", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(310, "duration_ms", 200_000))
	}, []string{afterExpiry}, nil, events.CallCompleted},
	{"ended after expiry, and took no time", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(310, "duration_ms", 0))
	}, []string{afterExpiry}, nil, events.CallCompleted},
	{"ended after expiry, and took no time, reported before its announcement", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(set(endOnly(310, "duration_ms", 0), "metadata.tool_call_id", "c2"))
		l.at(321).event(retry(pre(3)))
	}, []string{orphan, afterExpiry}, nil, ""},
	{"ended before expiry, reported after, and before its announcement", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(set(endOnly(30, "duration_ms", nil), "metadata.tool_call_id", "c2"))
		l.at(321).event(retry(pre(3)))
	}, []string{orphan}, []string{ExecutedAfterExpiry}, ""},
	{"ended after expiry, of a duration beyond all bounds", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(310, "duration_ms", 9_000_000_000_000_000))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"its execution says when it ended and how long it took", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(400).event(endOnly(390, "execution", tree{"outcome": "succeeded", "completed_at": stamp(310), "duration_ms": 299_000}))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"ended before expiry, reported after", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(30, "duration_ms", nil))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"a long run by a clock that is ahead", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(320).event(endOnly(5000, "duration_ms", 299_000))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"started in the future", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(20).event(set(post(2), "metadata.execution.started_at", stamp(5000)))
	}, nil, []string{ExecutedAfterExpiry}, events.CallCompleted},
	{"started before the verdict", func(l *testLog) {
		l.at(10).admit(pre(1), "d1", events.Allow)
		l.at(12).event(set(post(2), "metadata.execution.started_at", stamp(5)))
	}, []string{beforeIt}, nil, events.CallCompleted},
	{"started before the verdict by less than clocks differ", func(l *testLog) {
		l.at(10).admit(pre(1), "d1", events.Allow)
		l.at(12).event(set(post(2), "metadata.execution.started_at", stamp(9.5)))
	}, nil, []string{ExecutedBeforeVerdict}, events.CallCompleted},
	{"run with other arguments", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(otherArgs)
	}, []string{driftHigh}, nil, events.CallCompleted},
	{"run with other arguments than a receipt was bound to", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow, receipted)
		l.at(2).event(otherArgs)
	}, []string{driftReceipt}, nil, events.CallCompleted},
	{"run with other arguments than a receipt was bound to, with a reason", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow, receipted)
		l.at(2).event(set(otherArgs, "metadata.execution.mutation_reason", "rounding"))
	}, []string{driftReason}, nil, events.CallCompleted},
	{"run with other arguments than a receipt was bound to, and a blank for a reason", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow, receipted)
		l.at(2).event(set(otherArgs, "metadata.execution.mutation_reason", " "))
	}, []string{driftReceipt}, nil, events.CallCompleted},
	{"run with other arguments and a reason", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(set(otherArgs, "metadata.execution.mutation_reason", "rounding"))
	}, []string{driftReason}, nil, events.CallCompleted},
	{"run with other arguments than were announced", func(l *testLog) {
		l.opts.RequireVerdict = false
		l.event(pre(1))
		l.at(2).event(otherArgs)
	}, []string{driftHigh}, nil, events.CallCompleted},
	{"arguments of the same value in other words", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		body := strings.Replace(string(encode(post(2))), `"amount":120`, `"amount": 1.2e2`, 1)
		l.at(2).put(space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), nil, []byte(body))
	}, nil, []string{InputDrift}, events.CallCompleted},
	{"arguments that appear out of nothing", func(l *testLog) {
		bare := set(pre(1), "tool_input", nil)
		l.request(bare, "d1")
		l.at(2).event(post(2))
	}, []string{driftHigh, noVerdict}, nil, events.CallCompleted},
	{"another tool than was admitted", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(set(post(2), "tool_name", "Pay_invoice"))
	}, []string{driftHigh}, nil, events.CallCompleted},
	{"never completed", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(4000).tick()
	}, []string{missingHook}, nil, events.CallAbandoned},
	{"not completed by the end of its session", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(set(set(hook(9, "SessionEnd", 5), "tool_name", nil), "metadata", nil))
	}, []string{missingHook}, nil, events.CallAbandoned},
	{"completed after it was given up", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(4000).tick()
		l.event(post(2))
	}, []string{missingHook}, nil, events.CallCompleted},
	{"ended by an error", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(hook(5, "ErrorOccurred", 1))
		l.at(4000).tick()
	}, nil, []string{MissingCompletion}, events.CallFailed},
	{"blocked", func(l *testLog) {
		l.admit(pre(1), "d1", events.Ask)
		l.event(hook(5, "ToolUseBlocked", 1))
		l.event(denied)
	}, nil, []string{ExecutedWhileAskPending, MissingCompletion}, events.CallDenied},
	{"completed without a beginning", func(l *testLog) { l.at(2).event(post(2)) }, []string{orphan}, nil, events.CallOrphaned},
	{"completed twice", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(post(2))
		l.event(post(3))
	}, []string{orphan}, nil, ""},
	{"completed by two contents of one event", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(post(2))
		l.event(set(post(2), "metadata.execution.outcome", "failed"))
	}, []string{conflicting}, nil, events.CallCompleted},
	{"denied before the request is in the log", func(l *testLog) {
		l.decide(pre(1), "d1", events.Deny)
		l.request(pre(1), "")
	}, nil, nil, events.CallDenied},
	{"denied after it was given up", func(l *testLog) {
		l.request(pre(1), "d1")
		l.at(4000).tick()
		l.decide(pre(1), "d1", events.Deny)
	}, []string{missingHook}, nil, events.CallDenied},
	{"the session of calls without one does not end", func(l *testLog) {
		l.event(set(pre(1), "session_id", nil))
		l.event(set(set(set(hook(9, "SessionEnd", 5), "tool_name", nil), "metadata", nil), "session_id", nil))
	}, nil, []string{MissingCompletion}, events.CallOpen},
	{"completed under the id of the call it tries again", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		p := set(set(post(2), "metadata.tool_call_id", "c2"), "metadata.retry", tree{"previous_tool_call_id": "c1"})
		l.at(2).event(p)
	}, nil, []string{OrphanCompletion, SchemaInvalid}, events.CallCompleted},
	{"completed with no id but that of the call it tries again", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		p := set(set(post(2), "metadata.tool_call_id", nil), "metadata.retry", tree{"previous_tool_call_id": "c1"})
		l.at(2).event(p)
	}, []string{schema}, nil, events.CallCompleted},
	{"the same id for other arguments while open", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		other := set(pre(3), "tool_input.amount", 5)
		l.admit(other, "d2", events.Allow)
		l.at(2).event(post(2))
		l.event(set(post(4), "metadata.tool_input_executed.amount", 5))
	}, []string{reused}, nil, ""},
	{"the same id again when it is free", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.at(2).event(post(2))
		other := set(pre(3), "tool_input.amount", 5)
		l.admit(other, "d2", events.Allow)
		l.event(set(set(post(4), "metadata.tool_input_executed.amount", 5), "metadata.execution.started_at", nil))
	}, nil, []string{ReusedToolCallID}, ""},
	{"an event id with two contents", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.event(set(pre(1), "action", "delete"))
		l.at(2).event(post(2))
	}, []string{conflicting}, nil, events.CallCompleted},
	{"a request and an event that differ under one id", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(set(pre(1), "tool_input.amount", 5))
		l.at(2).event(set(post(2), "metadata.tool_input_executed.amount", 5))
	}, []string{conflicting, driftHigh}, nil, events.CallCompleted},
	{"request form and evidence form of one event", func(l *testLog) {
		l.admit(pre(1), "d1", events.Allow)
		l.event(pre(1))
		l.event(set(pre(1), "metadata.admission_verdict", tree{"verdict": "allow"}))
		l.at(2).event(post(2))
	}, nil, []string{DuplicateEventConflict, ForgedRecord}, events.CallCompleted},
	{"allowed by somebody who is no admitter", func(l *testLog) {
		l.request(pre(1), "d1")
		l.signed(decisionOn(pre(1), "d1", events.Allow, l.now), stranger)
		l.at(2).event(post(2))
	}, []string{forged, noVerdict}, nil, events.CallCompleted},
}

// TestCallsWithoutIDs: of several calls of one tool without ids, a completion belongs to the one
// whose arguments it has. Without such a one, it belongs to no call that was denied other
// arguments.
func TestCallsWithoutIDs(t *testing.T) {
	before := func(n, amount int) tree {
		return set(set(pre(n), "metadata.tool_call_id", nil), "tool_input.amount", amount)
	}
	after := func(n, amount int) tree {
		e := set(set(post(n), "metadata.tool_call_id", nil), "metadata.tool_input_executed.amount", amount)
		return set(e, "metadata.execution.started_at", nil)
	}
	two := func(l *testLog, a, b tree) {
		l.admit(a, "dA", events.Allow, receipted)
		l.event(a)
		l.admit(b, "dB", events.Allow, receipted)
		l.event(b)
	}
	others := func(l *testLog) {
		for i := range DefaultMaxClosedPerSession + 1 {
			e := set(pre(100+2*i), "metadata.tool_call_id", fmt.Sprint("x", i))
			l.admit(e, fmt.Sprint("x", i), events.Deny)
		}
	}
	for name, tc := range map[string]struct {
		play func(l *testLog)
		want []string
	}{
		"parallel, the second ends first": {func(l *testLog) {
			two(l, before(1, 120), before(2, 7))
			l.event(after(3, 7))
			l.event(after(4, 120))
		}, nil},
		"only the ends have no id": {func(l *testLog) {
			two(l, set(before(1, 120), "metadata.tool_call_id", "a"), set(before(2, 7), "metadata.tool_call_id", "b"))
			l.event(after(3, 7))
			l.event(after(4, 120))
		}, nil},
		"parallel under one correlation id": {func(l *testLog) {
			with := func(e tree) tree { return set(e, "correlation_id", uuid(99)) }
			two(l, with(before(1, 120)), with(before(2, 7)))
			l.event(with(after(3, 7)))
			l.event(with(after(4, 120)))
		}, nil},
		"parallel, and one runs with other arguments": {func(l *testLog) {
			two(l, before(1, 120), before(2, 7))
			l.event(after(3, 8))
			l.event(after(4, 7))
		}, []string{driftReceipt}},
		"denied, and run": {func(l *testLog) {
			l.admit(before(1, 120), "d1", events.Deny)
			l.at(2).event(after(3, 120))
		}, []string{despiteDeny}},
		"denied, and run without a word on its arguments": {func(l *testLog) {
			l.admit(before(1, 120), "d1", events.Deny)
			l.at(2).event(set(after(3, 0), "metadata.tool_input_executed", nil))
		}, []string{despiteDeny}},
		"denied, and another call of the tool runs": {func(l *testLog) {
			l.admit(before(1, 120), "d1", events.Deny)
			l.at(2).event(after(3, 7))
		}, []string{orphan}},
		"denied long ago, and run": {func(l *testLog) {
			l.admit(before(1, 120), "d1", events.Deny)
			others(l)
			l.event(after(3, 120))
		}, []string{despiteDeny}},
		"denied long ago, and another call of the tool runs": {func(l *testLog) {
			l.admit(before(1, 120), "d1", events.Deny)
			others(l)
			l.event(after(3, 7))
		}, []string{orphan}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			tc.play(l)
			wantRules(t, l.run().findings, tc.want...)
		})
	}
}
