package policycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/replay"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/recorded"
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

func (c *policySimulateCmd) Run(ctx context.Context, io ui.Stdio) error {
	since, until, err := parseSpan("--since", c.Since, c.Until, time.Now())
	if err != nil {
		return err
	}
	_, set, err := LoadPolicies(c.Dir)
	if err != nil {
		return err
	}
	l, closeLog, tenant, err := system.OpenLog(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer closeLog()
	if c.AllTenants {
		tenant = ""
	}
	s := &simulation{cmd: c, io: io, p: ui.NewPrinter(io.Out), candidate: &admission.Config{Policies: set}, counts: map[[2]events.Verdict]int{}}
	if err := s.run(ctx, l, tenant, since, until); err != nil {
		return err
	}
	if err := s.finish(); err != nil {
		return err
	}
	if c.ExitCode && s.changed > 0 {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

// simulation makes recorded decisions again.
type simulation struct {
	cmd       *policySimulateCmd
	io        ui.Stdio
	p         *ui.Printer
	candidate *admission.Config
	quiet     bool // only count
	policies  *recorded.Policies
	stores    *pastStores
	shifted   replay.CountShift // of the candidate's counters

	from, to                  uint64
	counts                    map[[2]events.Verdict]int // old, new
	total, changed, cannot    int
	otherReasons              int
	listedChanged, listedGone int
}

func (s *simulation) run(ctx context.Context, l recorded.Log, tenant string, since, until time.Time) (err error) {
	if s.from, s.to, err = logSpan(ctx, l, since, until); err != nil || s.to < s.from {
		return err
	}
	if s.policies, err = l.Policies(ctx); err != nil {
		return err
	}
	s.stores = newPastStores(ctx, l.JS)
	tell := ui.CountProgress(s.io, "simulating")
	progress := func(seq uint64) { tell(seq-s.from+1, s.to-s.from+1) }
	err = l.Scan(ctx, tenant, s.from, s.to, progress, func(e recorded.Entry) error { return s.entry(ctx, e) })
	return errors.Join(err, s.stores.failed)
}

// change is a decision that would differ, or that cannot be made again.
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
	candidate, out, err := s.shift(ctx, e)
	if err != nil {
		return err
	}
	s.shifted.Add(d, candidate, out)
	c := change{DecisionID: d.DecisionID, Seq: e.Message.Seq, At: d.DecidedAt, Tenant: d.Tenant, Session: d.Session, Tool: d.Tool,
		ToolCallID: d.ToolCallID, Old: d.EnforcedVerdict(), OldReasons: d.Reasons}
	if len(out.Unknown) > 0 {
		s.cannot++
		c.Cannot = out.Unknown
		return s.list(c, &s.listedGone)
	}
	s.counts[[2]events.Verdict{c.Old, out.Verdict}]++
	if !out.Changed(d) {
		if ui.ReasonCodes(out.Reasons) != ui.ReasonCodes(d.Reasons) {
			s.otherReasons++
		}
		return nil
	}
	s.changed++
	c.New, c.NewReasons = out.Verdict, out.Reasons
	return s.list(c, &s.listedChanged)
}

// shift decides an entry with the policies of the time and with the candidate. The result is that of the
// candidate, zero if there is none.
func (s *simulation) shift(ctx context.Context, e recorded.Entry) (replay.Result, replay.Outcome, error) {
	unknown := func(why string) (replay.Result, replay.Outcome, error) {
		return replay.Result{}, replay.Outcome{Unknown: []string{why}}, nil
	}
	switch {
	case e.Err != nil:
		return unknown("it is no decision record: " + e.Err.Error())
	case e.Request == nil:
		return unknown("its request is not in the log")
	}
	in, err := s.policies.ForDecision(ctx, e.Decision, e.Message.Seq)
	switch {
	case errors.Is(err, recorded.ErrNoPolicies):
		return unknown(err.Error())
	case err != nil:
		return replay.Result{}, replay.Outcome{}, err
	case in.GoneErr != nil:
		return unknown(in.GoneErr.Error())
	}
	r, k := recordOf(e), s.stores.known(digest.Keys{})
	base := replay.Decide(r, configOf(in), k)
	k.Counts = &s.shifted
	candidate := replay.Decide(r.Enforced(), s.candidate, k)
	return candidate, replay.CandidateOutcome(e.Decision, base, candidate), nil
}

func (s *simulation) list(c change, listed *int) error {
	if s.quiet || s.cmd.Most > 0 && *listed >= s.cmd.Most {
		return nil
	}
	*listed++
	if s.cmd.JSON {
		return ui.WriteJSON(s.io, c)
	}
	what := ui.Pad(cmp.Or(c.Tool, "-"), 24) + " " + ui.Pad(cmp.Or(c.ToolCallID, "-"), 20)
	if len(c.Cannot) > 0 {
		s.p.Printf("%s  %s  %s  cannot be replayed: %s\n", s.p.Paint(ui.Faint, "?            "), c.DecisionID, what, ui.Clean(strings.Join(c.Cannot, "; "), 300))
		return nil
	}
	s.p.Printf("%s -> %s  %s  %s\n", s.p.Paint(ui.VerdictColour[c.Old], fmt.Sprintf("%-5s", c.Old)), s.p.Paint(ui.VerdictColour[c.New], fmt.Sprintf("%-5s", c.New)),
		c.DecisionID, what)
	s.p.Printf("      was %s\n      now %s\n", ui.Clean(reasonList(c.OldReasons), 300), ui.Clean(reasonList(c.NewReasons), 300))
	return nil
}

// simulationSummary is the last line of the JSON output.
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

func (s *simulation) summary() simulationSummary {
	sum := simulationSummary{Decisions: s.total, Changed: s.changed, OtherReasons: s.otherReasons, Cannot: s.cannot, From: s.from, To: s.to,
		Counts: []verdictCount{}, Digest: s.candidate.Policies.Digest()}
	for _, old := range events.Verdicts {
		for _, changed := range events.Verdicts {
			if n := s.counts[[2]events.Verdict{old, changed}]; n > 0 {
				sum.Counts = append(sum.Counts, verdictCount{old, changed, n})
			}
		}
	}
	return sum
}

func (s *simulation) finish() error {
	sum := s.summary()
	if s.cmd.JSON {
		return ui.WriteJSON(s.io, map[string]simulationSummary{"summary": sum})
	}
	if s.total == 0 {
		s.p.Printf("the log has no decision in this time\n")
		return nil
	}
	if rest := s.changed - s.listedChanged; rest > 0 {
		s.p.Printf("... and %d more changes (--most 0 lists all)\n", rest)
	}
	if rest := s.cannot - s.listedGone; rest > 0 {
		s.p.Printf("... and %d more that cannot be replayed (--most 0 lists all)\n", rest)
	}
	s.p.Printf("%s\n", s.p.Paint(ui.Bold, fmt.Sprintf("%d decisions, %d would have another verdict", s.total, s.changed)))
	slices.SortStableFunc(sum.Counts, func(a, b verdictCount) int { return b.Count - a.Count })
	for _, n := range sum.Counts {
		text := fmt.Sprintf("  %-5s -> %-5s %8d", n.Old, n.New, n.Count)
		if n.Old == n.New {
			text = fmt.Sprintf("  %-5s unchanged %6d", n.Old, n.Count)
		}
		s.p.Printf("%s\n", text)
	}
	if s.otherReasons > 0 {
		s.p.Printf("  %d keep their verdict for other reasons\n", s.otherReasons)
	}
	if s.cannot > 0 {
		s.p.Printf("  %s\n", s.p.Paint(ui.Yellow, fmt.Sprintf("%d cannot be replayed", s.cannot)))
	}
	return nil
}
