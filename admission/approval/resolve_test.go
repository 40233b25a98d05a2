package approval

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

func TestResolveRefuses(t *testing.T) {
	finance := groups{"finance": {"dana", "eve"}}
	for _, tc := range []struct {
		name   string
		terms  Terms
		before []Act
		change func(*Command)
		want   Code
	}{
		{"nobody", Terms{}, nil, func(c *Command) { c.Reviewer = "" }, CodeInvalid},
		{"an act that is not a reviewer's", Terms{}, nil, func(c *Command) { c.Act = ActConsume }, CodeInvalid},
		{"the requester approves", Terms{}, nil, func(c *Command) { c.Reviewer = "rt1" }, CodeSelf},
		{"the agent approves", Terms{}, nil, func(c *Command) { c.Reviewer = "bot" }, CodeSelf},
		{"the requester denies", Terms{}, nil, func(c *Command) { c.Reviewer, c.Act = "rt1", ActDeny }, CodeSelf},
		{"the requester cancels", Terms{}, nil, func(c *Command) { c.Reviewer, c.Act = "rt1", ActCancel }, CodeSelf},
		{"not in the group", Terms{Reviewers: []string{"finance"}}, nil, func(c *Command) { c.Reviewer = "mallory" }, CodeNotReviewer},
		{"a group that nobody knows", Terms{Reviewers: []string{"legal"}}, nil, nil, CodeNotReviewer},
		{"groups that cannot be looked up", Terms{Reviewers: []string{"finance"}}, nil, func(c *Command) { c.IsMember = nil }, CodeNotReviewer},
		{"a reason with a line break", Terms{}, nil, func(c *Command) { c.Reason = "a\nb" }, CodeReasonNotAllowed},
		{"a reason too long", Terms{}, nil, func(c *Command) { c.Reason = strings.Repeat("a", MaxReason+1) }, CodeReasonNotAllowed},
		{"a reason that is not UTF-8", Terms{}, nil, func(c *Command) { c.Reason = "\xff" }, CodeReasonNotAllowed},
		{"at its expiry", Terms{}, nil, func(c *Command) { c.At = noon.Add(10 * time.Minute) }, CodeExpired},
		{"without a preview", Terms{}, nil, func(c *Command) { c.PreviewDigest = "" }, CodePreviewRequired},
		{"another preview", Terms{}, nil, func(c *Command) { c.PreviewDigest = keyed([]byte("x")) }, CodePreviewMismatch},
		{"deny of another preview", Terms{}, nil, func(c *Command) { c.Act, c.PreviewDigest = ActDeny, "x" }, CodePreviewMismatch},
		{"other policies", Terms{}, nil, func(c *Command) { c.CurrentPolicy.Revision++ }, CodeStalePolicy},
		{"other policies of the same revision", Terms{}, nil, func(c *Command) { c.CurrentPolicy.Digest = "sha256:b" }, CodeStalePolicy},
		{"no policies", Terms{}, nil, func(c *Command) { c.CurrentPolicy = events.PolicyRef{} }, CodeStalePolicy},
		{"denied before", Terms{}, []Act{ActDeny}, nil, CodeResolved},
		{"cancelled before", Terms{}, []Act{ActCancel}, nil, CodeResolved},
		{"approved before", Terms{}, []Act{ActApprove}, nil, CodeResolved},
		{"denied after approval", Terms{}, []Act{ActApprove}, func(c *Command) { c.Act = ActDeny }, CodeResolved},
		{"the same reviewer twice", Terms{Quorum: 2}, []Act{ActApprove}, nil, CodeVoted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := opened(t, tc.terms)
			for _, act := range tc.before {
				next, _, changed := w.Resolve(by(w, "dana", act, finance))
				if !changed {
					t.Fatalf("%s was refused", act)
				}
				w = next
			}
			c := by(w, "dana", ActApprove, finance)
			if tc.change != nil {
				tc.change(&c)
			}
			next, code, changed := w.Resolve(c)
			if code != tc.want || changed {
				t.Errorf("%s, changed %v; want %s", code, changed, tc.want)
			}
			if d := cmp.Diff(w, next); d != "" {
				t.Errorf("a refusal changed the workflow:\n%s", d)
			}
			if messages[code] == "" || successes[code] {
				t.Errorf("%s has no message, or counts as a success", code)
			}
			if r := w.Refusal(c, code); r.Refused != string(tc.want) || r.Status != string(w.Status) || r.Step != w.Step {
				t.Errorf("record %+v", r)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	w := opened(t, Terms{})
	for _, tc := range []struct {
		act    Act
		code   Code
		status Status
	}{{ActApprove, CodeApproved, Approved}, {ActDeny, CodeDenied, Denied}, {ActCancel, CodeCancelled, Cancelled}} {
		c := by(w, "dana", tc.act, nil)
		c.Reason = "fine by me"
		next, code, changed := w.Resolve(c)
		if !changed || code != tc.code || next.Status != tc.status || next.By != "dana" || next.Reason != "fine by me" || next.Step != 2 ||
			!next.DecidedAt.Equal(c.At) || w.Status != Pending {
			t.Errorf("%s: %s %v %+v", tc.act, code, changed, next)
		}
		r := next.Record()
		if r.Status != string(tc.status) || r.Approver != "dana" || r.Reason != "fine by me" || r.PreviewDigest != w.PreviewDigest || r.Policy.Revision != 3 {
			t.Errorf("record %+v", r)
		}
	}
	// An unused approval can be cancelled.
	approved, _, _ := w.Resolve(by(w, "dana", ActApprove, nil))
	if back, code, changed := approved.Resolve(by(w, "eve", ActCancel, nil)); !changed || code != CodeCancelled || back.Status != Cancelled {
		t.Errorf("%s %v", code, changed)
	}
}

func TestQuorum(t *testing.T) {
	g := groups{"finance": {"dana", "eve", "fay"}, "legal": {"gus"}}
	w := opened(t, Terms{Reviewers: []string{"finance", "legal"}, Quorum: 3})
	for i, user := range []string{"dana", "gus"} {
		next, code, changed := w.Resolve(by(w, user, ActApprove, g))
		if code != CodeRecorded || !changed || next.Status != Pending || len(next.Votes) != i+1 || len(next.Record().Approvers) != i+1 {
			t.Fatalf("%s: %s %+v", user, code, next)
		}
		w = next
	}
	// Whoever has left the group since does not count.
	left := groups{"finance": {"eve", "fay"}, "legal": {"gus"}}
	if next, code, _ := w.Resolve(by(w, "eve", ActApprove, left)); code != CodeRecorded || next.Status != Pending {
		t.Errorf("with dana gone: %s %s", code, next.Status)
	}
	if next, code, _ := w.Resolve(by(w, "eve", ActApprove, g)); code != CodeApproved || next.Status != Approved {
		t.Errorf("%s %s", code, next.Status)
	}
	// One denial is enough, also from a reviewer that has approved.
	if next, code, _ := w.Resolve(by(w, "dana", ActDeny, g)); code != CodeDenied || next.Status != Denied {
		t.Errorf("%s %s", code, next.Status)
	}
}

func TestRequests(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"action":"list"}`: true, `{"action":"list","all":true,"limit":500,"after":"wf-1"}`: true,
		`{"action":"show","workflow_id":"wf-1"}`: true, `{"action":"approve","workflow_id":"wf-1","preview_digest":"d","reason":"r"}`: true,
		`{"action":"cancel","workflow_id":"wf-1"}`: true,
		``: false, `null`: false, `[]`: false, `{}`: false, `{"action":"list"} `: true, `{"action":"list"}x`: false,
		`{"action":"list","limit":501}`: false, `{"action":"list","limit":-1}`: false, `{"action":"list","after":"*"}`: false, `{"action":"list","workflow_id":"w"}`: false,
		`{"action":"approve"}`: false, `{"action":"approve","workflow_id":"a.b"}`: false, `{"action":"approve","workflow_id":">"}`: false,
		`{"action":"consume","workflow_id":"wf-1"}`: false, `{"action":"Approve","workflow_id":"wf-1"}`: false, `{"Action":"list"}`: false,
		`{"action":"deny","action":"approve","workflow_id":"wf-1"}`: false, `{"action":"approve","workflow_id":"wf-1","approver":"dana"}`: false,
		`{"action":"show","workflow_id":"` + strings.Repeat("w", MaxWorkflowID+1) + `"}`: false,
		`{"action":"list","after":"` + strings.Repeat("w", MaxRequest) + `"}`:            false,
	} {
		if _, err := DecodeRequest([]byte(text)); (err == nil) != ok {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// TestAgentsOfOneWorkflow: without a session, calls of several agents wait for one workflow. No user whose agent asked for it,
// first or later, reviews it, and an approval is for the agents that had asked before.
func TestAgentsOfOneWorkflow(t *testing.T) {
	ask := func(call, agent string) Retry { return Retry{Call: call, Agent: agent, Policy: policy1, Now: noon} }
	joined := func(w Workflow, call, agent string) Workflow {
		next, ok := w.Join(ask(call, agent))
		if !ok {
			t.Fatalf("%s of %s does not join", call, agent)
		}
		return next
	}
	resolved := func(w Workflow, user string, want Code) Workflow {
		next, code, _ := w.Resolve(by(w, user, ActApprove, nil))
		if code != want {
			t.Errorf("%s approves: %s, want %s", user, code, want)
		}
		return next
	}
	for _, call := range []string{"c1", "c2"} { // under a known id, too
		w := joined(opened(t, Terms{}), call, "dana")
		resolved(w, "dana", CodeSelf)
		w = resolved(w, "erin", CodeApproved)
		for agent, want := range map[string]RetryStatus{"bot": Granted, "dana": Granted, "": Granted, "erin": OtherCall} {
			if got := w.MatchRetry(ask(call, agent)); got != want {
				t.Errorf("%s of %q: %v, want %v", call, agent, got, want)
			}
		}
	}
	w := resolved(opened(t, Terms{Quorum: 2}), "dana", CodeRecorded)
	w = resolved(joined(w, "c2", "dana"), "erin", CodeRecorded) // the vote of dana counts no more
	resolved(w, "fay", CodeApproved)
}
