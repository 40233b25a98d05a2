package ingest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/ingest"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance is one that takes events in.
type instance struct {
	stop    context.CancelFunc
	settled chan struct{}
	done    chan error
	told    chan quota.Excess
}

// leaseTTL is longer than a busy machine keeps an instance from its renewal. An instance that stands by
// looks for a lease that was given back several times in this time.
const leaseTTL = 6 * time.Second

// serve starts an instance; it is stopped when the test ends at the latest.
func serve(t testing.TB, n *servicetest.NATS, change ...func(*ingest.Options)) *instance {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{cancel, make(chan struct{}), make(chan error, 1), make(chan quota.Excess, 64)}
	o := ingest.Options{
		Stream: streams.DefaultShard, Log: n.Conn("admitter"), Connect: func(context.Context) (*nats.Conn, func(), error) { nc := n.Conn("admitter"); return nc, nc.Close, nil },
		Lease:           lease.Options{Key: "ingest.GOV", Holder: fmt.Sprintf("%p", i), TTL: leaseTTL, Log: zerolog.Nop()},
		Meter:           quota.NewMeter(quota.Quotas{}),
		Metrics:         metrics.New("x").Ingest("GOV"),
		OnQuotaExceeded: func(_, _ string, e quota.Excess) { i.told <- e },
		Logger:          zerolog.Nop(), OnRole: func() { close(i.settled) },
	}
	for _, f := range change {
		f(&o)
	}
	go func() { i.done <- ingest.Run(ctx, o) }()
	t.Cleanup(func() { i.halt(t) })
	select {
	case <-i.settled:
	case <-time.After(servicetest.Guard):
		t.Fatal("the instance neither serves nor stands by")
	}
	return i
}

// halt stops an instance and waits for its end.
func (i *instance) halt(t testing.TB) {
	t.Helper()
	i.stop()
	select {
	case err := <-i.done:
		servicetest.OK(t, err)
		i.done <- nil
	case <-time.After(servicetest.Guard):
		t.Fatal("the instance does not end")
	}
}

const where = "gov.events.acme.rt1.agenthook.s1.PreToolUse"

// ack is what a publisher reads.
type ack struct {
	Stream string
	Seq    uint64
	Error  *struct {
		Code        int
		ErrCode     int `json:"err_code"`
		Description string
	}
}

func send(t testing.TB, nc *nats.Conn, m *nats.Msg) (a ack) {
	t.Helper()
	reply, err := nc.RequestMsg(m, servicetest.Guard/3)
	if err != nil {
		t.Fatalf("%v: %v", m.Header, err)
	}
	servicetest.OK(t, json.Unmarshal(reply.Data, &a))
	return a
}

// sendAtOnce sends events before the first one is answered, so that the pace of this process does not
// matter to a quota.
func sendAtOnce(t testing.TB, nc *nats.Conn, n int) (list []ack) {
	t.Helper()
	answers, err := nc.SubscribeSync(nc.NewInbox())
	servicetest.OK(t, err)
	for range n {
		m := message()
		m.Reply = answers.Subject
		servicetest.OK(t, nc.PublishMsg(m))
	}
	for range n {
		reply, err := answers.NextMsg(servicetest.Guard)
		servicetest.OK(t, err)
		var a ack
		servicetest.OK(t, json.Unmarshal(reply.Data, &a))
		list = append(list, a)
	}
	return list
}

func message(header ...string) *nats.Msg {
	m := &nats.Msg{Subject: where, Header: nats.Header{}, Data: []byte("{}")}
	for i := 0; i < len(header); i += 2 {
		m.Header.Add(header[i], header[i+1])
	}
	return m
}

// A publisher's event is on the log byte for byte, with only the headers that services read.
func TestRebuildsTheMessage(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	m := message("content-type", "application/json", "Ce-Id", "7", "ce-x", "1", "ce-x", "2", "traceparent", "00-a", "Countersign-Session", "s9",
		"Countersign-Decision-Id", "d1", "Aump-Mandate-Id", "m1",
		"Countersign-Signature", "forged", "X-Api-Key", "secret", "Nats-Msg-Id", "mine", "Nats-Expected-Stream", "GOV", "Status", "503")
	m.Data = []byte("not JSON \x00")
	a := send(t, nc, m)
	got := n.At(streams.DefaultShard, a.Seq)
	if got == nil || a.Stream != streams.DefaultShard || got.Subject != where || string(got.Body) != string(m.Data) {
		t.Fatalf("%+v, %+v", a, got)
	}
	want := map[string][]string{"content-type": {"application/json"}, "Ce-Id": {"7"}, "ce-x": {"1", "2"}, "traceparent": {"00-a"},
		"Countersign-Session": {"s9"}, "Countersign-Decision-Id": {"d1"}, "Aump-Mandate-Id": {"m1"}}
	if fmt.Sprint(got.Header) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", got.Header, want)
	}
	// The same id again is no duplicate.
	if again := send(t, nc, message("Nats-Msg-Id", "mine")); again.Seq != a.Seq+1 {
		t.Errorf("%+v", again)
	}
}

// What a publisher may not write, and what the log took before: a subject that
// makes no sense is evidence.
func TestSubjects(t *testing.T) {
	n := servicetest.StartWith(t, streams.Shard{}, func(c *streams.ServerConfig) { c.TenantMaxPayload = streams.DefaultMaxPayload })
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	for subj, want := range map[string]int{
		where: 0, "gov.events.acme.rt1.nonsense.s1.x": 0, "gov.events.acme.rt1.agenthook.~!.x": 0, "gov.events.acme.rt1.agenthook": 0,
		"gov.events.acme.rt1.agenthook.s1.request.x": 10992, "gov.events.acme.rt1.x." + strings.Repeat("y", 2100): 10992,
	} {
		a := send(t, nc, &nats.Msg{Subject: subj, Data: []byte("{}")})
		switch {
		case want == 0 && (a.Error != nil || n.At(streams.DefaultShard, a.Seq).Subject != subj):
			t.Errorf("%s: %+v", subj, a.Error)
		case want != 0 && (a.Error == nil || a.Error.ErrCode != want):
			t.Errorf("%.60s: %+v", subj, a)
		}
	}
	// A message as large as the server takes leaves no room for what the log adds.
	if a := send(t, nc, &nats.Msg{Subject: where, Data: make([]byte, nc.MaxPayload())}); a.Error == nil || a.Error.ErrCode != 10054 {
		t.Errorf("%+v", a)
	}
	if a := send(t, nc, &nats.Msg{Subject: where, Data: make([]byte, nc.MaxPayload()-1024)}); a.Error != nil {
		t.Errorf("%+v", a.Error)
	}
}

// The reply of a service aimed at the requester's own event subject is no event of
// its own: it comes from another account.
func TestAnAnswerIsNoEvent(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	answerer := n.Conn("admitter")
	_, err := answerer.Subscribe("gov.admit.>", func(m *nats.Msg) { _ = m.Respond([]byte("verdict")) })
	servicetest.OK(t, err)
	servicetest.OK(t, answerer.Flush())
	nc := n.Conn(servicetest.Runtime)
	for _, target := range []string{where, "gov.events.acme.rt1.agenthook.s1.request", "gov.events.acme.rt2.agenthook.s1.x"} {
		servicetest.OK(t, nc.PublishRequest("gov.admit.acme.agenthook", target, nil))
		servicetest.OK(t, nc.PublishRequest(where, target, []byte("{}")))
	}
	_, err = nc.Request("gov.admit.acme.agenthook", nil, servicetest.Guard)
	servicetest.OK(t, err)
	send(t, nc, message())
	for _, m := range n.Log() {
		if m.Subject != where || string(m.Body) != "{}" {
			t.Errorf("the log holds %s %q", m.Subject, m.Body)
		}
	}
}

// serverHeaders are the headers that the NATS server of this build knows, read
// from its source.
func serverHeaders(t *testing.T) (names []string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2").Output()
	servicetest.OK(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "server", "*.go"))
	servicetest.OK(t, err)
	form := regexp.MustCompile(`"(Nats-[A-Za-z-]+[a-zA-Z])"`)
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		servicetest.OK(t, err)
		for _, m := range form.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Every header that the server knows is refused by name or changes nothing; the
// list here fails when a new server knows another one.
func TestServerHeaders(t *testing.T) {
	known := map[string]string{} // name: "" is refused, else why not
	for _, name := range strings.Fields(`Nats-Batch-Commit Nats-Batch-Id Nats-Batch-Sequence Nats-Consumer-Stalled Nats-Counter-Sources
		Nats-Expected-Last-Msg-Id Nats-Expected-Last-Sequence Nats-Expected-Last-Subject-Sequence Nats-Expected-Last-Subject-Sequence-Subject
		Nats-Incr Nats-Last-Consumer Nats-Last-Sequence Nats-Last-Stream Nats-Marker-Reason Nats-Msg-Size Nats-No-Masking Nats-Num-Pending
		Nats-Pending-Bytes Nats-Pending-Messages Nats-Pin-Id Nats-Required-Api-Level Nats-Response-Type Nats-Rollup Nats-Schedule
		Nats-Schedule-Next Nats-Schedule-Rollup Nats-Schedule-Source Nats-Schedule-TTL Nats-Schedule-Target Nats-Schedule-Time-Zone Nats-Scheduler
		Nats-Sequence Nats-Server-Xkey Nats-Stream Nats-Stream-Identity Nats-Stream-Source Nats-Subject Nats-TTL Nats-Time-Stamp
		Nats-Trace-Hop Nats-Trace-Only Nats-Trace-Origin-Account Nats-UpTo-Sequence`) {
		known[name] = ""
	}
	known["Nats-Msg-Id"] = "dropped"
	known["Nats-Request-Info"] = "replaced by the server and dropped"
	known["Nats-Expected-Stream"] = "compared"
	known["Nats-Trace-Dest"] = "the server itself refuses it where the sender may not publish, and traces nothing across accounts"
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	list := serverHeaders(t)
	for _, name := range list {
		why, there := known[name]
		if !there {
			t.Errorf("the server knows %s, and this table does not", name)
			continue
		}
		if name == "Nats-Trace-Dest" {
			if reply, err := nc.RequestMsg(message(name, "gov.findings.acme.low.s1"), 200*time.Millisecond); err == nil && !strings.Contains(string(reply.Data), "10990") {
				t.Errorf("%s: %s", name, reply.Data)
			}
			continue
		}
		for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			if a := send(t, nc, message(spelling, "1")); why == "" && (a.Error == nil || a.Error.Code != 400 || a.Error.ErrCode != 10990 || !strings.Contains(a.Error.Description, spelling)) {
				t.Errorf("%s: %+v", spelling, a)
			}
		}
	}
	for name := range known {
		if !slices.Contains(list, name) {
			t.Errorf("the server does not know %s", name)
		}
	}
	if a := send(t, nc, message("Nats-Expected-Stream", "OTHER")); a.Error == nil || a.Error.ErrCode != 10060 {
		t.Errorf("%+v", a)
	}
}

// TestAttackHeaderNames: a client may send a header that the client library of the services reads and does not write.
// The event is refused, and those of others that wait with it are stored.
func TestAttackHeaderNames(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	at, err := url.Parse(nc.ConnectedUrl())
	servicetest.OK(t, err)
	raw, err := net.Dial("tcp", at.Host)
	servicetest.OK(t, err)
	defer raw.Close()
	const header = "NATS/1.0\r\nce-a b: x\r\n\r\n"
	bad := fmt.Sprintf("HPUB gov.events.globex.mallory.agenthook.s1.x _INBOX_mallory.a %d %d\r\n%s{}\r\n", len(header), len(header)+2, header)
	_, err = fmt.Fprint(raw, `CONNECT {"verbose":false,"user":"mallory","pass":"pw-mallory","headers":true,"no_responders":true,"protocol":1,"lang":"go","version":"1"}`+"\r\nSUB _INBOX_mallory.a 1\r\n")
	servicetest.OK(t, err)
	const rounds = 20
	for range rounds {
		_, err := fmt.Fprint(raw, strings.Repeat(bad, 5))
		servicetest.OK(t, err)
		for _, a := range sendAtOnce(t, nc, 20) {
			if a.Error != nil {
				t.Fatalf("an event of another publisher: %+v", a.Error)
			}
		}
	}
	servicetest.OK(t, raw.SetReadDeadline(time.Now().Add(servicetest.Guard)))
	answers := bufio.NewScanner(raw)
	for refused := 0; refused < 5*rounds; {
		if !answers.Scan() {
			t.Fatalf("%d refusals: %v", refused, answers.Err())
		}
		if strings.Contains(answers.Text(), `"code":400,"err_code":10990`) {
			refused++
		}
	}
}

// One connection's events keep their order and are neither lost nor doubled while
// the active instance stops and the one that stood by goes on.
func TestOrderAcrossHandover(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	first := serve(t, n)
	serve(t, n)
	js, err := jetstream.New(n.Conn(servicetest.Runtime), jetstream.WithPublishAsyncMaxPending(1000))
	servicetest.OK(t, err)
	const count = 8000
	futures := make([]jetstream.PubAckFuture, count)
	for i := range count {
		switch i {
		case 3000: // with up to 1,000 on their way
			first.stop()
		case 6000:
			first.halt(t)
			eventually(t, n, "the other instance takes events in")
		}
		subj := fmt.Sprintf("gov.events.acme.rt1.agenthook.s%d.PreToolUse", i%16)
		for {
			// The client's own retries would change the order.
			futures[i], err = js.PublishAsync(subj, []byte(fmt.Sprint(i)), jetstream.WithRetryAttempts(0))
			if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
				break
			}
		}
		servicetest.OK(t, err)
	}
	acked := map[string]uint64{}
	var last uint64
	refused := 0
	for i, f := range futures {
		select {
		case a := <-f.Ok():
			if a.Sequence <= last {
				t.Fatalf("event %d is acknowledged at %d, after %d", i, a.Sequence, last)
			}
			last = a.Sequence
			acked[fmt.Sprint(i)] = a.Sequence
		case <-f.Err(): //nolint:errcheck // a refusal is counted, whatever it says
			refused++
		case <-time.After(servicetest.Guard):
			t.Fatal("no answer")
		}
	}
	t.Logf("%d of %d without an acknowledgement", refused, count)
	if len(acked) < 4000 || acked[fmt.Sprint(count-1)] == 0 {
		t.Errorf("%d acknowledged", len(acked))
	}
	seen := map[string]bool{}
	for _, m := range n.Log() {
		body := string(m.Body)
		if body == "{}" {
			continue // of the look whether an instance answers
		}
		if seen[body] {
			t.Errorf("event %s is there twice", body)
		}
		seen[body] = true
		if at, is := acked[body]; is && at != m.Seq {
			t.Errorf("event %s is at %d, acknowledged at %d", body, m.Seq, at)
		}
		delete(acked, body)
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged events are not on the log", len(acked))
	}
}

func eventually(t *testing.T, n *servicetest.NATS, what string) {
	t.Helper()
	nc := n.Conn(servicetest.Runtime)
	servicetest.Eventually(t, what, func() bool {
		_, err := nc.RequestMsg(message(), time.Second)
		return err == nil
	})
}

// The metrics say which instance takes events.
func TestTheMetricsSayWhichOneTakesEvents(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	counts := []*metrics.Registry{metrics.New("admitter"), metrics.New("admitter")}
	takes := func(i int, value string) bool {
		return strings.Contains(string(counts[i].Text()), `countersign_events_open{service="admitter",shard="GOV"} `+value+"\n")
	}
	of := func(i int) func(*ingest.Options) {
		return func(o *ingest.Options) { o.Metrics = counts[i].Ingest("GOV") }
	}
	first := serve(t, n, of(0))
	serve(t, n, of(1))
	if !takes(0, "1") || !takes(1, "0") {
		t.Errorf("%s\n%s", counts[0].Text(), counts[1].Text())
	}
	first.halt(t)
	servicetest.Eventually(t, "the other one takes events", func() bool { return takes(0, "0") && takes(1, "1") })
}

// An instance that was stopped for longer than its lease sends nothing that it
// still holds.
func TestGuardByTheLease(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv, err := n.JS("admitter").KeyValue(t.Context(), streams.BucketLeases)
	servicetest.OK(t, err)
	l, err := lease.Hold(t.Context(), kv, lease.Options{Key: "ingest.GOV", Holder: "a", TTL: 2 * time.Second, Log: zerolog.Nop()}, nil)
	servicetest.OK(t, err)
	if !l.Valid() {
		t.Fatal("a new lease is not valid")
	}
	n.Stop() // no renewal any more
	servicetest.Eventually(t, "the lease is not valid", func() bool { return !l.Valid() })
	n.Restart()
}

// Beyond its quota a publisher is refused, and others are not; one finding a
// window.
func TestQuotas(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	i := serve(t, n, func(o *ingest.Options) {
		o.Meter = quota.NewMeter(quota.Quotas{Publisher: quota.Rate{Messages: 1}, Tenant: quota.Rate{Messages: 100, Bytes: 100_000}, Burst: 10 * time.Second})
	})
	nc, other, foreign := n.Conn(servicetest.Runtime), n.Conn("rt2"), n.Conn("mallory")
	stored, refused := 0, 0
	for _, a := range sendAtOnce(t, nc, 30) {
		switch {
		case a.Error == nil:
			stored++
		case a.Error.Code == 429 && a.Error.ErrCode == 10991 && strings.Contains(a.Error.Description, "publisher's quota of 1 messages"):
			refused++
		default:
			t.Fatalf("%+v", a.Error)
		}
	}
	if stored < 10 || refused < 10 || len(i.told) != 1 {
		t.Errorf("%d stored, %d refused, %d findings", stored, refused, len(i.told))
	}
	if a := send(t, other, &nats.Msg{Subject: "gov.events.acme.rt2.agenthook.s1.x"}); a.Error != nil {
		t.Errorf("a sibling: %+v", a.Error)
	}
	if a := send(t, other, &nats.Msg{Subject: "gov.events.acme.rt2.agenthook.s1.x", Data: make([]byte, 900_000)}); a.Error != nil {
		t.Errorf("within the burst: %+v", a.Error)
	}
	if a := send(t, other, &nats.Msg{Subject: "gov.events.acme.rt2.agenthook.s1.x", Data: make([]byte, 900_000)}); a.Error == nil || !strings.Contains(a.Error.Description, "tenant's quota of 100000 bytes") {
		t.Errorf("%+v", a)
	}
	if a := send(t, other, &nats.Msg{Subject: "gov.events.acme.rt2.agenthook.s1.x", Header: nats.Header{"ce-x": {strings.Repeat("x", 60_000)}, "x-dropped": {strings.Repeat("x", 840_000)}}}); a.Error == nil ||
		!strings.Contains(a.Error.Description, "tenant's quota of 100000 bytes") {
		t.Errorf("in headers: %+v", a)
	}
	if a := send(t, foreign, &nats.Msg{Subject: "gov.events.globex.mallory.agenthook.s1.x"}); a.Error != nil {
		t.Errorf("another tenant: %+v", a.Error)
	}
}

// Without an active instance, and while the log takes nothing, no publisher is
// told that its event is stored.
func TestNoFalseAcknowledgement(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{MaxBytes: 64 << 10})
	nc := n.Conn(servicetest.Runtime)
	if _, err := nc.RequestMsg(message(), servicetest.Guard); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("%v", err)
	}
	i := serve(t, n)
	big := &nats.Msg{Subject: where, Data: make([]byte, 20<<10)}
	var last ack
	for range 5 {
		last = send(t, nc, big)
	}
	if last.Error == nil || last.Error.Code != 503 || last.Error.ErrCode != 10008 || strings.Contains(last.Error.Description, "bytes") {
		t.Errorf("%+v", last)
	}
	i.halt(t)
	servicetest.Eventually(t, "the server knows that no instance is active", func() bool {
		reply, err := nc.RequestMsg(message(), time.Second)
		if err == nil {
			t.Errorf("answered without an instance: %s", reply.Data)
		}
		return errors.Is(err, nats.ErrNoResponders)
	})
	var log []events.LogMessage = n.Log()
	for _, m := range log {
		if m.Subject != where {
			t.Errorf("%s", m.Subject)
		}
	}
}

// TestRefusalsAreNotALineEach: while the log takes nothing, the service's own log does not fill the disk, too.
func TestRefusalsAreNotALineEach(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{MaxBytes: 1})
	var lines testkit.Log
	serve(t, n, func(o *ingest.Options) { o.Logger = zerolog.New(&lines) })
	begun := time.Now()
	for _, a := range sendAtOnce(t, n.Conn(servicetest.Runtime), 200) {
		if a.Error == nil {
			t.Fatal("stored")
		}
	}
	most := 2 + int(time.Since(begun)/time.Second)
	if got := lines.Count("an event was not stored"); got < 1 || got > most {
		t.Errorf("%d lines, at most %d", got, most)
	}
}

// A gateway speaks for the publishers that are registered as reached through it. The log says
// through which gateway an event came, and no publisher can claim one.
func TestAttackGatewaySpeaksForOthers(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n, func(o *ingest.Options) {
		o.MaySpeakFor = func(tenant, publisher, gateway string) bool {
			return tenant == servicetest.Tenant && publisher == "web1" && gateway == servicetest.Gateway
		}
	})
	gateway := n.Conn(servicetest.Gateway)
	for subj, stored := range map[string]bool{
		"gov.events.acme.web1.agenthook.s1.PreToolUse": true,
		"gov.events.acme.rt1.agenthook.s1.PreToolUse":  false, // connects directly
		"gov.events.acme.gw1.agenthook.s1.PreToolUse":  false, // a gateway is no publisher
		"gov.events.acme.~!.agenthook.s1.PreToolUse":   false,
	} {
		a := send(t, gateway, &nats.Msg{Subject: subj, Data: []byte("{}"), Header: nats.Header{events.HeaderGateway: {"forged"}, "countersign-gateway": {"forged"}}})
		if stored != (a.Error == nil) {
			t.Errorf("%s: %+v", subj, a.Error)
			continue
		}
		if stored {
			if got := n.At(streams.DefaultShard, a.Seq); fmt.Sprint(got.Header) != fmt.Sprint(map[string][]string{events.HeaderGateway: {servicetest.Gateway}}) {
				t.Errorf("headers %v", got.Header)
			}
		}
	}
	a := send(t, n.Conn(servicetest.Runtime), message(events.HeaderGateway, servicetest.Gateway))
	if got := n.At(streams.DefaultShard, a.Seq); len(got.Header) != 0 {
		t.Errorf("a publisher claimed a gateway: %v", got.Header)
	}
}
