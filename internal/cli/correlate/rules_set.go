package correlate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

type rulesSetCmd struct {
	target.Flags
	Rule string `arg:"" help:"A rule or check, as findings name it: input_drift, AAEP-C-100."`
	Mode string `arg:"" help:"off: its findings are not put out; warn: they are; enforce: they are, marked as enforced." enum:"off,warn,enforce"`
	New  bool   `help:"The tenant has not sent anything yet, so the log does not know it."`
	JSON bool   `name:"json" help:"Print JSON."`
}

func (c *rulesSetCmd) Run(ctx context.Context, io ui.Stdio) error {
	rule, err := decidable(c.Rule)
	if err != nil {
		return err
	}
	b, err := openRules(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if known, err := b.known(ctx); err != nil {
		return err
	} else if !known && !c.New {
		return b.stranger()
	}
	if err := b.set(ctx, rule, c.Mode); err != nil {
		return err
	}
	if c.JSON {
		return ui.WriteJSON(io, switchLine{b.Tenant, rule, c.Mode})
	}
	fmt.Fprintf(io.Out, "%s: %s for tenant %s, from where the correlator notes it on the log\n", rule, c.Mode, ui.Clean(b.Tenant, 64))
	return nil
}

// decidable returns a rule that can have findings.
func decidable(name string) (string, error) {
	for _, r := range AllRules() {
		switch {
		case !strings.EqualFold(r.ID, name):
		case r.Status == catalogue.Undecidable:
			return "", ui.UsageError{Err: fmt.Errorf("%s has no findings: %s", r.ID, r.Reason)}
		case r.auditors:
			return "", ui.UsageError{Err: fmt.Errorf("%s cannot be switched: it is the auditor's, and says what is wrong with the evidence", r.ID)}
		default:
			return r.ID, nil
		}
	}
	return "", ui.UsageError{Err: fmt.Errorf("there is no rule %.60q; \"countersign rules list\" has them all", name)}
}

// rulesBucket gives an operator access to the bucket of rule switches.
type rulesBucket struct{ system.Bucket }

func openRules(ctx context.Context, f target.Flags) (*rulesBucket, error) {
	b, err := system.OpenBucket(ctx, f, streams.BucketRules)
	return &rulesBucket{b}, err
}

// read returns the tenant's switches and their revision, 0 if there are none.
func (b *rulesBucket) read(ctx context.Context) (events.RuleSwitches, uint64, error) {
	none := events.RuleSwitches{Tenant: b.Tenant, Rules: map[string]string{}}
	e, err := b.KV.Get(ctx, events.RuleKey(b.Tenant))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return none, 0, nil
	}
	if err != nil {
		return none, 0, fmt.Errorf("reading the switches of tenant %s: %w", ui.Clean(b.Tenant, 64), err)
	}
	s, err := events.DecodeRecord[events.RuleSwitches](e.Value())
	if err != nil || s.Tenant != b.Tenant {
		return none, e.Revision(), fmt.Errorf("the switches of tenant %s are damaged; delete the key %s of bucket %s and set them again", ui.Clean(b.Tenant, 64), e.Key(), streams.BucketRules)
	}
	if s.Rules == nil {
		s.Rules = map[string]string{}
	}
	return s, e.Revision(), nil
}

// known reports whether the tenant is known; a tenant with switches is.
func (b *rulesBucket) known(ctx context.Context) (bool, error) {
	if _, revision, _ := b.read(ctx); revision > 0 {
		return true, nil
	}
	return b.KnowsTenant(ctx, b.Tenant)
}

// stranger is the error for an unknown tenant.
func (b *rulesBucket) stranger() error {
	here := ""
	if r := b.Target.ReadyInfo(); r != nil {
		here = fmt.Sprintf(", and the system of this ready file is tenant %s's", ui.Clean(r.Tenant, 64))
	}
	return fmt.Errorf("there is no tenant %q: the log %s holds nothing of it%s; check the name, or add --new for a tenant that has not sent anything yet",
		ui.Clean(b.Tenant, 64), b.Target.Stream, here)
}

// set changes one switch; concurrent changes of others are kept.
func (b *rulesBucket) set(ctx context.Context, rule, mode string) error {
	return b.Change(ctx, events.RuleKey(b.Tenant), func() ([]byte, uint64, error) {
		s, revision, err := b.read(ctx)
		if err != nil {
			return nil, 0, err
		}
		if s.Rules[rule] = mode; mode == events.RuleWarn {
			delete(s.Rules, rule)
		}
		body, err := events.Encode(s)
		return body, revision, err
	})
}

// switchLine is a switch in the JSON output.
type switchLine struct {
	Tenant string `json:"tenant"`
	Rule   string `json:"rule"`
	Mode   string `json:"mode"`
}

type rulesSwitchesCmd struct {
	target.Flags
	JSON bool `name:"json" help:"One JSON object a line."`
}

// Run shows the tenant's switches; rules without a switch warn.
func (c *rulesSwitchesCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openRules(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	s, _, err := b.read(ctx)
	if err != nil {
		return err
	}
	list := []switchLine{}
	for _, rule := range slices.Sorted(maps.Keys(s.Rules)) {
		list = append(list, switchLine{s.Tenant, rule, s.Rules[rule]})
	}
	if c.JSON {
		return ui.WriteJSONLines(io.Out, list)
	}
	if known, err := b.known(ctx); err != nil {
		return err
	} else if !known {
		fmt.Fprintf(io.Err, "%v\n", b.stranger())
	}
	if len(list) == 0 {
		fmt.Fprintf(io.Out, "every rule is in mode warn for tenant %s\n", ui.Clean(s.Tenant, 64))
		return nil
	}
	var t ui.Listing
	for _, l := range list {
		t.Row(ui.Clean(l.Rule, 64), ui.Clean(l.Mode, 16))
	}
	t.Row("all others", "warn")
	return t.Print(io.Out)
}
