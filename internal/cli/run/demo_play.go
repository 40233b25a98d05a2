package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// The sample sessions.
const (
	flightSession = "sessions/aaep-flight.jsonl"
	mailSession   = "sessions/agenthook-mail.jsonl"
	rogueFile     = "sessions/agenthook-rogue.jsonl"
	rogueSession  = "sess-rogue-1"
)

// play runs three agents: an honest one that speaks AAEP, an honest one that speaks AgentHook,
// and one that ignores verdicts.
func (d *demo) play(ctx context.Context, t *target.Target) error {
	r := d.pipe.Ready()
	nc, err := t.Connect(ctx, target.Runtime)
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := client.New(nc, client.Options{Tenant: r.Tenant, Publisher: t.Publisher(), PublicKey: r.PublicKey})
	if err != nil {
		return err
	}
	for _, scene := range []struct {
		title, protocol, file string
	}{
		{"An assistant speaking AAEP looks for flights", subject.ProtoAAEP, flightSession},
		{"An agent with AgentHook hooks sends a mail (and leaves an API key in its arguments)", subject.ProtoAgentHook, mailSession},
		{"A rogue agent: denied, it runs the tool anyway; allowed, it changes the arguments", subject.ProtoAgentHook, rogueFile},
	} {
		d.title(scene.title)
		if err := d.act(ctx, c, scene.protocol, scene.file); err != nil {
			return fmt.Errorf("%s: %w", scene.file, err)
		}
	}
	return nil
}

// act plays one recorded session with the current time: it asks before every tool call, publishes
// every event, and continues whatever the answer is.
func (d *demo) act(ctx context.Context, c *client.Client, protocol, file string) error {
	recording, err := examples.FS.ReadFile(file)
	if err != nil {
		return err
	}
	for _, line := range bytes.Split(bytes.TrimSpace(recording), []byte("\n")) {
		event, call, err := rehearse(line, protocol)
		if err != nil {
			return err
		}
		if call != nil {
			v := c.Admit(ctx, *call)
			if v.Err != nil && !v.Allowed() {
				return fmt.Errorf("asking for %s: %s: %w", call.Tool, v.Reason, v.Err)
			}
		}
		if err := c.Publish(ctx, protocol, event); err != nil {
			return err
		}
	}
	return nil
}

// rehearse gives a recorded event the current time, and returns the call to admit first if the
// event announces one.
func rehearse(line []byte, protocol string) ([]byte, *client.Call, error) {
	var e map[string]any
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, nil, err
	}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	e["timestamp"] = now
	delete(e, "duration_ms") // the recorded duration does not apply
	meta, _ := e["metadata"].(map[string]any)
	if ran, is := meta["execution"].(map[string]any); is {
		ran["started_at"], ran["completed_at"] = now, now
	}
	event, err := json.Marshal(e)
	if err != nil {
		return nil, nil, err
	}
	text := func(m map[string]any, key string) string { s, _ := m[key].(string); return s }
	switch {
	case protocol == subject.ProtoAAEP && text(e, "type") == "aaep:agent.tool.invoked":
		return event, &client.Call{Protocol: protocol, Body: event, Tool: text(e, "tool"), Session: text(e, "session_id"), ToolCallID: text(e, "tool_call_id")}, nil
	case protocol == subject.ProtoAgentHook && text(e, "event_type") == "PreToolUse":
		args, err := json.Marshal(e["tool_input"])
		return event, &client.Call{Protocol: protocol, Body: event, Tool: text(e, "tool_name"), Session: text(e, "session_id"),
			ToolCallID: text(meta, "tool_call_id"), Arguments: args}, err
	}
	return event, nil, nil
}

// follow prints decisions and findings as they come, until stop is called.
func (d *demo) follow(ctx context.Context, t *target.Target) (stop func() error, err error) {
	nc, err := t.Connect(ctx, target.Subscriber)
	if err != nil {
		return nil, err
	}
	tail := TailCmd{Flags: t.Flags, Findings: true}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		o := client.FollowOptions{Tenant: t.Tenant, Space: subject.Space{Prefix: t.Prefix}, Kinds: tail.kinds(), Since: d.begun}
		done <- client.Follow(ctx, nc, o, func(page []events.Output, at client.Position) error { return tail.take(d.p, page, at) })
	}()
	return func() error {
		defer nc.Close()
		cancel()
		return <-done
	}, nil
}

// quiet is how long the log must not change to count as settled.
const quiet = 700 * time.Millisecond

// settle waits until the log is quiet and all of it is signed evidence.
func (d *demo) settle(ctx context.Context, t *target.Target) error {
	o, err := system.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer o.Conn.Close()
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	var last uint64
	since := time.Now()
	for {
		state, err := streams.StreamState(ctx, o.JS, t.Stream)
		if err != nil {
			return err
		}
		if state.LastSeq != last {
			last, since = state.LastSeq, time.Now()
		}
		cp, err := l.DB.LatestCheckpoint(ctx, streams.IncarnationName(t.Stream, state.Created))
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		if cp.Size == last && time.Since(since) > quiet {
			return nil
		}
		if retry.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("the log has %d messages and the evidence is signed up to %d: %w", last, cp.Size, context.Cause(ctx))
		}
	}
}

// tamper changes one byte of one stored record, as the database owner could.
func tamper(ctx context.Context, dsn string, row evidence.Row) error {
	opt, err := clickhouse.ParseDSN(dsn)
	if err != nil {
		return errors.New("the ClickHouse DSN does not parse")
	}
	conn, err := clickhouse.Open(opt)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	forged := strings.Replace(row.Record, "production", "productiom", 1)
	if forged == row.Record {
		return errors.New("nothing to change in the record")
	}
	return conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2})),
		"ALTER TABLE evidence UPDATE record = {forged:String} WHERE shard = {shard:String} AND seq = {seq:UInt64}",
		clickhouse.Named("forged", forged), clickhouse.Named("shard", row.Shard), clickhouse.Named("seq", row.Seq))
}
