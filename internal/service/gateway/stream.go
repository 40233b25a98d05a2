package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

const heartbeat = 15 * time.Second // between two signs of life of an idle stream

// followRoles are the kinds of outputs that a role may follow: those of the NATS role.
var followRoles = map[string][]string{
	token.Subscriber: slices.Concat(events.FollowKinds, events.FollowEventKinds),
	token.Reviewer:   {string(subject.Decisions), string(subject.Approvals)},
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

// now is how many are open.
func (c *streamCount) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

func (c *streamCount) close(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.byToken[id]--; c.byToken[id] == 0 {
		delete(c.byToken, id)
	}
}

// outputStreams serves the streams of outputs and events.
type outputStreams struct {
	server  *server
	outputs *outputHub // decisions, calls, findings and approvals
	events  *outputHub // of protocols
	count   *streamCount
}

func newOutputStreams(s *server) *outputStreams {
	f := s.flags
	return &outputStreams{server: s, outputs: newOutputHub(s.nc, f, s.env, "outputs"), events: newOutputHub(s.nc, f, s.env, "events", events.FollowEventKinds...), count: newStreamCount(f.MaxStreams, f.UserStreams)}
}

const followPattern = "GET /v1/follow/{kind}"

// followed is what one stream shows: the records of a kind that pass a filter, from a hub that has them.
type followed struct {
	hub    *outputHub
	kind   string
	filter gateway.Filter
}

// followedKind is the stream of a kind. The events of protocols have a hub of their own.
func (o *outputStreams) followedKind(kind string) followed {
	if slices.Contains(events.FollowKinds, kind) {
		return followed{hub: o.outputs, kind: kind}
	}
	return followed{hub: o.events, kind: kind}
}

// choose returns the records that the stream shows.
func (f followed) choose(list []record) (chosen []record) {
	for _, r := range list {
		if r.kind == f.kind && f.filter.Passes(r.Output) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// textOf is what a stream sends for records. One record's text is that of all streams. Without records it is a
// sign of life; its id lets a client go on from the position, and is no event.
func textOf(list []record, at client.Position) []byte {
	switch len(list) {
	case 0:
		return fmt.Appendf(nil, ":\nid: %s/%d\n\n", at.Log, at.After)
	case 1:
		return list[0].text
	}
	var text []byte
	for _, r := range list {
		text = append(text, r.text...)
	}
	return text
}

// followOutputs is the endpoint of streams: server-sent events, one for each record. Its id is the
// position in the log; a client that comes back with Last-Event-ID gets what followed, each once.
func (o *outputStreams) followOutputs(w http.ResponseWriter, r *http.Request) {
	kind := r.PathValue("kind")
	who, id, p := o.server.admitCaller(r, func(t token.Record) bool { return len(followRoles[t.Role]) > 0 })
	switch {
	case p != nil:
	case !slices.Contains(followRoles[token.Subscriber], kind):
		p = gateway.ProblemOf(gateway.NoSuchEndpoint)
	case !slices.Contains(followRoles[who.Role], kind):
		p = gateway.ProblemOf(gateway.WrongRole)
	default:
		f := o.followedKind(kind)
		if f.filter, p = gateway.ReadFilter(o.server.flags.Space(), kind, r.URL.RawQuery); p != nil {
			break
		}
		if !o.count.open(id) {
			p = gateway.ProblemOf(gateway.TooManyStreams)
			break
		}
		var list []record
		var at client.Position
		if list, at, p = f.begin(r); p != nil {
			o.count.close(id)
			break
		}
		o.server.openStream(context.WithoutCancel(r.Context()), w, r, followPattern, func(ctx context.Context, out *eventStream) {
			o.showOutputs(ctx, out, f, id, list, at)
		}, func() { o.count.close(id) })
	}
	if p != nil {
		o.server.write(w, followPattern, p.Response())
	}
}

// begin returns the first records and the position behind them. A stream without Last-Event-ID begins at
// the end of the log.
func (f followed) begin(r *http.Request) ([]record, client.Position, *endpoint.Problem) {
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

// showOutputs sends what a stream shows until it ends.
func (o *outputStreams) showOutputs(ctx context.Context, out *eventStream, f followed, id string, list []record, at client.Position) {
	text := slices.Concat([]byte(": "+at.Log+"\n"), textOf(list, at))
	for out.write(text) {
		var ok bool
		if list, at, ok = o.nextOutputs(ctx, f, at, out.beat.C); !ok {
			return
		}
		if _, now, refused := o.server.signIn(out.caller); refused != nil || now != id { // revoked or expired meanwhile, or mapped otherwise
			return
		}
		text = textOf(list, at)
	}
}

// isOtherLog reports whether a page was refused because its position is of another log than the present one.
func isOtherLog(err error) bool {
	var refused *events.FollowError
	return errors.As(err, &refused) && (refused.Code == events.FollowReplaced || refused.Code == events.FollowBeyond)
}

// nextOutputs waits for records behind a position, or for a heartbeat. ok is false if the stream ends.
func (o *outputStreams) nextOutputs(ctx context.Context, f followed, at client.Position, beat <-chan time.Time) (list []record, next client.Position, ok bool) {
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
		if moved && ctx.Err() == nil && !o.server.stopping.Load() {
			continue
		}
		select {
		case <-changed:
		case <-beat:
			return nil, at, true
		case <-o.server.stopped:
			return nil, at, false
		case <-ctx.Done():
			return nil, at, false
		}
	}
}

// parsePosition reads the id of an event.
func parsePosition(text string) (client.Position, bool) {
	cut := strings.LastIndexByte(text, '/')
	if cut < 1 || len(text) > 256 {
		return client.Position{}, false
	}
	seq, err := strconv.ParseUint(text[cut+1:], 10, 64)
	return client.Position{Log: text[:cut], After: seq}, err == nil && seq < math.MaxInt64 // no log is as long, and the next one must be a number, too
}
