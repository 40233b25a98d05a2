package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// log reads what is in the log.
func (w *world) log(t *testing.T) (out []events.LogMessage) {
	t.Helper()
	nc, err := w.conn("auditor")
	ok(t, err)
	js, err := jetstream.New(nc)
	ok(t, err)
	done := errors.New("caught up")
	err = streams.ReadLog(t.Context(), js, streams.ReadOptions{Stream: streams.DefaultShard, Idle: func() error { return done }},
		func(b []events.LogMessage) error { out = append(out, b...); return nil })
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
	return out
}

func hook(i int) []byte {
	return []byte(fmt.Sprintf(`{"event_type":"PostToolUse", "session_id":"s%d","n":%d}`, i%3, i))
}

func TestPublishKeepsOrderAndBytes(t *testing.T) {
	w := start(t, streams.Shard{})
	c := w.client(t, 0)
	var want [][]byte
	for _, count := range []int{0, 1, 12, 13, 1100} {
		var list [][]byte
		for range count {
			list = append(list, hook(len(want)+len(list)))
		}
		ok(t, c.Publish(t.Context(), subject.ProtoAgentHook, list...))
		want = append(want, list...)
	}
	log := w.log(t)
	if len(log) != len(want) {
		t.Fatalf("%d events in the log, want %d", len(log), len(want))
	}
	for i, m := range log {
		if !bytes.Equal(m.Body, want[i]) || m.Subject != fmt.Sprintf("gov.events.acme.rt1.agenthook.s%d.PostToolUse", i%3) {
			t.Fatalf("event %d is %s on %s", i, m.Body, m.Subject)
		}
	}
}

func TestPublishSendsWhatItCannotRead(t *testing.T) {
	w := start(t, streams.Shard{})
	c := w.client(t, 0)
	for name, e := range map[string]struct{ protocol, body, subject string }{
		"not JSON":         {subject.ProtoAgentHook, "{nope", "~.unknown"},
		"empty":            {subject.ProtoAgentHook, "", "~.unknown"},
		"binary":           {subject.ProtoAAEP, "\x00\xff\xfe", "~.unknown"},
		"no type":          {subject.ProtoAgentHook, `{"session_id":"s1"}`, "s1.unknown"},
		"wrong field":      {subject.ProtoAgentHook, `{"session_id":"s1","event_type":"Stop","source":7}`, "s1.Stop"},
		"posing":           {subject.ProtoAgentHook, `{"session_id":"s1","event_type":"request"}`, "s1.unknown"},
		"odd session":      {subject.ProtoAgentHook, `{"session_id":"a.b *","event_type":"Stop"}`, "~YS5iICo.Stop"},
		"a subject of 8 K": {subject.ProtoAgentHook, `{"session_id":"s1","event_type":"` + strings.Repeat("a.", 4096) + `"}`, "s1.unknown"},
		"AAEP":             {subject.ProtoAAEP, `{"type":"aaep:agent.tool.invoked","session_id":"s9"}`, "s9.agent.tool.invoked"},
		"AUMP":             {subject.ProtoAUMP, `{"event_type":"deal_accepted","session_id":"s1"}`, "s-named.deal_accepted"},
	} {
		ok(t, c.PublishIn(t.Context(), "s-named", e.protocol, []byte(e.body))) // but AUMP's events name their own
		log := w.log(t)
		last := log[len(log)-1]
		if want := "gov.events.acme.rt1." + e.protocol + "." + e.subject; string(last.Body) != e.body || last.Subject != want {
			t.Errorf("%s: %q on %s, want %s", name, last.Body, last.Subject, want)
		}
	}
	if err := c.Publish(t.Context(), "telnet", []byte("{}")); err == nil || !strings.Contains(err.Error(), "aaep") {
		t.Errorf("an unknown protocol: %v", err)
	}
}

func TestPublishFailsUnlessEverythingIsStored(t *testing.T) {
	w := start(t, streams.Shard{MaxBytes: 64 << 10})
	c := w.client(t, 0)
	large := func(n int) []byte { return []byte(fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("x", 10_000))) }
	var list [][]byte
	for i := range 10 {
		list = append(list, large(i))
	}
	var failed *streams.PublishError
	if err := c.Publish(t.Context(), subject.ProtoAgentHook, list...); !errors.As(err, &failed) {
		t.Fatalf("error %v", err)
	}
	if stored := len(w.log(t)); stored != len(list)-len(failed.Failed) || stored == 0 {
		t.Errorf("%d stored, %d reported as not", stored, len(failed.Failed))
	}
	if err := c.Publish(t.Context(), subject.ProtoAgentHook, bytes.Repeat([]byte("x"), 9<<20)); !errors.Is(err, streams.ErrTooLarge) {
		t.Errorf("an event that no server takes: %v", err)
	}
}

func TestMessagesNeedNoConnection(t *testing.T) {
	msgs, err := client.Sender{Space: subject.Space{Prefix: "x.y"}, Tenant: "acme", Publisher: "rt 1"}.Messages(subject.ProtoAgentHook, hook(1))
	ok(t, err)
	if len(msgs) != 1 || msgs[0].Subject != "x.y.events.acme.~cnQgMQ.agenthook.s1.PostToolUse" {
		t.Errorf("%+v", msgs)
	}
}

// CloudEvents of the SDK arrive in binary mode, their data byte for byte, as the correlator's
// decoder and the SDK read them.
func TestPublishCloudEvents(t *testing.T) {
	w := start(t, streams.Shard{})
	c := w.client(t, 0)
	body := hook(1)
	e := event.New()
	e.SetID("e 1")
	e.SetSource("/runtime/a")
	e.SetType("com.example.hook")
	e.SetExtension("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ok(t, e.SetData("application/json", body))
	ok(t, c.PublishCloudEvents(t.Context(), subject.ProtoAgentHook, e))
	log := w.log(t)
	if len(log) != 1 || !bytes.Equal(log[0].Body, body) || log[0].Subject != "gov.events.acme.rt1.agenthook.s1.PostToolUse" {
		t.Fatalf("%+v", log)
	}
	ours, err := cloudevents.Decode(log[0].Header, log[0].Body)
	ok(t, err)
	if ours.Mode != cloudevents.ModeBinary || ours.ID != "e 1" || ours.Source != e.Source() || ours.Extra["traceparent"] != e.Extensions()["traceparent"] || !bytes.Equal(ours.Data, body) {
		t.Errorf("%+v", ours)
	}

	e.SetID("")
	e.SetExtension("secret", "hunter2-secret")
	err = c.PublishCloudEvents(t.Context(), subject.ProtoAgentHook, e)
	if err == nil || !strings.Contains(err.Error(), "CloudEvent 1") || !strings.Contains(err.Error(), "id") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without an id: %v", err)
	}
	if err := c.PublishCloudEvents(t.Context(), subject.ProtoTool, event.Event{}); err == nil {
		t.Error("no CloudEvent, of a protocol without events")
	}
}
