package approval

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
)

var (
	statuses = []Status{"", Pending, Approved, Denied, Expired, Cancelled, Consumed}
	acts     = []Act{ActOpen, ActJoin, ActVote, ActApprove, ActDeny, ActCancel, ActExpire, ActConsume}
)

// TestTransitions writes the whole table out once more: what is not here must
// not be there.
func TestTransitions(t *testing.T) {
	want := map[Status]string{
		"": "open>pending", Pending: "join>pending vote>pending approve>approved deny>denied cancel>cancelled expire>expired",
		Approved: "cancel>cancelled expire>expired consume>consumed",
	}
	for _, s := range statuses {
		got := ""
		for _, act := range acts {
			if to, possible := transitions[s][act]; possible {
				got += " " + string(act) + ">" + string(to)
			}
		}
		if w := want[s]; w != "" && got != " "+w || w == "" && got != "" {
			t.Errorf("%s: %s", s, got)
		}
	}
}

// TestStateMachine plays random reviewers, agents and clocks against a naive model that keeps
// one status, the approving reviewers, and the end.
func TestStateMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quorum := rapid.IntRange(0, 3).Draw(t, "quorum")
		w := Open(Opening{Slot: "s", ID: "wf-1", Tenant: "acme", Source: "rt1", Session: "s1", Policy: policy1, Terms: Terms{Quorum: quorum, Lifetime: time.Minute, Show: []string{"/to"}},
			PreviewDigest: "p", Call: "c1", Now: noon, ExpiresAt: noon.Add(time.Minute)})
		status, voted, used, now, calls := Pending, map[string]bool{}, 0, noon, map[string]bool{"c1": true}
		need := max(1, quorum)
		live := func() bool { return now.Before(noon.Add(time.Minute)) }
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "s")) * time.Second) },
			"resolve": func(t *rapid.T) {
				user := rapid.SampledFrom([]string{"dana", "eve", "fay", "rt1"}).Draw(t, "user")
				act := rapid.SampledFrom([]Act{ActApprove, ActDeny, ActCancel}).Draw(t, "act")
				next, _, changed := w.Resolve(Command{Act: act, Reviewer: user, PreviewDigest: "p", At: now, CurrentPolicy: policy1})
				may := live() && user != "rt1" && (status == Pending && !(act == ActApprove && voted[user]) || status == Approved && act == ActCancel)
				if changed != may {
					t.Fatalf("%s by %s at %s when %s: changed %v", act, user, now.Sub(noon), status, changed)
				}
				if !changed {
					return
				}
				w = next
				switch act {
				case ActDeny:
					status = Denied
				case ActCancel:
					status = Cancelled
				case ActApprove:
					if voted[user] = true; len(voted) == need {
						status = Approved
					}
				}
			},
			"retry": func(t *rapid.T) {
				call := rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(t, "call")
				switch w.MatchRetry(Retry{Call: call, Policy: policy1, Now: now}) {
				case Granted:
					if status != Approved || !live() || !calls[call] {
						t.Fatalf("granted to %s when %s", call, status)
					}
					next, err := w.Consume("d", now)
					if err != nil {
						t.Fatal(err)
					}
					w, status = next, Consumed
					used++
				case Waiting:
					if status != Pending || !live() {
						t.Fatalf("waiting when %s", status)
					}
					if next, joined := w.Join(Retry{Call: call, Policy: policy1, Now: now}); joined {
						w, calls[call] = next, true
					}
				case Refused:
					if status != Denied || !live() {
						t.Fatalf("refused when %s", status)
					}
				case OtherCall:
					if status != Approved || calls[call] {
						t.Fatalf("foreign when %s", status)
					}
				case Vacant:
					if (status == Pending || status == Approved || status == Denied) && live() {
						t.Fatalf("vacant when %s", status)
					}
				}
			},
			"expire": func(t *rapid.T) {
				next, err := w.Expire(now)
				if may := !live() && (status == Pending || status == Approved); may != (err == nil) {
					t.Fatalf("expiry when %s: %v", status, err)
				}
				if err == nil {
					w, status = next, Expired
				}
			},
			"": func(t *rapid.T) {
				if w.Status != status || used > 1 || len(w.Votes) != len(voted) {
					t.Fatalf("%s, want %s; used %d times", w.Status, status, used)
				}
				b, err := events.Encode(w)
				if err != nil {
					t.Fatal(err)
				}
				back, err := Decode(b)
				if d := cmp.Diff(w, back, cmpopts.EquateEmpty()); err != nil || d != "" {
					t.Fatalf("%v\n%s", err, d)
				}
			},
		})
	})
}

func TestConsumeOnlyOnce(t *testing.T) {
	w := opened(t, Terms{})
	if _, err := w.Consume("d-2", noon); !errors.Is(err, ErrTransition) {
		t.Error("consumed what nobody approved")
	}
	approved, _, _ := w.Resolve(by(w, "dana", ActApprove, nil))
	used, err := approved.Consume("d-2", noon.Add(time.Minute))
	if err != nil || used.Status != Consumed || used.Record().DecisionID != "d-2" || used.Ref(noon).Status != "consumed" {
		t.Errorf("%v %+v", err, used)
	}
	if _, err := used.Consume("d-3", noon.Add(time.Minute)); !errors.Is(err, ErrTransition) {
		t.Error("consumed twice")
	}
	if _, err := approved.Consume("d-2", noon.Add(10*time.Minute)); !errors.Is(err, ErrTransition) {
		t.Error("consumed at its expiry")
	}
	if _, err := used.Supersede("x", noon); !errors.Is(err, ErrTransition) {
		t.Error("superseded what is over")
	}
}

func TestRecordGolden(t *testing.T) {
	w := opened(t, Terms{Reviewers: []string{"finance"}, Quorum: 2, Resume: ResumeWaits})
	w.ActionDigest, w.ActionID, w.PreviewDigest = "hmac-sha256:00", "act-00", "hmac-sha256:01"
	voted, _, _ := w.Resolve(by(w, "dana", ActApprove, groups{"finance": {"dana"}}))
	b, err := events.Encode(voted.Record())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"act":"vote","action_digest":"hmac-sha256:00","action_id":"act-00","approver":"dana","approvers":["dana"],"changed_at":"2026-11-20T12:01:00.000000000Z",` +
		`"decision_id":"d-1","expires_at":"2026-11-20T12:10:00.000000000Z","policy":{"digest":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","name":"mail","revision":3},` +
		`"preview_digest":"hmac-sha256:01","quorum":2,"requested_at":"2026-11-20T12:00:00.000000000Z","resume_policy":"publisher_waits","reviewer_groups":["finance"],"session":"s1","source":"rt1",` +
		`"status":"pending","step":2,"tenant":"acme","tool":"send_mail","tool_call_id":"c1","tool_call_ids":["c1"],"workflow_id":"wf-1"}`
	if string(b) != want {
		t.Errorf("%s", b)
	}
}

func FuzzDecode(f *testing.F) {
	w := opened(f, Terms{})
	b, _ := events.Encode(w)
	f.Add(b)
	f.Add([]byte(`{"v":1}`))
	f.Add([]byte(`{"v":1,"v":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := Decode(b)
		if err != nil {
			return
		}
		if _, err := events.Encode(w); err != nil {
			t.Error(err)
		}
		w.MatchRetry(Retry{Call: "c", Policy: policy1, Now: noon})
		w.Resolve(by(w, "dana", ActApprove, nil))
	})
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"action":"approve","workflow_id":"wf-1","preview_digest":"x"}`))
	f.Add([]byte(`{"action":"list","limit":5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeRequest(b); err == nil && Acts[r.Action] != "" && !ValidID(r.WorkflowID) {
			t.Errorf("%+v", r)
		}
	})
}

// Readers of the log ask for the records of each status by events.ApprovalStatuses.
func TestStatusesAreOnRecord(t *testing.T) {
	for _, status := range []Status{Pending, Approved, Denied, Expired, Cancelled, Consumed} {
		if !slices.Contains(events.ApprovalStatuses, string(status)) {
			t.Errorf("events.ApprovalStatuses leaves out %s", status)
		}
	}
	for _, status := range events.ApprovalStatuses {
		if w := (Workflow{Status: Status(status)}); !w.hasKnownStatus() {
			t.Errorf("a workflow is never %s", status)
		}
	}
}
