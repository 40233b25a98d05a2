package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

const (
	heartbeat    = 15 * time.Second // between two signs of life of an idle stream
	hubOutputs   = 4096             // outputs in memory for streams that are nearly current
	hubBytes     = 16 << 20
	hubRestart   = time.Second
	pagesAtOnce  = 4 // pages that are read for streams that lag, at the same time
	pageTimeout  = 10 * time.Second
	firstTimeout = 5 * time.Second // for the hub to know the log's position
)

// followRoles are the kinds of outputs that a role may follow: those of the NATS role.
var followRoles = map[string][]string{
	token.Subscriber: append(slices.Clone(events.FollowKinds), events.FollowAAEP),
	token.Reviewer:   {string(subject.Decisions), string(subject.Approvals)},
}

// outputHub follows the outputs of the tenant's log once, for all streams. It keeps the newest ones in
// memory; a stream that lags behind them reads pages.
type outputHub struct {
	nc    *nats.Conn
	flags Flags
	env   daemon.Env
	pages chan struct{}
	kinds []string // that it follows; none for all outputs
	name  string   // in the health report

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	log     string        // "" until the first page
	from    uint64        // recent has every output behind this position
	next    uint64        // and up to this one
	recent  []events.Output
	bytes   int
}

func newOutputHub(nc *nats.Conn, f Flags, env daemon.Env) *outputHub {
	return &outputHub{nc: nc, flags: f, env: env, pages: make(chan struct{}, pagesAtOnce), changed: make(chan struct{}), name: "outputs"}
}

// follow keeps the hub current until ctx ends. A log that was replaced begins anew.
func (h *outputHub) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := client.Follow(ctx, h.nc, client.FollowOptions{
			Tenant: h.flags.Tenant, Space: h.flags.Space(), Kinds: h.kinds, OnTrouble: func(err error) { h.reportTrouble(err) },
		}, func(list []events.Output, at client.Position) error { h.add(list, at); return nil })
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
	h.log, h.from, h.next, h.recent, h.bytes = "", 0, 0, nil, 0
	h.wake()
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
		h.recent, h.bytes = append(h.recent, out), h.bytes+len(out.Record)
	}
	drop := 0
	for n := len(h.recent); n-drop > hubOutputs || h.bytes > hubBytes && drop < n; drop++ {
		h.bytes -= len(h.recent[drop].Record)
		h.from = h.recent[drop].Seq
	}
	h.recent = slices.Clip(h.recent[drop:])
	h.next = at.After
	h.wake()
}

// after returns what the hub has behind a position, and the channel of the next change. held is false if
// outputs behind the position are no longer, or not yet, in memory.
func (h *outputHub) after(at client.Position) (list []events.Output, next client.Position, changed <-chan struct{}, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.log != at.Log || at.After < h.from {
		return nil, at, h.changed, false
	}
	if at.After >= h.next { // also a stream whose page was newer than the hub
		return nil, at, h.changed, true
	}
	i, _ := slices.BinarySearchFunc(h.recent, at.After+1, func(o events.Output, seq uint64) int {
		return cmp.Compare(o.Seq, seq)
	})
	return h.recent[i:], client.Position{Log: h.log, After: h.next}, h.changed, true
}

// position is the end of the log as far as the hub knows it.
func (h *outputHub) position(ctx context.Context) (client.Position, bool) {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	for {
		h.mu.Lock()
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
func (h *outputHub) page(ctx context.Context, kind string, at client.Position) ([]events.Output, client.Position, error) {
	p, err := h.request(ctx, events.FollowRequest{Log: at.Log, After: &at.After, Kinds: []string{kind}, Max: events.FollowMax})
	if err != nil {
		return nil, at, err
	}
	if p.Log != at.Log || p.Next < at.After {
		return nil, at, errors.New("the page makes no sense")
	}
	return p.Outputs, client.Position{Log: p.Log, After: p.Next}, nil
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

// streamCount bounds the open streams.
type streamCount struct {
	mu        sync.Mutex
	all       int
	byToken   map[string]int
	most, per int
}

func newStreamCount(most, per int) *streamCount {
	return &streamCount{byToken: map[string]int{}, most: most, per: per}
}

func (c *streamCount) open(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.byToken[id] >= c.per {
		return false
	}
	c.all++
	c.byToken[id]++
	return true
}

func (c *streamCount) close(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.byToken[id]--; c.byToken[id] == 0 {
		delete(c.byToken, id)
	}
}

const followPattern = "GET /v1/follow/{kind}"

// followed is what one stream shows: the outputs of a kind that pass a filter, from a hub that has them.
type followed struct {
	hub    *outputHub
	kind   string
	filter gateway.Filter
}

// followedKind is the stream of a kind. The events and replies of AAEP have a hub of their own.
func (s *server) followedKind(kind string) followed {
	if kind == events.FollowAAEP {
		return followed{hub: s.aaep.events, kind: kind}
	}
	return followed{hub: s.outputs, kind: kind}
}

// choose returns the outputs that the stream shows.
func (f followed) choose(list []events.Output) []events.Output {
	alone := len(f.hub.kinds) > 0 // the hub has this kind alone
	if alone && f.filter.IsAll() {
		return list
	}
	start := f.hub.flags.Prefix + "." + f.kind + "."
	return slices.DeleteFunc(slices.Clone(list), func(o events.Output) bool {
		return !alone && !strings.HasPrefix(o.Subject, start) || !f.filter.Passes(o)
	})
}

// followOutputs is the endpoint of streams: server-sent events, one for each record. Its id is the
// position in the log; a client that comes back with Last-Event-ID gets what followed, each once.
func (s *server) followOutputs(w http.ResponseWriter, r *http.Request) {
	kind := r.PathValue("kind")
	who, id, p := s.admitCaller(r, func(t token.Record) bool { return len(followRoles[t.Role]) > 0 })
	switch {
	case p != nil:
	case !slices.Contains(followRoles[token.Subscriber], kind):
		p = gateway.ProblemOf(gateway.NoSuchEndpoint)
	case !slices.Contains(followRoles[who.Role], kind):
		p = gateway.ProblemOf(gateway.WrongRole)
	default:
		f := s.followedKind(kind)
		if f.filter, p = gateway.ReadFilter(s.flags.Space(), kind, r.URL.RawQuery); p != nil {
			break
		}
		if !s.streams.open(id) {
			p = gateway.ProblemOf(gateway.TooManyStreams)
			break
		}
		defer s.streams.close(id)
		p = s.stream(w, r, f, id)
	}
	if p != nil {
		s.write(w, followPattern, p.Response())
	}
}

// stream serves one stream. It returns a problem only if it has written nothing.
func (s *server) stream(w http.ResponseWriter, r *http.Request, f followed, id string) *endpoint.Problem {
	list, at, p := f.begin(r)
	if p != nil {
		return p
	}
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Time{}) != nil {
		return gateway.ProblemOf(gateway.Panicked)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s.env.Metrics.Gateway().Answered(followPattern, http.StatusOK)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	text := []byte(": " + at.Log + "\n")
	for {
		text = appendOutputs(text, f.kind, at, list)
		if control.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return nil
		}
		if _, err := w.Write(text); err != nil || control.Flush() != nil {
			return nil
		}
		if _, now, refused := s.signIn(r); refused != nil || now != id { // revoked or expired meanwhile, or mapped otherwise
			return nil
		}
		var ok bool
		if list, at, ok = s.nextOutputs(r.Context(), f, at, beat.C); !ok {
			return nil
		}
		text = text[:0]
	}
}

// begin returns the first outputs and the position behind them. A stream without Last-Event-ID begins at
// the end of the log.
func (f followed) begin(r *http.Request) ([]events.Output, client.Position, *endpoint.Problem) {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		at, known := f.hub.position(r.Context())
		if !known {
			return nil, at, gateway.ProblemOf(gateway.NATSAway)
		}
		return nil, at, nil
	}
	at, ok := parsePosition(last)
	if !ok {
		return nil, at, gateway.ProblemOf(gateway.BadPosition)
	}
	list, next, err := f.hub.page(r.Context(), f.kind, at)
	switch {
	case isOtherLog(err):
		return nil, at, gateway.ProblemOf(gateway.BadPosition)
	case err != nil:
		return nil, at, gateway.ProblemOf(gateway.NATSAway)
	}
	return f.choose(list), next, nil
}

// isOtherLog reports whether a page was refused because its position is of another log than the present one.
func isOtherLog(err error) bool {
	var refused *events.FollowError
	return errors.As(err, &refused) && (refused.Code == events.FollowReplaced || refused.Code == events.FollowBeyond)
}

// nextOutputs waits for outputs behind a position, or for a heartbeat. ok is false if the stream ends.
func (s *server) nextOutputs(ctx context.Context, f followed, at client.Position, beat <-chan time.Time) (list []events.Output, next client.Position, ok bool) {
	for {
		list, next, changed, held := f.hub.after(at)
		if !held {
			var err error
			if list, next, err = f.hub.page(ctx, f.kind, at); err != nil {
				return nil, at, false // the client comes back with its position
			}
		}
		if list = f.choose(list); len(list) > 0 {
			return list, next, true
		}
		moved := next != at
		at = next
		if !held && moved && ctx.Err() == nil && !s.stopping.Load() {
			continue
		}
		select {
		case <-changed:
		case <-beat:
			return nil, at, true
		case <-s.stopped:
			return nil, at, false
		case <-ctx.Done():
			return nil, at, false
		}
	}
}

// appendOutputs writes records as server-sent events. A record that is too large for a page is named
// only. Without records it writes a sign of life; its id lets a client go on from here, and is no event.
func appendOutputs(text []byte, kind string, at client.Position, list []events.Output) []byte {
	if len(list) == 0 {
		return fmt.Appendf(text, ":\nid: %s/%d\n\n", at.Log, at.After)
	}
	for _, o := range list {
		text = fmt.Appendf(text, "id: %s/%d\nevent: %s\ndata: %s\n\n", at.Log, o.Seq, kind, compactRecord(o))
	}
	return text
}

// compactRecord is a record on one line.
func compactRecord(o events.Output) []byte {
	var line bytes.Buffer
	if len(o.Record) > 0 && json.Compact(&line, o.Record) == nil {
		return line.Bytes()
	}
	body, _ := json.Marshal(map[string]any{"seq": o.Seq, "subject": o.Subject, "too_large": true})
	return body
}

// parsePosition reads the id of an event.
func parsePosition(text string) (client.Position, bool) {
	cut := strings.LastIndexByte(text, '/')
	if cut < 1 || len(text) > 256 {
		return client.Position{}, false
	}
	seq, err := strconv.ParseUint(text[cut+1:], 10, 64)
	return client.Position{Log: text[:cut], After: seq}, err == nil && seq <= math.MaxInt64 // no log is as long, and the next one must be a number, too
}
