package admit

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/streams"
)

// headerBytes is about the size of the headers of a decision, and of an answer: signature or
// receipt, ids, CloudEvents attributes.
const headerBytes = 1100

const nonceSize = 16 // bytes of a receipt

// floors measures what the server alone permits with many clients. An answerer replaces the
// admitter on the same subjects and accounts. It decides and signs nothing, but answers only
// after it has durably appended a request and a decision of the usual sizes, with the same group
// commit. It runs in this process, so it costs less than any admitter can.
func (c *Cmd) floors(ctx context.Context, io ui.Stdio, p *pipeline.Pipeline, request []byte) error {
	a, err := newAnswerer(p, request)
	if err != nil {
		return err
	}
	stop, err := a.serve(ctx, p, c.SyncInterval != "always")
	if err != nil {
		return err
	}
	defer stop()
	b := &loadBench{t: target.FromReady(p.Ready()), duration: c.Duration, request: request}
	for _, n := range c.Clients {
		if n == 1 {
			continue // it has a floor without group commits
		}
		r, err := b.measureClients(ctx, floorMany, n, b.ask)
		if err == nil {
			c.floor[n] = r.PerSecond
			err = measure.Print(io, c.JSON, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const floorMany = "floor: answered when durable"

// ask is one request to an answerer.
func (b *loadBench) ask() operation {
	subj := subject.Space{Prefix: b.t.Prefix}.Admit(b.t.Tenant, subject.ProtoAgentHook)
	return operation{target.Runtime, func(ctx context.Context, nc *nats.Conn) error {
		_, err := nc.RequestWithContext(ctx, subj, b.request)
		return err
	}}
}

// answerer replaces the admitter.
type answerer struct {
	msgs      []streams.Msg // appended for every request
	answer    *nats.Msg
	committer *streams.Committer
}

// newAnswerer makes one decision to learn the sizes.
func newAnswerer(p *pipeline.Pipeline, request []byte) (*answerer, error) {
	set, err := policy.Compile(measure.SamplePolicies(0))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tenant := p.Ready().Tenant
	out := admission.Decide(
		admission.Request{Tenant: tenant, Source: "bench", Protocol: subject.ProtoAgentHook, Body: request, ReceivedAt: now},
		&admission.Config{Policies: set, Revision: 1},
		admission.Inputs{Now: now, DecisionID: uuid.NewString(), Salt: make([]byte, receipt.SaltSize),
			Nonce: base64.RawURLEncoding.EncodeToString(make([]byte, nonceSize)), TenantKey: make([]byte, 32), KnownTenant: true})
	record, err := events.Encode(out.Decision)
	if err != nil {
		return nil, err
	}
	reply, err := out.Reply()
	if err != nil {
		return nil, err
	}
	header := map[string][]string{events.HeaderSignature: {strings.Repeat("s", headerBytes)}}
	d, space := out.Decision, subject.Space{}
	return &answerer{
		msgs: []streams.Msg{
			{Subject: space.Request(tenant, d.Source, d.Protocol, d.Session), Header: map[string][]string{events.HeaderDecisionID: {d.DecisionID}}, Body: request},
			{Subject: space.Decision(tenant, string(d.Verdict), d.Session), Header: header, Body: record},
		},
		answer: &nats.Msg{Header: nats.Header{events.HeaderReceipt: header[events.HeaderSignature]}, Data: reply},
	}, nil
}

func (a *answerer) serve(ctx context.Context, p *pipeline.Pipeline, interval bool) (stop func(), err error) {
	connect := func() (*nats.Conn, error) {
		u := p.Service(streams.RoleAdmitter)
		return streams.Connect(ctx, streams.ConnectOptions{URL: p.Ready().NATSURL, User: u.Name, Password: u.Password, Name: "countersign-bench"})
	}
	log, err := connect()
	if err != nil {
		return nil, err
	}
	asked, err := connect()
	if err != nil {
		log.Close()
		return nil, err
	}
	stop = func() { asked.Close(); log.Close() }
	options := streams.CommitterOptions{Stream: streams.DefaultShard}
	if interval {
		options.BatchAbove = streams.NeverBatch
	}
	if a.committer, err = streams.NewCommitter(log, options); err != nil {
		stop()
		return nil, err
	}
	stop = func() { asked.Close(); a.committer.Close(); log.Close() }
	_, err = asked.Subscribe(subject.Space{}.All(subject.Admit), func(m *nats.Msg) { go a.reply(ctx, m) })
	if err == nil {
		err = asked.Flush()
	}
	if err != nil {
		stop()
	}
	return stop, err
}

// reply answers once both records are durable. Otherwise it sends nothing, and the caller's
// request fails.
func (a *answerer) reply(ctx context.Context, m *nats.Msg) {
	if _, err := a.committer.Append(ctx, a.msgs...); err == nil {
		_ = m.RespondMsg(&nats.Msg{Header: a.answer.Header, Data: a.answer.Data})
	}
}
