// Package follow serves the outputs of a tenant's log to subscribers: pages of decisions, calls,
// findings and approvals, and of the events of aaep and aioc, in the log's order, from any position on. A request waits if there is no
// output yet. Begin with Serve.
//
// A plain subscription to gov.decisions.<tenant>.> gets a record when it is sent; a page has it
// once it is stored, with its sequence. A subscriber that requests the page after its last one
// misses nothing and gets nothing twice, however often it lost its connection.
//
// Tenants may not create consumers in the log's account, because the server would deliver to any
// subject that a consumer names.
package follow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/follow/aaep"
	"github.com/countersign-dev/countersign/internal/service/follow/aioc"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/streams"
)

const (
	queueGroup         = "countersign-follow"
	perUser            = 16        // concurrent requests of one user; a gateway is one
	pageBytes          = 256 << 10 // bytes of records in a page
	recordSize         = 384 << 10 // a larger record is left out of its page
	readTime           = 10 * time.Second
	crossAccountPrefix = "_R_." // prefix of reply subjects that the server makes for requests from other accounts
)

// server answers requests for pages.
type server struct {
	js     jetstream.JetStream
	stream string
	space  subject.Space
	log    zerolog.Logger

	mu      sync.Mutex
	stopped bool
	busy    map[shares.Caller]int // requests under way
	all     sync.WaitGroup
}

// Serve answers until ctx ends or stop is called; stop waits for the requests under way. Any
// number of processes may serve one log.
func Serve(ctx context.Context, js jetstream.JetStream, stream string, space subject.Space, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{js: js, stream: stream, space: space, log: log, busy: map[shares.Caller]int{}}
	sub, err := js.Conn().QueueSubscribe(space.All(subject.Follow), queueGroup, func(m *nats.Msg) { s.acceptRequest(ctx, m) })
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serving followers: %w", err)
	}
	return func() {
		_ = sub.Unsubscribe()
		cancel()
		s.mu.Lock() // no request begins after this
		s.stopped = true
		s.mu.Unlock()
		s.all.Wait()
	}, nil
}

// acceptRequest handles a request in a goroutine, within its user's share.
func (s *server) acceptRequest(ctx context.Context, m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, crossAccountPrefix) {
		return // the sender chose the reply subject itself
	}
	from, theirs := s.callerOf(m)
	switch {
	case !theirs:
		s.sendPage(m, refusalPage(events.FollowRefused, "you are no subscriber of that tenant"))
	case !s.beginRequest(from):
		s.sendPage(m, refusalPage(events.FollowBusy, fmt.Sprintf("%d requests of this user wait already; ask again when one is answered", perUser)))
	default:
		go func() {
			defer s.endRequest(from)
			s.sendPage(m, s.buildPage(ctx, from.Tenant, m.Data))
		}()
	}
}

// callerOf is the tenant in the request's subject, and the user that asks. theirs is false unless the server's
// stamp shows that the request comes from an account of that tenant or of its gateway.
func (s *server) callerOf(m *nats.Msg) (from shares.Caller, theirs bool) {
	p, err := s.space.Parse(m.Subject)
	id, identityErr := streams.RequestIdentity(m.Header)
	return shares.Caller{Tenant: p.Tenant, User: id.User}, err == nil && identityErr == nil && (id.IsOfTenant(p.Tenant) || id.IsGatewayOf(p.Tenant))
}

func (s *server) beginRequest(from shares.Caller) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.busy[from] >= perUser {
		return false
	}
	s.busy[from]++
	s.all.Add(1)
	return true
}

func (s *server) endRequest(from shares.Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[from]--; s.busy[from] == 0 {
		delete(s.busy, from)
	}
	s.all.Done()
}

func (s *server) sendPage(m *nats.Msg, p events.FollowPage) {
	if p.Outputs == nil {
		p.Outputs = []events.Output{}
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // of a record only blanks between its tokens change
	err := enc.Encode(p)
	if err == nil {
		err = m.Respond(body.Bytes())
	}
	if err != nil {
		s.log.Warn().Err(err).Str("subject", m.Subject).Msg("a page of outputs could not be sent")
	}
}

func refusalPage(code, message string) events.FollowPage {
	return events.FollowPage{Error: &events.FollowError{Code: code, Message: message}}
}

// errPage ends the reading of a page.
var errPage = errors.New("the page is complete")

// buildPage reads one page.
func (s *server) buildPage(ctx context.Context, tenant string, body []byte) events.FollowPage {
	req, err := events.DecodeFollowRequest(body)
	if err != nil {
		return refusalPage(events.FollowInvalid, err.Error())
	}
	st, err := streams.StreamState(ctx, s.js, s.stream)
	if err != nil {
		s.log.Warn().Err(err).Msg("the log cannot be read for a follower")
		return refusalPage(events.FollowUnavailable, "the log cannot be read now; ask again")
	}
	p := events.FollowPage{Log: streams.IncarnationName(s.stream, st.Created), End: st.LastSeq, Next: st.LastSeq}
	o := streams.ReadOptions{Stream: s.stream, From: st.LastSeq + 1, Filter: req.Subjects(s.space, tenant), MaxBatch: req.Max, MaxBytes: pageBytes, Log: s.log}
	switch {
	case req.Log != "" && req.Log != p.Log:
		return refusalPage(events.FollowReplaced, "the log is "+p.Log+" now; begin anew, without log and after")
	case req.Workflow != "":
		return s.newestOf(ctx, tenant, req.Workflow, p)
	case req.After != nil && *req.After > st.LastSeq:
		return refusalPage(events.FollowBeyond, fmt.Sprintf("the log ends at %d; was the position of another one?", st.LastSeq))
	case req.After != nil:
		o.From, p.Next = *req.After+1, *req.After
	case !req.Since.IsZero():
		o.From, o.Since = 0, req.Since.Time
	}
	if len(o.Filter) == 0 {
		return p
	}
	return s.fillPage(ctx, p, o, time.Duration(req.WaitMS)*time.Millisecond)
}

// newestOf fills the page with the newest record of each status of an approval workflow: the newest of all
// may be that of an attempt that changed nothing. The page of a workflow that the tenant does not have is
// empty.
func (s *server) newestOf(ctx context.Context, tenant, workflow string, p events.FollowPage) events.FollowPage {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	for _, status := range events.ApprovalStatuses {
		m, err := streams.LastBySubject(ctx, s.js, s.stream, s.space.Approval(tenant, status, workflow))
		if err != nil {
			s.log.Warn().Err(err).Msg("the log cannot be read for a follower")
			return refusalPage(events.FollowUnavailable, "the log cannot be read now; ask again")
		}
		if m == nil {
			continue
		}
		if out, ok := s.toOutput(*m); ok {
			p.Outputs = append(p.Outputs, out)
		}
	}
	slices.SortFunc(p.Outputs, func(a, b events.Output) int { return cmp.Compare(a.Seq, b.Seq) })
	return p
}

// fillPage fills the page with the outputs that exist, or with the first ones that arrive until
// wait is over.
func (s *server) fillPage(ctx context.Context, p events.FollowPage, o streams.ReadOptions, wait time.Duration) events.FollowPage {
	ctx, cancel := context.WithTimeout(ctx, max(wait, readTime))
	defer cancel()
	begun, past, skipped := time.Now(), false, uint64(0)
	o.IdleEvery = max(wait, time.Millisecond)
	o.Idle = func() error { // everything up to the end that p names was read
		past = true
		if time.Since(begun) >= wait {
			return errPage
		}
		return nil
	}
	err := streams.ReadLog(ctx, s.js, o, func(batch []events.LogMessage) error {
		for _, m := range batch {
			if out, ok := s.toOutput(m); ok {
				p.Outputs = append(p.Outputs, out)
			}
			skipped = m.Seq // for a page without outputs
		}
		if len(p.Outputs) == 0 {
			return nil
		}
		return errPage
	})
	switch {
	case len(p.Outputs) > 0:
		p.Next = p.Outputs[len(p.Outputs)-1].Seq
	case past:
		p.Next = max(p.Next, p.End)
	case skipped > 0:
		p.Next = skipped
	case !errors.Is(err, errPage):
		s.log.Warn().Err(err).Msg("the log could not be read for a follower")
		return refusalPage(events.FollowUnavailable, "the log could not be read in time; ask again")
	}
	return p
}

// eventReaders return the event of a message by its kind; ok is false for what is none of that kind.
var eventReaders = map[string]func(subject.Parsed, events.LogMessage) (raw []byte, ok bool){events.KindAAEP: aaep.Read, events.KindAIOC: aioc.Read}

// toOutput is the output of a message; ok is false for an event that no follower gets, and for a subject
// that means nothing: a publisher chooses the subjects of its events.
func (s *server) toOutput(m events.LogMessage) (out events.Output, ok bool) {
	body := m.Body
	p, err := s.space.Parse(m.Subject)
	if err != nil {
		return out, false
	}
	if p.Class == subject.Events {
		read := eventReaders[events.FollowKindOf(p)]
		if read == nil {
			return out, false
		}
		if body, ok = read(p, m); !ok {
			return out, false
		}
	}
	out = events.Output{Seq: m.Seq, Subject: m.Subject, At: events.At(m.Time)}
	if len(body) <= recordSize && json.Valid(body) {
		out.Record = body
	}
	return out, true
}
