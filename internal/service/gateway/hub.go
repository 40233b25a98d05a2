package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

const (
	hubOutputs   = 4096 // outputs in memory for streams that are nearly current
	hubBytes     = 16 << 20
	pieceBytes   = 64 << 10 // of them that a stream gets at once, and holds until its client has read them
	hubRestart   = time.Second
	hubLinger    = time.Minute // without a reader; an open stream reads at each of its heartbeats
	pagesAtOnce  = 4           // pages that are read for streams that lag, at the same time
	pageTimeout  = 10 * time.Second
	firstTimeout = 5 * time.Second // for the hub to know the log's position
)

// record is an output as streams and subscriptions need it, made once for all of them.
type record struct {
	events.Output
	kind  string
	text  []byte // the server-sent event that shows it; Record is a part of it
	event any    // what the reader of its kind made of it; nil if it has none, or could not read it
}

// newRecord makes the record of an output of a log. An output that is too large for a page is named only.
func newRecord(space subject.Space, log string, o events.Output) record {
	var line bytes.Buffer
	if len(o.Record) == 0 || json.Compact(&line, o.Record) != nil {
		body, _ := json.Marshal(map[string]any{"seq": o.Seq, "subject": o.Subject, "too_large": true})
		line, o.Record = *bytes.NewBuffer(body), nil
	}
	r := record{Output: o}
	if p, err := space.Parse(o.Subject); err == nil {
		r.kind = events.FollowKindOf(p)
	}
	r.text = fmt.Appendf(nil, "id: %s/%d\nevent: %s\ndata: ", log, o.Seq, r.kind)
	from := len(r.text)
	r.text = append(append(r.text, line.Bytes()...), "\n\n"...)
	if o.Record != nil {
		r.Record = r.text[from : from+line.Len()]
	}
	if read := eventReaders[r.kind]; read != nil {
		r.event = read(r.Record)
	}
	return r
}

// errUnread ends the following of a log that no stream reads.
var errUnread = errors.New("no stream reads the outputs")

// outputHub follows the outputs of the tenant's log once, for all streams. It keeps the newest ones in
// memory; a stream that lags behind them reads pages. While no stream reads it pauses, because every page
// costs the correlator and NATS a consumer.
type outputHub struct {
	nc    *nats.Conn
	flags Flags
	env   daemon.Env
	pages chan struct{}
	kinds []string // that it follows; none for all outputs
	name  string   // in the health report

	resume chan struct{} // gets a value when a stream reads a hub that pauses

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	log     string        // "" until the first page
	from    uint64        // recent has every output behind this position
	next    uint64        // and up to this one
	recent  []record
	bytes   int
	read    time.Time // when a stream last read
	paused  bool
}

// newOutputHub makes a hub that follows kinds, and all outputs without any. The health report has its name.
func newOutputHub(nc *nats.Conn, f Flags, env daemon.Env, name string, kinds ...string) *outputHub {
	return &outputHub{nc: nc, flags: f, env: env, pages: make(chan struct{}, pagesAtOnce), changed: make(chan struct{}), resume: make(chan struct{}, 1), name: name, kinds: kinds}
}

// follow keeps the hub current until ctx ends, except while it pauses. A log that was replaced begins anew.
func (h *outputHub) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := client.Follow(ctx, h.nc, client.FollowOptions{
			Tenant: h.flags.Tenant, Space: h.flags.Space(), Kinds: h.kinds, OnTrouble: func(err error) { h.reportTrouble(err) },
		}, func(list []events.Output, at client.Position) error {
			h.add(list, at)
			return h.pauseIfUnread(time.Now())
		})
		if errors.Is(err, errUnread) {
			select {
			case <-h.resume:
			case <-ctx.Done():
			}
			continue
		}
		if ctx.Err() == nil {
			h.reportTrouble(err)
			h.reset()
		}
		_ = retry.Sleep(ctx, hubRestart)
	}
}

func (h *outputHub) reportTrouble(err error) {
	if err != nil {
		h.env.Health.Set(h.name, "the outputs of the log cannot be followed: does a correlator run?")
		return
	}
	h.env.Health.Set(h.name, "")
}

func (h *outputHub) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
}

// forget drops what the hub knows of the log; the caller holds mu.
func (h *outputHub) forget() {
	h.log, h.from, h.next, h.recent, h.bytes = "", 0, 0, nil, 0
	h.wake()
}

// pauseIfUnread returns errUnread if no stream has read for hubLinger. The hub then knows no position: the
// next stream begins at the end that the log has by then. A stream that waits wakes and reads.
func (h *outputHub) pauseIfUnread(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.read) < hubLinger {
		return nil
	}
	h.paused = true
	h.forget()
	return errUnread
}

// noteReader ends a pause; the caller holds mu.
func (h *outputHub) noteReader() {
	h.read = time.Now()
	if h.paused {
		h.paused = false
		h.resume <- struct{}{}
	}
}

// wake tells the streams; the caller holds mu.
func (h *outputHub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *outputHub) add(list []events.Output, at client.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.log != at.Log {
		h.log, h.from, h.recent, h.bytes = at.Log, at.After, nil, 0
		if len(list) > 0 {
			h.from = list[0].Seq - 1
		}
		h.env.Health.Set(h.name, "")
	}
	for _, out := range list {
		r := newRecord(h.flags.Space(), h.log, out)
		h.recent, h.bytes = append(h.recent, r), h.bytes+len(r.text)
	}
	drop := 0
	for n := len(h.recent); n-drop > hubOutputs || h.bytes > hubBytes && drop < n; drop++ {
		h.bytes -= len(h.recent[drop].text)
		h.from = h.recent[drop].Seq
	}
	h.recent = slices.Clip(h.recent[drop:])
	h.next = at.After
	h.wake()
}

// after returns what the hub has behind a position, at most pieceBytes or one record, the position behind that, and
// the channel of the next change. held is false if outputs behind the position are no longer, or not yet, in memory.
func (h *outputHub) after(at client.Position) (list []record, next client.Position, changed <-chan struct{}, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteReader()
	if h.log != at.Log || at.After < h.from {
		return nil, at, h.changed, false
	}
	if at.After >= h.next { // also a stream whose page was newer than the hub
		return nil, at, h.changed, true
	}
	i, _ := slices.BinarySearchFunc(h.recent, at.After+1, func(r record, seq uint64) int {
		return cmp.Compare(r.Seq, seq)
	})
	list, next = h.recent[i:], client.Position{Log: h.log, After: h.next}
	for n, bytes := 0, 0; n < len(list); n++ {
		if bytes += len(list[n].text); n > 0 && bytes > pieceBytes {
			list, next.After = list[:n], list[n-1].Seq
		}
	}
	return list, next, h.changed, true
}

// position is the end of the log as far as the hub knows it.
func (h *outputHub) position(ctx context.Context) (client.Position, bool) {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	for {
		h.mu.Lock()
		h.noteReader()
		at, changed := client.Position{Log: h.log, After: h.next}, h.changed
		h.mu.Unlock()
		if at.Log != "" {
			return at, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, false
		}
	}
}

// page reads the outputs of a kind behind a position from the log.
func (h *outputHub) page(ctx context.Context, kind string, at client.Position) ([]record, client.Position, error) {
	p, err := h.request(ctx, events.FollowRequest{Log: at.Log, After: &at.After, Kinds: []string{kind}, Max: events.FollowMax})
	if err != nil {
		return nil, at, err
	}
	if p.Log != at.Log || p.Next < at.After {
		return nil, at, errors.New("the page makes no sense")
	}
	list := make([]record, len(p.Outputs))
	for i, out := range p.Outputs {
		list[i] = newRecord(h.flags.Space(), p.Log, out)
	}
	return list, client.Position{Log: p.Log, After: p.Next}, nil
}

// request asks the follow service for a page.
func (h *outputHub) request(ctx context.Context, req events.FollowRequest) (p events.FollowPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	select {
	case h.pages <- struct{}{}:
		defer func() { <-h.pages }()
	case <-ctx.Done():
		return p, ctx.Err()
	}
	body, err := json.Marshal(req)
	if err != nil {
		return p, err
	}
	reply, err := h.nc.RequestWithContext(ctx, h.flags.Space().Follow(h.flags.Tenant), body)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(reply.Data, &p); err != nil {
		return p, err
	}
	if p.Error != nil {
		return p, p.Error
	}
	return p, nil
}
