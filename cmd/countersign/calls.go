package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

type callsCmd struct {
	target.Flags
	proveFlags
	Session string `help:"Only this session." type:"session"`
	State   string `help:"Only calls in this state: open, completed, failed, denied, abandoned or orphaned." enum:",open,completed,failed,denied,abandoned,orphaned" default:""`
	Tool    string `help:"Only calls of this tool, by its exact name."`
	Since   string `help:"Only calls of which there was news since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Limit   int    `help:"The newest so many; 0 for all." default:"100"`
	JSON    bool   `name:"json" help:"Print JSON Lines: each call's newest record, its place in the log and its durations."`

	stands map[callPlace]events.Verdict
}

// callPlace is where a call's record is.
type callPlace struct {
	shard string
	seq   uint64
}

// callView is one call as other programs read it.
type callView struct {
	Shard   string          `json:"shard"`
	Seq     uint64          `json:"seq"`
	At      events.Time     `json:"at"` // broker time of the record
	Call    json.RawMessage `json:"call"`
	Decided *float64        `json:"decided_seconds,omitempty"` // from request to verdict, by the broker's clock
	Started *float64        `json:"started_seconds,omitempty"` // from verdict to announcement, likewise
	Ran     *float64        `json:"ran_seconds,omitempty"`     // from announcement to completion, likewise
	Proved  bool            `json:"proved"`                    // the list was shown to be complete and unchanged
	Stands  events.Verdict  `json:"verdict_so_far,omitempty"`  // of an open call, whose record was written before
}

func (c *callsCmd) Run(ctx context.Context, io stdio) error {
	since, err := sinceFlag(c.Since, c.Limit)
	if err != nil {
		return err
	}
	t, l, err := evidenceOf(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	own, restsOn, done, err := c.proved(ctx, io, l, t, evidencereader.CopyFilter{Tenant: t.Tenant})
	if err != nil {
		return err
	}
	defer done()
	rows, err := own.DB.LatestCalls(ctx, t.Tenant, storage.CallFilter{Session: c.Session, State: c.State, Tool: c.Tool, Since: since, Limit: oneMore(c.Limit)})
	if err != nil {
		return err
	}
	if len(rows) == 0 && c.Session != "" {
		if err := knownSession(ctx, own.DB, t.Tenant, c.Session); err != nil {
			return err
		}
	}
	rows, more := newest(rows, c.Limit)
	if c.stands, err = verdictsSoFar(ctx, own.DB, t.Tenant, rows); err != nil {
		return err
	}
	p := newPrinter(io.out)
	if !c.JSON {
		p.printf("%s\n", p.paint(bold, fmt.Sprintf("%-23s  %-9s  %-7s  %-12s  %-24s  %-26s  %-20s  %9s  %9s",
			"news at (UTC)", "state", "verdict", "match", "tool", "call", "session", "decided", "ran")))
	}
	for _, r := range rows {
		if err := c.print(io, p, r); err != nil {
			return err
		}
	}
	endList(io, p, c.JSON, len(rows), more, "call")
	printBasis(io, c.JSON, len(rows), restsOn)
	return noteExpired(ctx, io, own, t.Tenant, c.Session, notListed)
}

func (c *callsCmd) print(io stdio, p *printer, r storage.EvidenceRow) error {
	body, call, err := bodyOf[events.Call](r)
	decided, started, ran := durationsOf(call)
	switch {
	case err != nil && c.JSON:
		return nil // verify says so
	case err != nil:
		p.printf("%s  %s\n", place(r), p.paint(red, "not a call record: run countersign verify"))
		return nil
	case c.JSON:
		return compactJSON(io, callView{Shard: r.Shard, Seq: r.Seq, At: events.At(r.BrokerTime), Call: body, Decided: inSeconds(decided), Started: inSeconds(started), Ran: inSeconds(ran), Proved: c.Proved, Stands: c.stands[callPlace{r.Shard, r.Seq}]})
	}
	verdict := or(string(call.Verdict), string(c.stands[callPlace{r.Shard, r.Seq}]))
	p.printf("%s  %s  %s  %s  %s  %s  %s  %9s  %9s\n", p.paint(faint, place(r)), p.paint(stateColour[call.State], pad(string(call.State), 9)),
		p.paint(verdictColour[events.Verdict(verdict)], pad(or(verdict, "-"), 7)), p.paint(matchColour[call.Match], pad(or(call.Match, "-"), 12)),
		pad(call.Tool, 24), pad(callName(call), 26), pad(or(r.Session, "-"), 20), short(decided), short(ran))
	if text := mismatch(call); text != "" {
		p.wrapped(25, "arguments: ", text, matchColour[call.Match])
	}
	for _, line := range linksOf(call) {
		p.wrapped(25, "", line, faint)
	}
	if len(call.Findings) > 0 {
		p.printf("%25s%s\n", "", p.paint(red, "broke "+clean(strings.Join(call.Findings, ", "), 160)))
	}
	return nil
}

// verdictsSoFar gives the verdicts on open calls, by the place of their record: that
// was written when the call was first heard of, and the verdict came after it.
func verdictsSoFar(ctx context.Context, db *storage.DB, tenant string, rows []storage.EvidenceRow) (map[callPlace]events.Verdict, error) {
	list := map[callPlace]events.Verdict{}
	open := map[callPlace]events.Call{}
	var sessions []string
	for _, r := range rows {
		if _, call, err := bodyOf[events.Call](r); err == nil && call.State == events.CallOpen && call.Verdict == "" && len(call.Timeline) > 0 {
			open[callPlace{r.Shard, r.Seq}] = call
			sessions = append(sessions, r.Session)
		}
	}
	if len(open) == 0 {
		return list, nil
	}
	slices.Sort(sessions)
	verdicts, err := db.LatestVerdicts(ctx, tenant, slices.Compact(sessions))
	for _, r := range rows {
		at := callPlace{r.Shard, r.Seq}
		call, is := open[at]
		v := verdicts[storage.CallKey{Session: r.Session, Source: call.Source, ToolCallID: call.ToolCallID}]
		if is && v.Shard == r.Shard && v.Seq >= call.Timeline[0].Seq {
			list[at] = events.Verdict(v.Verdict)
		}
	}
	return list, err
}

var stateColour = map[events.CallState]string{events.CallCompleted: green, events.CallFailed: yellow, events.CallDenied: red,
	events.CallAbandoned: yellow, events.CallOrphaned: red, events.CallOpen: blue}

var matchColour = map[string]string{"equal": green, "drift": red, "inconclusive": yellow}

// callName is the id of a call, with its occurrence where it is not the first.
func callName(c events.Call) string {
	name := or(c.ToolCallID, "(no id)")
	if c.Occurrence > 1 {
		name = fmt.Sprintf("%.200s #%d", name, c.Occurrence)
	}
	return name
}

func between(steps []events.TimelineEntry, from, to string) time.Duration {
	var begun events.Time
	for _, s := range steps {
		switch {
		case s.Step == from && begun.IsZero():
			begun = s.At
		case s.Step == to && !begun.IsZero():
			return s.At.Sub(begun.Time)
		}
	}
	return -1
}

func inSeconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

// bodyOf reads the record in a row.
func bodyOf[T any](r storage.EvidenceRow) (body json.RawMessage, record T, err error) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return nil, record, err
	}
	return rec.Body, record, json.Unmarshal(rec.Body, &record)
}

func place(r storage.EvidenceRow) string { return r.BrokerTime.UTC().Format("2006-01-02 15:04:05.000") }

// short writes a duration with three digits or so.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1000)
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func sinceFlag(text string, limit int) (since time.Time, err error) {
	if limit < 0 {
		return since, usageError{fmt.Errorf("--limit %d is below zero", limit)}
	}
	if text == "" {
		return since, nil
	}
	if since, err = moment(text, time.Now()); err != nil {
		return since, usageError{fmt.Errorf("--since %w", err)}
	}
	return since, nil
}

// oneMore asks for one more than is shown, to see whether there is more.
func oneMore(limit int) int {
	if limit == 0 {
		return 0
	}
	return limit + 1
}

func newest[T any](rows []T, limit int) (shown []T, more bool) {
	if limit > 0 && len(rows) > limit {
		return rows[len(rows)-limit:], true
	}
	return rows, false
}

// endList says how much of something was listed, and whether that is all of it. A
// list for programs is JSON and nothing else; that it was cut must be said all the
// same, or a count of its lines would be taken for the number there is.
func endList(io stdio, p *printer, json bool, n int, more bool, what string) {
	text := plural(n, what)
	if more {
		text = "the newest " + text + "; there are more (--limit, --since)"
	}
	switch {
	case !json:
		p.printf("%s\n", p.paint(faint, text))
	case more:
		fmt.Fprintf(io.err, "note: %s\n", text)
	}
}
