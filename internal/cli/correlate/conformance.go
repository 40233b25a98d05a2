package correlate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/conformance"
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// ConformanceCmd is `countersign conformance`.
type ConformanceCmd struct {
	target.Flags
	Publisher  string   `help:"Only this publisher."`
	Session    string   `help:"Only this session, as one subject."`
	Sessions   bool     `help:"One report for each session, beside that of its publisher."`
	Profile    string   `help:"Only this level or profile: bronze, silver, gold, admission-bound, action-governance, web-evidence, level-1, level-2 or level-3."`
	Since      string   `help:"Only what was recorded since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Manifest   string   `help:"The publisher's AgentHook manifest: event types that it does not expose are excused if they never appear." placeholder:"FILE"`
	Declared   bool     `help:"Excuse in the same way what the manifests in force declare (countersign publisher put). Needs an operator's access."`
	NotExposed []string `help:"Event types that the runtime does not expose, as --manifest would say." placeholder:"TYPE,..."`
	Protocol   string   `help:"Protocol of a recording: aaep or agenthook. Only with FILE."`
	Now        string   `help:"How far time passed after a recording, RFC 3339, as check takes it. Only with FILE." placeholder:"TIME"`
	Fail       bool     `help:"Exit 1 when a profile that is reported is not met."`
	JSON       bool     `name:"json" help:"Print JSON Lines, one report each."`
	File       string   `arg:"" optional:"" help:"A recording to judge instead of a running system, as check takes it. - for standard input."`
}

func (c *ConformanceCmd) Run(ctx context.Context, io ui.Stdio) error {
	profiles, err := c.profiles()
	if err != nil {
		return err
	}
	excused := excuses{}
	if excused.all, err = c.excused(); err != nil {
		return err
	}
	if c.Declared {
		if err := excused.inForce(ctx, c); err != nil {
			return err
		}
	}
	var tally *conformance.Tally
	if c.File != "" {
		tally, err = c.recording(io)
	} else {
		tally, err = c.evidence(ctx, io)
	}
	if err != nil {
		return err
	}
	return c.report(io, tally, profiles, excused)
}

func (c *ConformanceCmd) profiles() ([]profile.Profile, error) {
	if c.File != "" && c.Declared {
		return nil, ui.UsageError{Err: errors.New("--declared is about a running system: give a recording's manifest with --manifest FILE")}
	}
	if c.File == "" && (c.Protocol != "" || c.Now != "") {
		return nil, ui.UsageError{Err: errors.New("--protocol and --now are for a recording: name its file")}
	}
	if published := protocol.Published(); c.File != "" && !slices.Contains(published, c.Protocol) {
		return nil, ui.UsageError{Err: fmt.Errorf("a recording needs --protocol %s", strings.Join(published, " or --protocol "))}
	}
	list := conformance.Profiles()
	if c.Protocol != "" {
		list = slices.DeleteFunc(list, func(p profile.Profile) bool { return p.Protocol != c.Protocol })
	}
	if c.Profile == "" {
		return list, nil
	}
	var names []string
	for _, p := range list {
		if p.Name == c.Profile {
			return []profile.Profile{p}, nil
		}
		names = append(names, p.Name)
	}
	return nil, ui.UsageError{Err: fmt.Errorf("there is no profile %.60q here; there are %s", c.Profile, strings.Join(names, ", "))}
}

// recording tallies the events of a file and the findings of check in it.
func (c *ConformanceCmd) recording(io ui.Stdio) (*conformance.Tally, error) {
	o := correlation.CheckOptions{}
	if c.Now != "" {
		var err error
		if o.Now, err = ui.ParseNow(c.Now); err != nil {
			return nil, ui.UsageError{Err: err}
		}
	}
	input, err := ui.ReadInput(io, c.File)
	if err != nil {
		return nil, err
	}
	lines, err := correlation.ParseRecording(input)
	if err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("%s: %w", c.File, err)}
	}
	found, err := correlation.Check(c.Protocol, lines, o)
	if err != nil {
		return nil, ui.UsageError{Err: err}
	}
	return conformance.TallyRecording(c.Protocol, lines, found), nil
}

// evidence tallies the tenant's evidence, over all shards.
func (c *ConformanceCmd) evidence(ctx context.Context, io ui.Stdio) (*conformance.Tally, error) {
	since, err := ui.ParseSince(c.Since, 0)
	if err != nil {
		return nil, err
	}
	t, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.DB.Close() }()
	tally := conformance.New()
	take := func(r storage.EvidenceRow) error {
		if rec, err := evidence.ParseRecord([]byte(r.Record)); err == nil { // verify reports faulty records
			tally.AddMessage(l.Space, t.Tenant, events.LogMessage{Seq: r.Seq, Subject: rec.Subject, Header: rec.Headers, Body: rec.Body})
		}
		return nil
	}
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	if err := proof.NoteExpired(ctx, io, l, t.Tenant, subject.TokenValue(c.Session), "they are not looked at"); err != nil {
		return nil, err
	}
	if c.Session != "" {
		err = sessionRows(ctx, l, t.Tenant, subject.TokenValue(c.Session), since, take)
	} else {
		err = tenantRows(ctx, l, t.Tenant, since, take)
	}
	if err == nil {
		fmt.Fprintln(io.Err, "note: "+proof.OnIndex.Text+"; countersign verify proves the index")
	}
	return tally, err
}

// sessionRows passes a session's records to take, and the replies to questions, which name no
// session, and the rule switches.
func sessionRows(ctx context.Context, l evidencereader.Reader, tenant, session string, since time.Time, take func(storage.EvidenceRow) error) error {
	parts, err := l.Session(ctx, tenant, session)
	if errors.Is(err, evidencereader.ErrNoSession) {
		if like := system.CheckSession(ctx, l.DB, tenant, session); like != nil {
			return like
		}
		return err
	}
	if err != nil {
		return err
	}
	for _, part := range parts {
		for _, r := range part.Rows {
			if r.BrokerTime.Before(since) {
				continue
			}
			if err := take(storage.EvidenceRow{Seq: r.Seq, Record: r.Record}); err != nil {
				return err
			}
		}
		if err := replies(ctx, l, tenant, part.Shard, take); err != nil {
			return err
		}
		if err := l.DB.ControlRecords(ctx, part.Shard, storage.AllSequences, take); err != nil {
			return err
		}
	}
	return nil
}

// replies passes the replies of a shard to take.
func replies(ctx context.Context, l evidencereader.Reader, tenant, shard string, take func(storage.EvidenceRow) error) error {
	for _, row := range protocol.Rows {
		for _, aside := range row.SessionlessEvents {
			if !aside.IsReply {
				continue
			}
			if err := l.DB.EventsOf(ctx, shard, tenant, aside.Type, storage.AllSequences, take); err != nil {
				return err
			}
		}
	}
	return nil
}

func tenantRows(ctx context.Context, l evidencereader.Reader, tenant string, since time.Time, take func(storage.EvidenceRow) error) error {
	shards, err := l.Shards(ctx)
	if err != nil {
		return err
	}
	// A day ahead, because the broker's clock may be ahead.
	until := time.Now().Add(24 * time.Hour)
	for _, shard := range shards {
		if err := l.DB.ScanTenant(ctx, shard, tenant, since, until, take); err != nil {
			return err
		}
		if err := l.DB.ControlRecords(ctx, shard, storage.AllSequences, take); err != nil {
			return err
		}
	}
	return nil
}
