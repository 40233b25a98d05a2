// Package tokenview answers the gateways' questions for the tokens of their tenant. The bucket of tokens holds
// those of all tenants, and a permission cannot name keys of a bucket, so a gateway does not read it: the
// admitter does, and gives each gateway the records of its own tenant. Begin with Serve.
package tokenview

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/streams"
)

const (
	queueGroup  = "tokens"
	readTimeout = 5 * time.Second // of what has changed in the bucket
	lookEvery   = token.ViewAge   // a look at the bucket serves the requests of so long
	maxWaiting  = 65536           // requests; each gateway has one a second, and up to ten while callers come whom it does not know
	waitingMax  = 64 << 20        // bytes of them

	// A tenant's gateways have so many requests, so that none keeps those of other tenants waiting. A page of many
	// tokens is one.
	perSecond, burst = 100, 5 * time.Second
)

// server answers one request at a time: what it holds needs no lock.
type server struct {
	js    jetstream.JetStream
	space subject.Space
	log   zerolog.Logger

	looked   time.Time         // when the last look at the bucket began
	created  time.Time         // of the bucket
	revision uint64            // up to which the bucket was read
	tenants  map[string]*held  // by the prefix of their keys
	prefixes map[string]string // by the tenant's token in subjects
	rates    *quota.Meter      // of the tenants, by the same
}

// held are the records of a tenant, by id.
type held struct {
	records map[string][]byte
	view    *token.View // nil if it was not made since the records changed
}

// Serve answers until stop is called, and from its return on. Several instances share the requests.
func Serve(ctx context.Context, js jetstream.JetStream, space subject.Space, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{js: js, space: space, log: log, tenants: map[string]*held{}, prefixes: map[string]string{}, rates: quota.NewMeter(quota.Quotas{Tenant: quota.Rate{Messages: perSecond}, Burst: burst})}
	sub, err := js.Conn().QueueSubscribe(space.All(subject.Tokens), queueGroup, func(m *nats.Msg) { s.answer(ctx, m) })
	if err == nil {
		err = sub.SetPendingLimits(maxWaiting, waitingMax)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serving the gateways' tokens: %w", err)
	}
	_ = js.Conn().FlushTimeout(readTimeout) // the server knows of it then; without a connection, once there is one
	return func() {
		_ = sub.Unsubscribe()
		cancel()
	}, nil
}

func (s *server) answer(ctx context.Context, m *nats.Msg) {
	if !streams.IsAnswerable(m.Reply) || ctx.Err() != nil {
		return
	}
	body, err := json.Marshal(s.reply(ctx, m))
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("the answer to a gateway could not be sent")
	}
}

// reply gives a gateway the tokens of its tenant. All refusals are alike.
func (s *server) reply(ctx context.Context, m *nats.Msg) token.ViewReply {
	of, _ := strings.CutPrefix(m.Subject, strings.TrimSuffix(s.space.All(subject.Tokens), ">"))
	id, noIdentity := streams.RequestIdentity(m.Header)
	var req token.ViewRequest
	if noIdentity != nil || !id.IsGatewayOfToken(of) || json.Unmarshal(m.Data, &req) != nil {
		return token.ViewReply{Error: "refused"}
	}
	if !s.take(of) {
		return token.ViewReply{Error: "busy"}
	}
	if err := s.look(ctx); err != nil {
		s.log.Error().Err(err).Msg("the tokens cannot be read; gateways are told none")
		return token.ViewReply{Error: "unavailable"}
	}
	its := s.tenants[s.prefixes[of]]
	if its == nil {
		its = &held{}
	}
	if its.view == nil {
		its.view = token.NewView(its.records)
	}
	return its.view.Page(req)
}

// take reports whether a tenant, of which a gateway asks, may have another answer now.
func (s *server) take(of string) bool {
	_, ok := s.rates.Take(time.Now(), of, "", 0)
	return ok
}

// look reads what has changed in the bucket, from its leader.
func (s *server) look(ctx context.Context) error {
	begun := time.Now()
	if begun.Sub(s.looked) < lookEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := streams.StreamState(ctx, s.js, "KV_"+streams.BucketTokens)
	if err != nil {
		return err
	}
	if !st.Created.Equal(s.created) || st.LastSeq < s.revision { // another bucket
		s.created, s.revision, s.tenants = st.Created, 0, map[string]*held{}
	}
	for s.revision < st.LastSeq {
		e, err := streams.KVNext(ctx, s.js, streams.BucketTokens, s.revision+1)
		if err != nil {
			return err
		}
		if e == nil {
			s.revision = st.LastSeq
			break
		}
		s.apply(*e)
		s.revision = e.Revision
	}
	s.looked = begun
	return nil
}

func (s *server) apply(e streams.KVEntry) {
	at := strings.IndexByte(e.Key, '.') + 1
	of := s.tenants[e.Key[:at]]
	if of == nil {
		of = &held{records: map[string][]byte{}}
		s.tenants[e.Key[:at]] = of
	}
	of.view = nil
	if e.Deleted {
		delete(of.records, e.Key[at:])
		return
	}
	of.records[e.Key[at:]] = e.Value
	if r, err := token.Decode(e.Value); err == nil && token.Prefix(r.Tenant) == e.Key[:at] {
		s.prefixes[subject.Escape(r.Tenant)] = e.Key[:at]
	}
}
