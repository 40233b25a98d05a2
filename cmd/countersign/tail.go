package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

type tailCmd struct {
	target.Flags
	Verdict  string `help:"Only this verdict: allow, ask, defer or deny." enum:",allow,ask,defer,deny" default:""`
	Session  string `help:"Only this session."`
	Findings bool   `help:"Follow findings too."`
	JSON     bool   `name:"json" help:"Print the records as they are, one a line."`
	Count    int    `help:"Stop after this many (default: never)." placeholder:"N"`
}

func (c *tailCmd) Run(ctx context.Context, io stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	nc, err := t.Connect(ctx, target.Subscriber)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithCancel(ctx) // frees a subscription that waits for its turn
	defer cancel()
	ch := make(chan *nats.Msg)
	for _, s := range c.subjects(t.Tenant) {
		if err := follow(ctx, nc, s, ch); err != nil {
			return fmt.Errorf("subscribing to %s: %w", s, err)
		}
	}
	if err := confirm(ctx, nc); err != nil {
		return err
	}
	p := newPrinter(io.out)
	for seen := 0; c.Count == 0 || seen < c.Count; {
		select {
		case <-ctx.Done():
			return nil
		case m := <-ch:
			printed, err := c.print(p, m)
			if err != nil {
				return err
			}
			if printed {
				seen++
			}
		}
	}
	return nil
}

// follow hands on what comes on a subject. However far behind the reader is,
// nothing is dropped here.
func follow(ctx context.Context, nc *nats.Conn, subj string, to chan<- *nats.Msg) error {
	sub, err := nc.Subscribe(subj, func(m *nats.Msg) {
		select {
		case to <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(-1, -1)
}

// confirm returns once the server has taken all subscriptions, or says which it
// has not.
func confirm(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("this user may not follow decisions; use a subscriber's credentials: %w", err)
	}
	return nil
}

const confirmTimeout = 5 * time.Second

func (c *tailCmd) subjects(tenant string) []string {
	token := func(v string) string {
		if v == "" {
			return "*"
		}
		return subject.Escape(v)
	}
	prefix := c.Prefix + "."
	list := []string{prefix + string(subject.Decisions) + "." + subject.Escape(tenant) + "." + token(c.Verdict) + "." + token(c.Session)}
	if c.Findings {
		list = append(list, prefix+string(subject.Findings)+"."+subject.Escape(tenant)+".*."+token(c.Session))
	}
	return list
}

// print writes one record, and reports whether it was one.
func (c *tailCmd) print(p *printer, m *nats.Msg) (printed bool, err error) {
	if c.JSON {
		var line bytes.Buffer
		if json.Compact(&line, m.Data) != nil {
			return false, nil
		}
		_, err := fmt.Fprintln(p.w, line.String())
		return true, err
	}
	parsed, err := subject.Space{Prefix: c.Prefix}.Parse(m.Subject)
	if err != nil {
		return false, nil // not ours
	}
	if parsed.Class == subject.Findings {
		var f events.Finding
		if err := json.Unmarshal(m.Data, &f); err != nil {
			return false, nil
		}
		p.finding(f)
		return true, nil
	}
	var d events.Decision
	if err := json.Unmarshal(m.Data, &d); err != nil {
		return false, nil
	}
	p.decision(d)
	return true, nil
}
