package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/records"
)

// CallsCmd is `countersign calls`.
type CallsCmd struct {
	target.Flags
	proof.ProveFlags
	Session string `help:"Only this session." type:"session"`
	State   string `help:"Only calls in this state: open, completed, failed, denied, abandoned or orphaned." enum:",open,completed,failed,denied,abandoned,orphaned" default:""`
	Tool    string `help:"Only calls of this tool, by its exact name."`
	Since   string `help:"Only calls of which there was news since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Limit   int    `help:"The newest so many; 0 for all." default:"100"`
	JSON    bool   `name:"json" help:"Print JSON Lines: each call's newest record, its place in the log and its durations."`

	stands map[callPlace]events.Verdict
}

// callPlace is the position of a call's record.
type callPlace struct {
	shard string
	seq   uint64
}

// callView is one call in the JSON output.
type callView struct {
	Shard   string          `json:"shard"`
	Seq     uint64          `json:"seq"`
	At      events.Time     `json:"at"` // broker time of the record
	Call    json.RawMessage `json:"call"`
	Decided *float64        `json:"decided_seconds,omitempty"` // from request to verdict, by the broker's clock
	Started *float64        `json:"started_seconds,omitempty"` // from verdict to announcement, by the broker's clock
	Ran     *float64        `json:"ran_seconds,omitempty"`     // from announcement to completion, by the broker's clock
	Proved  bool            `json:"proved"`                    // the list is proved complete and unchanged
	Stands  events.Verdict  `json:"verdict_so_far,omitempty"`  // of an open call with a record that precedes its verdict
}

func (c *CallsCmd) Run(ctx context.Context, io ui.Stdio) error {
	since, err := ui.ParseSince(c.Since, c.Limit)
	if err != nil {
		return err
	}
	t, own, restsOn, done, err := c.FindEvidence(ctx, io, c.Flags, false)
	if err != nil {
		return err
	}
	defer done()
	rows, err := records.New(own.DB.Pool()).LatestCalls(ctx, t.Tenant, records.CallFilter{Session: c.Session, State: c.State, Tool: c.Tool, Since: since, Limit: ui.LimitAndOne(c.Limit)})
	if err != nil {
		return err
	}
	if len(rows) == 0 && c.Session != "" {
		if err := system.CheckSession(ctx, own.DB, t.Tenant, c.Session); err != nil {
			return err
		}
	}
	rows, more := ui.Newest(rows, c.Limit)
	if c.stands, err = verdictsSoFar(ctx, own.DB, t.Tenant, rows); err != nil {
		return err
	}
	p := ui.NewPrinter(io.Out)
	if !c.JSON {
		p.Printf("%s\n", p.Paint(ui.Bold, fmt.Sprintf("%-23s  %-9s  %-7s  %-12s  %-24s  %-26s  %-20s  %9s  %9s",
			"changed at (UTC)", "state", "verdict", "match", "tool", "call", "session", "decided", "ran")))
	}
	for _, r := range rows {
		if err := c.print(io, p, r, restsOn.Proved); err != nil {
			return err
		}
	}
	ui.EndList(io, p, c.JSON, len(rows), more, "call")
	proof.PrintBasis(io, c.JSON, len(rows), restsOn)
	return proof.NoteExpired(ctx, io, own, t.Tenant, c.Session, proof.NotListed)
}

func (c *CallsCmd) print(io ui.Stdio, p *ui.Printer, r storage.EvidenceRow, proved bool) error {
	body, call, err := evidencereader.DecodeRow[events.Call](r)
	decided, started, ran := durationsOf(call)
	switch {
	case err != nil && c.JSON:
		return nil // verify reports it
	case err != nil:
		p.Printf("%s  %s\n", place(r), p.Paint(ui.Red, "not a call record: run countersign verify"))
		return nil
	case c.JSON:
		return ui.WriteJSON(io, callView{Shard: r.Shard, Seq: r.Seq, At: events.At(r.BrokerTime), Call: body, Decided: inSeconds(decided), Started: inSeconds(started), Ran: inSeconds(ran), Proved: proved, Stands: c.stands[callPlace{r.Shard, r.Seq}]})
	}
	verdict := cmp.Or(string(call.Verdict), string(c.stands[callPlace{r.Shard, r.Seq}]))
	p.Printf("%s  %s  %s  %s  %s  %s  %s  %9s  %9s\n", p.Paint(ui.Faint, place(r)), p.Paint(ui.StateColour[call.State], ui.Pad(string(call.State), 9)),
		p.Paint(ui.VerdictColour[events.Verdict(verdict)], ui.Pad(cmp.Or(verdict, "-"), 7)), p.Paint(ui.MatchColour[call.Match], ui.Pad(cmp.Or(call.Match, "-"), 12)),
		ui.Pad(call.Tool, 24), ui.Pad(callName(call), 26), ui.Pad(cmp.Or(r.Session, "-"), 20), ui.ShortDuration(decided), ui.ShortDuration(ran))
	if text := mismatch(call); text != "" {
		p.Wrapped(25, "arguments: ", text, ui.MatchColour[call.Match])
	}
	for _, line := range linksOf(call) {
		p.Wrapped(25, "", line, ui.Faint)
	}
	if len(call.Findings) > 0 {
		p.Printf("%25s%s\n", "", p.Paint(ui.Red, "broke "+ui.Clean(strings.Join(call.Findings, ", "), 160)))
	}
	return nil
}

// verdictsSoFar returns the verdicts on open calls, by the position of their record. The record
// was written when the call first appeared, and the verdict came after it.
func verdictsSoFar(ctx context.Context, db *read.Reader, tenant string, rows []storage.EvidenceRow) (map[callPlace]events.Verdict, error) {
	list := map[callPlace]events.Verdict{}
	open := map[callPlace]events.Call{}
	var sessions []string
	for _, r := range rows {
		if _, call, err := evidencereader.DecodeRow[events.Call](r); err == nil && call.State == events.CallOpen && call.Verdict == "" && len(call.Timeline) > 0 {
			open[callPlace{r.Shard, r.Seq}] = call
			sessions = append(sessions, r.Session)
		}
	}
	if len(open) == 0 {
		return list, nil
	}
	slices.Sort(sessions)
	verdicts, err := records.New(db.Pool()).LatestVerdicts(ctx, tenant, slices.Compact(sessions))
	for _, r := range rows {
		at := callPlace{r.Shard, r.Seq}
		last := uint64(0)
		for _, key := range verdictKeys(r.Session, open[at]) {
			if v := verdicts[key]; v.Shard == r.Shard && v.Seq >= max(open[at].Timeline[0].Seq, last) {
				list[at], last = events.Verdict(v.Verdict), v.Seq
			}
		}
	}
	return list, err
}

// verdictKeys returns the keys of the verdicts that can be on a call: without an id, those on the
// events of its steps, and those on its tool by a request without an event's id.
func verdictKeys(session string, c events.Call) (list []records.CallKey) {
	switch key := (records.CallKey{Session: session, Source: c.Source, ToolCallID: c.ToolCallID}); {
	case len(c.Timeline) == 0: // not an open call
		return nil
	case c.ToolCallID != "":
		return []records.CallKey{key}
	default:
		key.Tool = c.Tool
		list = append(list, key)
		for _, step := range c.Timeline {
			key.EventID = step.EventID
			list = append(list, key)
		}
		return list
	}
}

// callName is the id of a call, with its occurrence unless that is the first.
func callName(c events.Call) string {
	name := cmp.Or(c.ToolCallID, "(no id)")
	if c.Occurrence > 1 {
		name = fmt.Sprintf("%.200s #%d", name, c.Occurrence)
	}
	return name
}

func inSeconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func place(r storage.EvidenceRow) string { return r.BrokerTime.UTC().Format("2006-01-02 15:04:05.000") }
