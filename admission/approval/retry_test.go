package approval

import (
	"fmt"
	"testing"
	"time"
)

func TestAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		resume string
		acts   []Act
		retry  func(*Retry)
		want   RetryStatus
	}{
		{"pending", "", nil, nil, Waiting},
		{"pending, another call", "", nil, func(r *Retry) { r.Call, r.Event = "c2", "e2" }, Waiting},
		{"pending, past its time", "", nil, func(r *Retry) { r.Now = noon.Add(10 * time.Minute) }, Vacant},
		{"pending, other policies", "", nil, func(r *Retry) { r.Policy.Revision++ }, Outdated},
		{"pending, no policies", "", nil, func(r *Retry) { r.Policy.Digest = "" }, Outdated},
		{"approved", "", []Act{ActApprove}, nil, Granted},
		{"approved, the same call in another event", "", []Act{ActApprove}, func(r *Retry) { r.Event = "e2" }, Granted},
		{"approved, another call", "", []Act{ActApprove}, func(r *Retry) { r.Call = "c2" }, OtherCall},
		{"approved, another call in the same event", "", []Act{ActApprove}, func(r *Retry) { r.Call = "c2"; r.Event = "e1" }, OtherCall},
		{"approved, another call that links it", "", []Act{ActApprove}, func(r *Retry) { r.Call, r.Previous = "c2", "c1" }, Granted},
		{"approved, another call that links a third", "", []Act{ActApprove}, func(r *Retry) { r.Call, r.Previous = "c2", "c3" }, OtherCall},
		{"approved, another call that names it", "", []Act{ActApprove}, func(r *Retry) { r.Call, r.Named = "c2", "wf-1" }, Granted},
		{"approved, another call that names another", "", []Act{ActApprove}, func(r *Retry) { r.Call, r.Named = "c2", "wf-2" }, OtherCall},
		{"approved, past its time", "", []Act{ActApprove}, func(r *Retry) { r.Now = noon.Add(10 * time.Minute) }, Vacant},
		{"approved, other policies", "", []Act{ActApprove}, func(r *Retry) { r.Policy.Digest = "sha256:b" }, Outdated},
		{"approved, to be named", ResumeWorkflowID, []Act{ActApprove}, nil, NotNamed},
		{"approved, wrongly named", ResumeWorkflowID, []Act{ActApprove}, func(r *Retry) { r.Named = "wf-2" }, NotNamed},
		{"approved, named", ResumeWorkflowID, []Act{ActApprove}, func(r *Retry) { r.Named, r.Call = "wf-1", "c2" }, Granted},
		{"approved, manual, another call", ResumeManual, []Act{ActApprove}, func(r *Retry) { r.Call, r.Event = "c2", "e2" }, Granted},
		{"approved, waits, another call", ResumeWaits, []Act{ActApprove}, func(r *Retry) { r.Call = "c2" }, OtherCall},
		{"denied", "", []Act{ActDeny}, nil, Refused},
		{"denied, another call", "", []Act{ActDeny}, func(r *Retry) { r.Call, r.Event = "c2", "e2" }, Refused},
		{"denied, other policies", "", []Act{ActDeny}, func(r *Retry) { r.Policy.Revision++ }, Outdated},
		{"denied, past its time", "", []Act{ActDeny}, func(r *Retry) { r.Now = noon.Add(10 * time.Minute) }, Vacant},
		{"cancelled", "", []Act{ActCancel}, nil, Vacant},
		{"consumed", "", []Act{ActApprove, ActConsume}, nil, Vacant},
		{"pending, another reason asks", "", nil, func(r *Retry) { r.Asks = []string{"other"} }, OtherAsk},
		{"approved, another reason asks", "", []Act{ActApprove}, func(r *Retry) { r.Asks = []string{"other"} }, OtherAsk},
		{"approved, two reviewers are needed now", "", []Act{ActApprove}, func(r *Retry) { r.Terms.Quorum = 2 }, OtherAsk},
		{"approved, another group is needed now", "", []Act{ActApprove}, func(r *Retry) { r.Terms.Reviewers = []string{"board"} }, OtherAsk},
		{"pending, deferred now", "", nil, func(r *Retry) { r.Unapprovable = true }, Waiting},
		{"approved, deferred now", "", []Act{ActApprove}, func(r *Retry) { r.Unapprovable = true }, NotEnough},
		{"denied, another reason asks", "", []Act{ActDeny}, func(r *Retry) { r.Asks = []string{"other"} }, Refused},
		{"denied, deferred now", "", []Act{ActDeny}, func(r *Retry) { r.Unapprovable = true }, Refused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := opened(t, Terms{Resume: tc.resume})
			for _, act := range tc.acts {
				var err error
				if w, err = w.applyAct(act, "dana", "", noon.Add(time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			r := Retry{Call: "c1", Event: "e1", Policy: policy1, Now: noon.Add(time.Minute)}
			if tc.retry != nil {
				tc.retry(&r)
			}
			if got := w.MatchRetry(r); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
	if (*Workflow)(nil).MatchRetry(Retry{}) != Vacant {
		t.Error("nothing is something")
	}
}

func TestJoin(t *testing.T) {
	w := opened(t, Terms{})
	if _, joined := w.Join(Retry{Call: "c1", Event: "e2", Now: noon}); joined {
		t.Error("a call joins twice")
	}
	for i := 2; i <= MaxCalls; i++ {
		next, joined := w.Join(Retry{Call: fmt.Sprint("c", i), Event: fmt.Sprint("e", i), Now: noon})
		if !joined || len(next.Calls) != i || next.Step != i || next.Status != Pending || next.Record().Act != "join" {
			t.Fatalf("%d: %v %+v", i, joined, next)
		}
		w = next
	}
	if _, joined := w.Join(Retry{Call: "c99", Now: noon}); joined {
		t.Error("calls without end")
	}
	approved, err := w.applyAct(ActApprove, "dana", "", noon)
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]RetryStatus{"c1": Granted, "c16": Granted, "c99": OtherCall} {
		if got := approved.MatchRetry(Retry{Call: call, Policy: policy1, Now: noon}); got != want {
			t.Errorf("%s: %d", call, got)
		}
	}
	if _, joined := approved.Join(Retry{Call: "c99", Now: noon}); joined {
		t.Error("joined what is approved")
	}
}

// A workflow whose requests have neither call nor event ids is identified by its slot alone;
// one that has ids is not covered by a request without any.
func TestAnswerWithoutIDs(t *testing.T) {
	w := opened(t, Terms{})
	w.Calls, w.Events = nil, nil
	approved, _ := w.applyAct(ActApprove, "dana", "", noon)
	if got := approved.MatchRetry(Retry{Policy: policy1, Now: noon}); got != Granted {
		t.Error(got)
	}
	withIDs, _ := opened(t, Terms{}).applyAct(ActApprove, "dana", "", noon)
	if got := withIDs.MatchRetry(Retry{Policy: policy1, Now: noon}); got != OtherCall {
		t.Error(got)
	}
}
