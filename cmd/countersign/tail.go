package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

type tailCmd struct {
	target.Flags
	Verdict   string `help:"Only decisions with this verdict: allow, ask, defer or deny." enum:",allow,ask,defer,deny" default:""`
	Session   string `help:"Only this session."`
	Tool      string `help:"Only this tool. Findings name none and are left out."`
	Agent     string `help:"Only this agent. Findings and approvals name none and are left out."`
	Findings  bool   `help:"Follow findings too."`
	Rule      string `help:"Only findings of this rule, and nothing else." placeholder:"RULE"`
	Severity  string `help:"Only findings of this severity or worse, and nothing else: info, low, medium, high or critical." enum:",info,low,medium,high,critical" default:""`
	Enforced  bool   `help:"Only findings of rules that the tenant wants enforced (see: countersign rules set), and nothing else."`
	Calls     bool   `help:"Follow the records of calls too."`
	Approvals bool   `help:"Follow the records of approvals too."`
	Since     string `help:"Begin with what was stored since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	After     uint64 `help:"Begin behind this sequence of the log." placeholder:"SEQ"`
	Resume    string `help:"Go on where this file says, and keep it up to date; without the file, begin as the other flags say." type:"path" placeholder:"FILE"`
	JSON      bool   `name:"json" help:"Print the records as they are, one a line."`
	Count     int    `help:"Stop after this many (default: never)." placeholder:"N"`

	seen int
}

func (c *tailCmd) Run(ctx context.Context, io stdio) error {
	if c.Since != "" && c.After > 0 {
		return usageError{errors.New("--since and --after exclude each other")}
	}
	if err := knownRule(c.Rule); err != nil {
		return err
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	nc, err := t.Connect(ctx, target.Subscriber)
	if err != nil {
		return err
	}
	defer nc.Close()
	o := client.FollowOptions{Tenant: t.Tenant, Space: subject.Space{Prefix: c.Prefix}, Kinds: c.kinds(), Session: c.Session, OnTrouble: troubleOn(io)}
	if c.Approvals {
		o.Session = "" // their subjects have none: all are read, and filtered here
	}
	if c.Verdict != "" && slices.Contains(o.Kinds, string(subject.Decisions)) {
		o.States = map[string]string{string(subject.Decisions): c.Verdict}
	}
	if err := c.begin(&o); err != nil {
		return err
	}
	p := newPrinter(io.out)
	err = client.Follow(ctx, nc, o, func(page []events.Output, at client.Position) error { return c.take(p, page, at) })
	if errors.Is(err, errSeenAll) {
		return nil
	}
	return err
}

// errSeenAll ends a tail with --count.
var errSeenAll = errors.New("enough")

// take prints a page and moves the position behind what was printed.
func (c *tailCmd) take(p *printer, page []events.Output, at client.Position) error {
	var enough error
	for _, out := range page {
		printed, err := c.print(p, out)
		if err != nil {
			return err
		}
		if printed {
			c.seen++
		}
		if c.Count > 0 && c.seen >= c.Count {
			at.After, enough = out.Seq, errSeenAll
			break
		}
	}
	if c.Resume != "" {
		if err := keepPosition(c.Resume, at); err != nil {
			return err
		}
	}
	return enough
}

// begin says where to begin: at the kept position, if there is one.
func (c *tailCmd) begin(o *client.FollowOptions) (err error) {
	if c.Resume != "" {
		if o.From, err = positionIn(c.Resume); err != nil || o.From != (client.Position{}) {
			return err
		}
	}
	o.From.After = c.After
	if c.Since != "" {
		if o.Since, err = moment(c.Since, time.Now()); err != nil {
			return usageError{fmt.Errorf("--since %w", err)}
		}
	}
	return nil
}

// kinds are what is followed.
func (c *tailCmd) kinds() (list []string) {
	onlyFindings := c.Rule != "" || c.Severity != "" || c.Enforced
	for _, k := range []struct {
		class  subject.Class
		wanted bool
	}{
		{subject.Decisions, !onlyFindings},
		{subject.Findings, c.Findings || onlyFindings},
		{subject.Calls, c.Calls && !onlyFindings},
		{subject.Approvals, c.Approvals && !onlyFindings},
	} {
		if k.wanted {
			list = append(list, string(k.class))
		}
	}
	return list
}

// troubleOn tells once that nothing can be heard, and once that it can again.
func troubleOn(io stdio) func(error) {
	return func(err error) {
		if err == nil {
			fmt.Fprintln(io.err, "countersign: there again; nothing was missed")
			return
		}
		fmt.Fprintf(io.err, "countersign: waiting: %v\n", err)
	}
}
