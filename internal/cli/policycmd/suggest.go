package policycmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/replay"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/suggest"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/streams"
)

type policySuggestCmd struct {
	target.Flags
	From  string `help:"How far back: a duration such as 7d or 24h, or an RFC 3339 time." default:"7d" placeholder:"TIME"`
	Until string `help:"Up to when: a duration back from now, or an RFC 3339 time (default: now)." placeholder:"TIME"`
	JSON  bool   `name:"json" help:"Print one JSON object: the policies as YAML text, each rule with counts and samples, wider rules, what is left out, and what the policies would have changed."`
}

// suggestion is the JSON output.
type suggestion struct {
	suggest.Proposal
	Seen    seenCalls         `json:"seen"`
	Changes simulationSummary `json:"would_have_changed"`
}

// seenCalls counts the decisions of the time by what became of them.
type seenCalls struct {
	Decisions int `json:"decisions"`
	Ran       int `json:"ran"`        // permitted, and reported to have run
	NotRun    int `json:"not_run"`    // permitted, and not reported to have run
	Refused   int `json:"refused"`    // in no mode observe
	Unusable  int `json:"unreadable"` // no request in the log, or state that is not known any more
	FromSeq   int `json:"from_seq"`   // of the log
	ToSeq     int `json:"to_seq"`     // of the log
}

func (c *policySuggestCmd) Run(ctx context.Context, io ui.Stdio) error {
	from, until, err := parseSpan("--from", c.From, c.Until, time.Now())
	if err != nil {
		return err
	}
	l, closeLog, tenant, err := system.OpenLog(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer closeLog()
	redacts, err := policyInForce(ctx, l, tenant, streams.BucketRedaction, events.RuleKey(tenant), redaction.Parse)
	if err != nil {
		return err
	}
	retains, err := policyInForce(ctx, l, tenant, streams.BucketRetention, retention.PolicyKey(tenant), retention.Parse)
	if err != nil {
		return err
	}
	view, err := newEvidenceView(l, cmp.Or(redacts, redaction.Builtin()), retains)
	if err != nil {
		return err
	}
	s := &suggesting{io: io, log: l, tenant: tenant, view: view, collector: suggest.New(tenant), stores: newPastStores(ctx, l.JS)}
	if err := s.collect(ctx, from, until); err != nil {
		return err
	}
	out := suggestion{Seen: s.seen}
	if out.Proposal, err = s.collector.Propose(); err != nil && !errors.Is(err, suggest.ErrNothing) {
		return err
	}
	if err == nil {
		if out.Changes, err = s.changes(ctx, out.Proposal, from, until); err != nil {
			return err
		}
	}
	return out.print(io, c.JSON)
}

// parseSpan parses a time span. flag names the one that gives its begin.
func parseSpan(flag, from, until string, now time.Time) (begin, end time.Time, err error) {
	if begin, err = ui.ParseMoment(from, now); err != nil {
		return begin, end, ui.UsageError{Err: fmt.Errorf("%s %w", flag, err)}
	}
	if end, err = ui.ParseMoment(until, now); err != nil {
		return begin, end, ui.UsageError{Err: fmt.Errorf("--until %w", err)}
	}
	if begin.After(end) {
		return begin, end, ui.UsageError{Err: fmt.Errorf("%s lies after --until", flag)}
	}
	return begin, end, nil
}

// policyInForce is a tenant's policy of the kind after which the bucket is named, nil if it has none.
func policyInForce[P any](ctx context.Context, l recorded.Log, tenant, bucket, key string, parse func(string, []byte) (*P, error)) (*P, error) {
	e, err := streams.KVLast(ctx, l.JS, bucket, key)
	if err != nil {
		return nil, fmt.Errorf("reading the %s policy of tenant %s: %w", bucket, ui.Clean(tenant, 64), err)
	}
	if e == nil || e.Deleted {
		return nil, nil
	}
	p, err := parse(tenant, e.Value)
	if err != nil {
		return nil, fmt.Errorf("the %s policy of tenant %s cannot be used, so nothing can be shown; mend it first (countersign %[1]s push): %[3]w", bucket, ui.Clean(tenant, 64), err)
	}
	return p, nil
}

// suggesting collects the calls of a time span.
type suggesting struct {
	io        ui.Stdio
	log       recorded.Log
	tenant    string
	view      *evidenceView
	collector *suggest.Collector
	stores    *pastStores
	seen      seenCalls
	ran       map[string]bool // ids of decisions
}

func (s *suggesting) collect(ctx context.Context, from, until time.Time) error {
	a, b, err := logSpan(ctx, s.log, from, until)
	if err != nil || b < a {
		return err
	}
	s.seen.FromSeq, s.seen.ToSeq, s.ran = int(a), int(b), map[string]bool{}
	tell := ui.CountProgress(s.io, "reading calls")
	err = s.log.ScanCalls(ctx, s.tenant, a, b, func(seq uint64) { tell(seq-a+1, b-a+1) }, func(c events.Call) error {
		if c.State == events.CallCompleted || c.State == events.CallFailed {
			s.ran[c.DecisionID] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	tell = ui.CountProgress(s.io, "reading decisions")
	err = s.log.Scan(ctx, s.tenant, a, b, func(seq uint64) { tell(seq-a+1, b-a+1) }, s.entry)
	return errors.Join(err, s.stores.failed)
}

// logSpan returns the first and the last sequence of a time span; last is smaller if it is empty.
func logSpan(ctx context.Context, l recorded.Log, from, until time.Time) (first, last uint64, err error) {
	st, err := streams.StreamState(ctx, l.JS, l.Stream)
	if err != nil {
		return 0, 0, err
	}
	if first, err = l.SeqAt(ctx, st, from); err != nil {
		return 0, 0, err
	}
	last, err = l.SeqAt(ctx, st, until.Add(1))
	return first, last - 1, err
}

// entry takes in the call of a decision, if it was permitted and ran.
func (s *suggesting) entry(e recorded.Entry) error {
	s.seen.Decisions++
	d := e.Decision
	switch {
	case e.Err != nil || e.Request == nil:
		s.seen.Unusable++
		return nil
	case d.Verdict != events.Allow:
		s.seen.Refused++
		return nil
	case !s.ran[d.DecisionID]:
		s.seen.NotRun++
		return nil
	}
	in, seen, missing := replay.PolicyInput(recordOf(e), s.stores.known(digest.Keys{}))
	if !seen || len(missing) > 0 {
		s.seen.Unusable++
		return nil
	}
	s.seen.Ran++
	shown, hidden, err := s.view.show(*e.Request, in)
	if err != nil {
		return err
	}
	s.collector.Add(suggest.Call{Input: in, Shown: shown, Hidden: hidden, Approved: wasApproved(d), Counted: len(d.Counts) > 0, At: d.DecidedAt.Time})
	return nil
}

// wasApproved reports whether an approval made a decision's ask an allow.
func wasApproved(d events.Decision) bool {
	return slices.ContainsFunc(d.Reasons, func(r events.Reason) bool {
		return r.Evaluator == approval.EvaluatorName && r.Code == approval.ReasonGranted
	})
}

// changes simulates the proposal over the same time.
func (s *suggesting) changes(ctx context.Context, p suggest.Proposal, from, until time.Time) (simulationSummary, error) {
	sim := &simulation{cmd: &policySimulateCmd{}, quiet: true, io: s.io, candidate: &admission.Config{Policies: p.Set}, counts: map[[2]events.Verdict]int{}}
	if err := sim.run(ctx, s.log, s.tenant, from, until); err != nil {
		return simulationSummary{}, err
	}
	return sim.summary(), nil
}

// evidenceView shows requests as the auditor would put them into evidence.
type evidenceView struct {
	builder *build.Builder
	keys    build.OneKey
}

// newEvidenceView makes the view of a tenant's policies; without a retention policy, retains is nil.
func newEvidenceView(l recorded.Log, redacts *redaction.Policy, retains *retention.Policy) (*evidenceView, error) {
	b, err := build.NewBuilder(l.Stream, l.Space)
	if err != nil {
		return nil, err
	}
	b = b.WithPolicies(func(string) (*redaction.Policy, error) { return redacts, nil })
	if retains != nil {
		b = b.WithClasses(func(_, session string) (retention.Class, string) { return retains.Class(session), retains.ID() })
	}
	v := &evidenceView{b, make(build.OneKey, digest.KeySize)}
	_, err = rand.Read(v.keys)
	return v, err
}

// show returns a request's arguments as evidence shows them, nil if it withholds them, and whether it hides
// another value that a rule would quote.
func (v *evidenceView) show(m events.LogMessage, in policy.Input) (shown map[string]any, hidden bool, err error) {
	built, err := v.builder.Build(m, evidence.Head{}, v.keys)
	if err != nil {
		return nil, false, err
	}
	before, err := strictjson.ParseObject(m.Body, strictjson.DefaultLimits)
	if err != nil || built.Record.Reason != "" {
		return nil, true, nil
	}
	after, err := strictjson.ParseObject(built.Record.Body, strictjson.DefaultLimits)
	if err != nil {
		return nil, true, nil
	}
	quoted := map[string]bool{}
	for _, value := range suggest.Quoted(in) {
		if form := suggest.CanonicalForm(value); !slices.Contains([]string{`""`, "{}", "null"}, form) {
			quoted[form] = true
		}
	}
	if hidden = hides(before, after, quoted); len(in.Args) == 0 {
		return map[string]any{}, hidden, nil
	}
	return counterpart(before, after, suggest.CanonicalForm(in.Args)), hidden, nil
}

// hides reports whether one of several values, by canonical form, is another in after than in before.
func hides(before, after any, values map[string]bool) bool {
	if form := suggest.CanonicalForm(before); values[form] && suggest.CanonicalForm(after) != form {
		return true
	}
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		for name, v := range b {
			if hides(v, a[name], values) {
				return true
			}
		}
	case []any:
		a, _ := after.([]any)
		for i, v := range b {
			if i >= len(a) || hides(v, a[i], values) {
				return true
			}
		}
	}
	return false
}

// counterpart finds the object with a canonical form in before, and returns what stands in its
// place in after; nil if there is none.
func counterpart(before, after any, want string) map[string]any {
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		if suggest.CanonicalForm(b) == want {
			return a
		}
		for name, v := range b {
			if found := counterpart(v, a[name], want); found != nil {
				return found
			}
		}
	case []any:
		a, _ := after.([]any)
		for i := range min(len(b), len(a)) {
			if found := counterpart(b[i], a[i], want); found != nil {
				return found
			}
		}
	}
	return nil
}

func (s suggestion) print(io ui.Stdio, asJSON bool) error {
	if asJSON {
		return ui.WriteJSON(io, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %d decisions: %d calls were permitted and ran, %d did not run or did not report, %d were refused, %d cannot be read.\n",
		s.Seen.Decisions, s.Seen.Ran, s.Seen.NotRun, s.Seen.Refused, s.Seen.Unusable)
	fmt.Fprintf(&b, "# These policies permit %d of the calls that ran, and no other call. A protocol whose own evaluator decides where no rule matches is not held back.\n", s.Calls)
	for _, l := range s.LeftOut {
		fmt.Fprintf(&b, "# Left out: %d calls of %q: %s.\n", l.Calls, l.Tool, l.Reason)
	}
	if n := len(s.Wider); n > 0 {
		fmt.Fprintf(&b, "# %d wider rules are at the end, as comments.\n", n)
	}
	if s.Calls > 0 {
		fmt.Fprintf(&b, "# Alone in force, they would have changed %d of %d verdicts:\n", s.Changes.Changed, s.Changes.Decisions)
		for _, n := range s.Changes.Counts {
			fmt.Fprintf(&b, "#   %s -> %s: %d\n", n.Old, n.New, n.Count)
		}
	}
	b.WriteString(s.Text)
	_, err := fmt.Fprint(io.Out, b.String())
	return err
}
