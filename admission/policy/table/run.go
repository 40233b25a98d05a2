package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
)

// Options are the inputs of a run.
type Options struct {
	Policies *policy.Set
	Now      time.Time // for cases without a time
	// File reads a file, and Mandates a directory, that a case names; names are as in the
	// table.
	File     func(name string) ([]byte, error)
	Mandates func(dir string) (mandate.Source, error)
}

// Result is the outcome of a case.
type Result struct {
	Name       string          `json:"name"`
	Line       int             `json:"line"`
	Passed     bool            `json:"passed"`
	Mismatches []string        `json:"problems,omitempty"` // differences from the expectation
	Verdict    events.Verdict  `json:"verdict,omitempty"`
	Reasons    []events.Reason `json:"reasons,omitempty"`
	Policy     string          `json:"policy,omitempty"`
	Expected   Expect          `json:"-"`
}

// Run decides every case.
func Run(t Table, o Options) []Result {
	results := make([]Result, len(t.Cases))
	for i, c := range t.Cases {
		results[i] = c.run(o)
	}
	return results
}

func (c Case) run(o Options) Result {
	r := Result{Name: c.Name, Line: c.Line, Expected: c.Expect}
	d, err := c.decide(o)
	if err != nil {
		r.Mismatches = []string{err.Error()}
		return r
	}
	r.Verdict, r.Reasons = d.Verdict, d.Reasons
	if d.Policy != nil {
		r.Policy = d.Policy.Name
	}
	r.Mismatches = c.Expect.compare(r)
	r.Passed = len(r.Mismatches) == 0
	return r
}

func (c Case) decide(o Options) (events.Decision, error) {
	body := c.Request
	if c.RequestFile != "" {
		var err error
		if body, err = o.File(c.RequestFile); err != nil {
			return events.Decision{}, fmt.Errorf("reading the request: %w", err)
		}
	}
	body, err := applyChanges(body, c.Change)
	if err != nil {
		return events.Decision{}, err
	}
	in := c.decisionInputs(o)
	if c.Mandates != "" {
		if in.Mandates.Mandates, err = o.Mandates(c.Mandates); err != nil {
			return events.Decision{}, err
		}
	}
	req := admission.Request{
		Tenant: cmp.Or(c.Tenant, admission.OfflineTenant), Source: cmp.Or(c.Source, admission.ClaimedSource(c.Protocol, body)),
		Protocol: c.Protocol, Header: c.Headers, Body: body, ReceivedAt: in.Now,
	}
	config := &admission.Config{Policies: o.Policies, Strict: c.Strict, Profile: admission.Profile(c.Profile)}
	return admission.Decide(req, config, in).Decision, nil
}

// decisionInputs are the same in every run: a table must not pass by chance.
func (c Case) decisionInputs(o Options) admission.Inputs {
	now := c.Now
	if now.IsZero() {
		now = o.Now
	}
	in := admission.Inputs{
		Now: now, DecisionID: "00000000-0000-7000-8000-000000000000", Salt: make([]byte, receipt.SaltSize), Nonce: "table",
		KnownTenant: true, PlainDigests: true, Counters: fixedCounters(c.Counted),
	}
	if c.Confirmation != "" {
		in.Confirmations = fixedConfirmation(c.Confirmation)
	}
	return in
}

// fixedCounters returns the same total for every counter.
type fixedCounters int64

func (n fixedCounters) Total(string, time.Duration, time.Time) (int64, bool) { return int64(n), true }

// fixedConfirmation returns the same status for every invocation, as if the question named its
// id.
type fixedConfirmation call.ConfirmationStatus

func (s fixedConfirmation) Confirmation(i call.Invocation) call.Confirmation {
	c := call.Confirmation{Status: call.ConfirmationStatus(s), Explicit: true, Until: i.Now.Add(time.Hour)}
	if c.Status == call.ConfirmationAccepted {
		c.ID = "table"
	}
	return c
}

// compare lists the differences between a result and the expectation.
func (e Expect) compare(r Result) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if r.Verdict != e.Verdict {
		say("verdict: want %s, got %s", e.Verdict, r.Verdict)
	}
	var codes, rules []string
	failed := map[string]string{} // codes by rule
	for _, reason := range r.Reasons {
		codes = append(codes, reason.Code)
		switch {
		case policy.IsFault(reason.Code):
			failed[reason.Policy] = reason.Code
		case strings.Contains(reason.Policy, "/"):
			rules = append(rules, reason.Policy)
		}
	}
	for _, want := range e.Reasons {
		if !slices.Contains(codes, want) {
			say("reasons: want %s, got %s", want, joinWords(codes))
		}
	}
	for _, no := range e.Not {
		if slices.Contains(codes, no) {
			say("reasons: %s must not be among %s", no, joinWords(codes))
		}
	}
	for _, want := range e.Rules {
		if code := failed[want]; code != "" {
			say("rules: want %s to match; it failed (%s)", want, code)
		} else if !slices.Contains(rules, want) {
			say("rules: want %s to match; those that matched: %s", want, joinWords(rules))
		}
	}
	if e.Policy != "" && r.Policy != e.Policy {
		say("policy: want %s, got %s", e.Policy, cmp.Or(r.Policy, "none"))
	}
	return problems
}

func joinWords(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// Uncovered lists the rules ("policy/rule") that no result names as matched, in their order. A rule that only
// failed did not match.
func Uncovered(rules []string, results ...[]Result) (missed []string) {
	matched := map[string]bool{}
	for _, rs := range results {
		for _, r := range rs {
			for _, reason := range r.Reasons {
				matched[reason.Policy] = matched[reason.Policy] || !policy.IsFault(reason.Code)
			}
		}
	}
	for _, id := range rules {
		if !matched[id] {
			missed = append(missed, id)
		}
	}
	return missed
}

// Refusals counts what became of everyday requests.
type Refusals struct {
	Requests int `json:"requests"`
	Denied   int `json:"denied"` // falsely: the requests are ordinary
	Asked    int `json:"asked"`  // they wait for a person, or for later
}

// CountRefusals counts the refusals among results. A case that could not be decided counts as denied.
func CountRefusals(results []Result) Refusals {
	n := Refusals{Requests: len(results)}
	for _, r := range results {
		switch r.Verdict {
		case events.Allow:
		case events.Ask, events.Defer:
			n.Asked++
		default:
			n.Denied++
		}
	}
	return n
}

func (n Refusals) String() string {
	return fmt.Sprintf("false denials: %d of %d (%.1f %%), asked: %d", n.Denied, n.Requests, 100*float64(n.Denied)/float64(max(n.Requests, 1)), n.Asked)
}
