package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/replay"
	"github.com/countersign-dev/countersign/cmd/internal/recorded"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

type policySimulateCmd struct {
	target.Flags
	Since      string `help:"How far back: a duration such as 24h, or an RFC 3339 time." default:"24h" placeholder:"TIME"`
	Until      string `help:"Up to when: a duration back from now, or an RFC 3339 time (default: now)." placeholder:"TIME"`
	AllTenants bool   `help:"The requests of all tenants, not of one."`
	Most       int    `help:"List at most this many decisions that change, and as many that cannot be replayed; 0 for all. All are counted." default:"100"`
	ExitCode   bool   `help:"Exit with 1 if a verdict would change."`
	JSON       bool   `name:"json" help:"Print JSON Lines: every change, everything that cannot be replayed, and at last a summary."`
	Dir        string `arg:"" help:"Directory of *.yaml files: the candidate."`
}

func (c *policySimulateCmd) Run(ctx context.Context, io stdio) error {
	now := time.Now()
	since, err := moment(c.Since, now)
	if err != nil {
		return usageError{fmt.Errorf("--since %w", err)}
	}
	until, err := moment(c.Until, now)
	if err != nil {
		return usageError{fmt.Errorf("--until %w", err)}
	}
	if since.After(until) {
		return usageError{fmt.Errorf("--since lies after --until")}
	}
	_, set, err := loadPolicies(c.Dir)
	if err != nil {
		return err
	}
	l, closeLog, tenant, err := openLog(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer closeLog()
	if c.AllTenants {
		tenant = ""
	}
	s := &simulation{cmd: c, io: io, p: newPrinter(io.out), candidate: &admission.Snapshot{Policies: set}, counts: map[[2]events.Verdict]int{}}
	if err := s.run(ctx, l, tenant, since, until); err != nil {
		return err
	}
	if err := s.finish(); err != nil {
		return err
	}
	if c.ExitCode && s.changed > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// moment reads a time, or a duration back from now; "" is now.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(or(text, "0s")); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := events.ParseTime(text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%.60q is neither a duration such as 24h nor an RFC 3339 time such as 2026-11-20T09:00:00Z", text)
}

// openLog connects to the log as operator.
func openLog(ctx context.Context, f target.Flags) (recorded.Log, func(), string, error) {
	t, err := f.Resolve()
	if err != nil {
		return recorded.Log{}, nil, "", err
	}
	o, err := operate(ctx, t)
	if err != nil {
		return recorded.Log{}, nil, "", err
	}
	return recorded.Log{JS: o.js, Stream: t.Stream, Space: subject.Space{Prefix: t.Prefix}}, o.nc.Close, t.Tenant, nil
}

// simulation decides recorded requests again.
type simulation struct {
	cmd       *policySimulateCmd
	io        stdio
	p         *printer
	candidate *admission.Snapshot
	policies  *recorded.Policies
	stores    *pastStores

	from, to                  uint64
	counts                    map[[2]events.Verdict]int // old, new
	total, changed, cannot    int
	otherReasons              int
	listedChanged, listedGone int
	begun                     time.Time
}

func (s *simulation) run(ctx context.Context, l recorded.Log, tenant string, since, until time.Time) (err error) {
	s.begun = time.Now()
	st, err := streams.StreamState(ctx, l.JS, l.Stream)
	if err != nil {
		return err
	}
	if s.from, err = l.SeqAt(ctx, st, since); err != nil {
		return err
	}
	if s.to, err = l.SeqAt(ctx, st, until.Add(1)); err != nil {
		return err
	}
	if s.to--; s.to < s.from {
		return nil
	}
	if s.policies, err = l.Policies(ctx); err != nil {
		return err
	}
	s.stores = newPastStores(ctx, l.JS)
	tell := countProgress(s.io, "simulating")
	progress := func(seq uint64) { tell(seq-s.from+1, s.to-s.from+1) }
	err = l.Scan(ctx, tenant, s.from, s.to, progress, func(e recorded.Entry) error { return s.entry(ctx, e) })
	return errors.Join(err, s.stores.failed)
}

// change is one decision that would be another, or that cannot be made again.
type change struct {
	DecisionID string          `json:"decision_id,omitempty"`
	Seq        uint64          `json:"seq"`
	At         events.Time     `json:"decided_at,omitzero"`
	Tenant     string          `json:"tenant,omitempty"`
	Session    string          `json:"session,omitempty"`
	Tool       string          `json:"tool,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Old        events.Verdict  `json:"old,omitempty"`
	New        events.Verdict  `json:"new,omitempty"`
	OldReasons []events.Reason `json:"old_reasons,omitempty"`
	NewReasons []events.Reason `json:"new_reasons,omitempty"`
	Cannot     []string        `json:"cannot_be_replayed,omitempty"`
}

func (s *simulation) entry(ctx context.Context, e recorded.Entry) error {
	s.total++
	d := e.Decision
	out, err := s.shift(ctx, e)
	if err != nil {
		return err
	}
	c := change{DecisionID: d.DecisionID, Seq: e.Message.Seq, At: d.DecidedAt, Tenant: d.Tenant, Session: d.Session, Tool: d.Tool,
		ToolCallID: d.ToolCallID, Old: d.Verdict, OldReasons: d.Reasons}
	if len(out.Unknown) > 0 {
		s.cannot++
		c.Cannot = out.Unknown
		return s.list(c, &s.listedGone)
	}
	s.counts[[2]events.Verdict{d.Verdict, out.Verdict}]++
	if !out.Changed(d) {
		if codes(out.Reasons) != codes(d.Reasons) {
			s.otherReasons++
		}
		return nil
	}
	s.changed++
	c.New, c.NewReasons = out.Verdict, out.Reasons
	return s.list(c, &s.listedChanged)
}

// shift decides an entry by what decided then, and by the candidate.
func (s *simulation) shift(ctx context.Context, e recorded.Entry) (replay.Outcome, error) {
	switch {
	case e.Err != nil:
		return replay.Outcome{Unknown: []string{"it is no decision record: " + e.Err.Error()}}, nil
	case e.Request == nil:
		return replay.Outcome{Unknown: []string{"its request is not in the log"}}, nil
	}
	in, err := s.policies.ForDecision(ctx, e.Decision, e.Message.Seq)
	switch {
	case errors.Is(err, recorded.ErrNoPolicies):
		return replay.Outcome{Unknown: []string{err.Error()}}, nil
	case err != nil:
		return replay.Outcome{}, err
	case in.GoneErr != nil:
		return replay.Outcome{Unknown: []string{in.GoneErr.Error()}}, nil
	}
	r, k := recordOf(e), s.stores.known(digest.Keys{})
	return replay.CandidateOutcome(e.Decision, replay.Decide(r, snapshotOf(in), k), replay.Decide(r, s.candidate, k)), nil
}

func (s *simulation) list(c change, listed *int) error {
	if s.cmd.Most > 0 && *listed >= s.cmd.Most {
		return nil
	}
	*listed++
	if s.cmd.JSON {
		return compactJSON(s.io, c)
	}
	what := pad(or(c.Tool, "-"), 24) + " " + pad(or(c.ToolCallID, "-"), 20)
	if len(c.Cannot) > 0 {
		s.p.printf("%s  %s  %s  cannot be replayed: %s\n", s.p.paint(faint, "?            "), c.DecisionID, what, clean(strings.Join(c.Cannot, "; "), 300))
		return nil
	}
	s.p.printf("%s -> %s  %s  %s\n", s.p.paint(verdictColour[c.Old], fmt.Sprintf("%-5s", c.Old)), s.p.paint(verdictColour[c.New], fmt.Sprintf("%-5s", c.New)),
		c.DecisionID, what)
	s.p.printf("      was %s\n      now %s\n", clean(reasonList(c.OldReasons), 300), clean(reasonList(c.NewReasons), 300))
	return nil
}

// simulationSummary is the last line of JSON.
type simulationSummary struct {
	Decisions    int            `json:"decisions"`
	Changed      int            `json:"changed"`
	OtherReasons int            `json:"same_verdict_other_reasons"`
	Cannot       int            `json:"cannot_be_replayed"`
	From         uint64         `json:"from_seq"`
	To           uint64         `json:"to_seq"`
	Counts       []verdictCount `json:"counts"`
	Digest       string         `json:"candidate_digest"`
}

type verdictCount struct {
	Old   events.Verdict `json:"old"`
	New   events.Verdict `json:"new"`
	Count int            `json:"count"`
}

func (s *simulation) finish() error {
	sum := simulationSummary{Decisions: s.total, Changed: s.changed, OtherReasons: s.otherReasons, Cannot: s.cannot, From: s.from, To: s.to,
		Counts: []verdictCount{}, Digest: s.candidate.Policies.Digest()}
	for _, old := range events.Verdicts {
		for _, new := range events.Verdicts {
			if n := s.counts[[2]events.Verdict{old, new}]; n > 0 {
				sum.Counts = append(sum.Counts, verdictCount{old, new, n})
			}
		}
	}
	if s.cmd.JSON {
		return compactJSON(s.io, map[string]simulationSummary{"summary": sum})
	}
	if s.total == 0 {
		s.p.printf("the log has no decision in this time\n")
		return nil
	}
	if rest := s.changed - s.listedChanged; rest > 0 {
		s.p.printf("... and %d more changes (--most 0 lists all)\n", rest)
	}
	if rest := s.cannot - s.listedGone; rest > 0 {
		s.p.printf("... and %d more that cannot be replayed (--most 0 lists all)\n", rest)
	}
	s.p.printf("%s\n", s.p.paint(bold, fmt.Sprintf("%d decisions, %d would have another verdict", s.total, s.changed)))
	slices.SortStableFunc(sum.Counts, func(a, b verdictCount) int { return b.Count - a.Count })
	for _, n := range sum.Counts {
		text := fmt.Sprintf("  %-5s -> %-5s %8d", n.Old, n.New, n.Count)
		if n.Old == n.New {
			text = fmt.Sprintf("  %-5s unchanged %6d", n.Old, n.Count)
		}
		s.p.printf("%s\n", text)
	}
	if s.otherReasons > 0 {
		s.p.printf("  %d keep their verdict for other reasons\n", s.otherReasons)
	}
	if s.cannot > 0 {
		s.p.printf("  %s\n", s.p.paint(yellow, fmt.Sprintf("%d cannot be replayed", s.cannot)))
	}
	return nil
}
