package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/aaep"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

const (
	aaepAgent    = "countersign-gateway"
	aaepUnused   = 2 * time.Minute // a subscription over SSE that no stream reads for so long ends
	aaepSent     = 1024            // events that a subscription can continue behind, at least
	aaepMarks    = 64              // places before them to which it can go back, aaepSent events apart
	manifestPath = "/.well-known/aaep-manifest.json"
)

// aaepPatience is how long a WebSocket may take for its first message.
var aaepPatience = 15 * time.Second

// eventReaders read the events of a kind once for all streams: here those that subscriptions deliver.
var eventReaders = map[string]func(record []byte) any{events.KindAAEP: readAAEP}

// readAAEP reads an event; nil for replies and for what breaks AAEP's schema.
func readAAEP(record []byte) any {
	if e, ok := aaep.ReadEvent(record); ok {
		return &e
	}
	return nil
}

// aaepBridge serves AAEP subscriptions (appendix B of AAEP).
type aaepBridge struct {
	server *server
	terms  aaep.Terms
	events *outputHub
	count  *streamCount
	log    zerolog.Logger // for messages that are ignored; at most one line a second

	mu   sync.Mutex
	subs map[string]*aaepSubscription // over SSE, by id
}

func newAAEPBridge(s *server, hub *outputHub) (*aaepBridge, error) {
	f := s.flags
	b := &aaepBridge{server: s, terms: aaep.Terms{AgentID: aaepAgent, Languages: f.Languages}, events: hub,
		count: newStreamCount(f.MaxStreams, f.UserStreams), subs: map[string]*aaepSubscription{},
		log: s.env.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Second})}
	if f.ManifestKey == "" {
		return b, nil
	}
	signed, err := signManifest(f.ManifestKey, b.terms.Manifest())
	b.terms.SignedManifest = signed
	return b, err
}

// signManifest signs by ES256, as AAEP recommends (10.4). The header has the public key; a subscriber
// checks the key's owner by comparing the thumbprint (kid) with one that it has from elsewhere.
func signManifest(path string, manifest map[string]any) (string, error) {
	seed, err := keys.Seed(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return "", err
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed)
	if err != nil {
		return "", err
	}
	public := jose.JSONWebKey{Key: key.Public()}
	thumb, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: hex.EncodeToString(thumb)}},
		(&jose.SignerOptions{EmbedJWK: true}).WithType("JOSE"))
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}
	out, err := signer.Sign(body)
	if err != nil {
		return "", err
	}
	return out.CompactSerialize()
}

// aaepSubscription is a subscription and its place in the log. A user owns it, not a token: a rotated
// token goes on with it.
type aaepSubscription struct {
	user  string
	token string // whose share it takes

	mu   sync.Mutex
	sub  *aaep.Subscription
	at   client.Position // everything up to it was handed on
	sent []sentEvent     // the last ones, the oldest first
	// marks are the sequences of events before those in sent. A network holds more events that a subscriber has
	// not read than sent has.
	marks []uint64
	used  time.Time

	reading chan struct{}      // holds a value while a stream reads
	stop    context.CancelFunc // ends the newest stream, which reads or waits to read; guarded by mu
	turn    uint64             // of the newest stream
}

// sentEvent is an event that a subscriber may continue behind.
type sentEvent struct {
	id  string
	seq uint64
}

// subscribe answers a request with a subscription or a rejection. The caller frees the subscription's place.
func (b *aaepBridge) subscribe(ctx context.Context, m aaep.Message, who token.Record, id string) (*aaepSubscription, *aaep.Rejection) {
	if !b.count.open(id) {
		return nil, aaep.Reject(aaep.RateLimit, "too many subscriptions are open", 5)
	}
	at, known := b.events.position(ctx)
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil || !known {
		b.count.close(id)
		return nil, aaep.Reject(aaep.TransportUnavailable, "the events cannot be read now", 5)
	}
	sub, r := aaep.Negotiate(b.terms, m, "sub_"+hex.EncodeToString(random))
	if r != nil {
		b.count.close(id)
		return nil, r
	}
	return &aaepSubscription{user: who.User, token: id, sub: sub, at: at, used: time.Now(), reading: make(chan struct{}, 1)}, nil
}

// add keeps a subscription over SSE.
func (b *aaepBridge) add(a *aaepSubscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[a.sub.ID] = a
}

// sweep ends the subscriptions that no stream has read for too long.
func (b *aaepBridge) sweep(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, a := range b.subs {
		a.mu.Lock()
		idle := a.stop == nil && now.Sub(a.used) > aaepUnused
		a.mu.Unlock()
		if idle {
			delete(b.subs, id)
			b.count.close(a.token)
		}
	}
}

// find is a user's subscription; another's is as unknown as one that never was.
func (b *aaepBridge) find(id, user string) *aaepSubscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.subs[id]; a != nil && a.user == user {
		return a
	}
	return nil
}

func (b *aaepBridge) remove(a *aaepSubscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs[a.sub.ID] == a {
		delete(b.subs, a.sub.ID)
		b.count.close(a.token)
	}
}

// nextEvents waits for events of the subscription, or for a heartbeat (none, and ok).
func (b *aaepBridge) nextEvents(ctx context.Context, a *aaepSubscription, beat <-chan time.Time) (list []*aaep.Event, ok bool) {
	for {
		a.mu.Lock()
		at := a.at
		a.mu.Unlock()
		outs, next, changed, held := b.events.after(at)
		if !held {
			var err error
			if outs, next, err = b.events.page(ctx, events.KindAAEP, at); err != nil {
				if isOtherLog(err) { // its place is nowhere: the subscriber subscribes anew
					b.remove(a)
				}
				return nil, false
			}
		}
		list = a.choose(outs, next, time.Now())
		if len(list) > 0 {
			return list, true
		}
		if next != at {
			continue
		}
		select {
		case <-changed:
		case <-beat:
			return nil, true
		case <-b.server.stopped:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// choose returns the events that go to the subscriber, notes them, and moves to next. Beyond aaepSent events it
// stops behind the last one: a subscriber that gets only some of them can go on behind each.
func (a *aaepSubscription) choose(outs []record, next client.Position, now time.Time) (list []*aaep.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = next
	for _, r := range outs {
		if len(list) == aaepSent {
			a.at.After = a.sent[len(a.sent)-1].seq
			break
		}
		e, is := r.event.(*aaep.Event)
		if !is || !a.sub.Delivers(*e, now) {
			continue
		}
		if len(a.sent) == 2*aaepSent {
			a.marks = append(a.marks[max(0, len(a.marks)+1-aaepMarks):], a.sent[0].seq)
			a.sent = slices.Clone(a.sent[aaepSent:])
		}
		list, a.sent = append(list, e), append(a.sent, sentEvent{e.ID, r.Seq})
	}
	return list
}

// resume puts the subscription behind an event. Behind one that it does not know, and without one, it goes
// back as far as it can: an event may come twice, none is lost.
func (a *aaepSubscription) resume(last string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sent) == 0 {
		return
	}
	known := slices.IndexFunc(a.sent, func(e sentEvent) bool { return e.id == last })
	if known < 0 {
		oldest := append(slices.Clone(a.marks), a.sent[0].seq)[0]
		a.at.After, a.sent, a.marks = oldest-1, nil, nil
		return
	}
	a.at.After, a.sent = a.sent[known].seq, a.sent[:known+1]
}

func (a *aaepSubscription) handle(m aaep.Message) aaep.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sub.Handle(m)
}

// storeReply puts a reply on the log as an event of the subscriber's user. Ingest refuses it unless the
// user is registered as reached through this gateway.
func (b *aaepBridge) storeReply(ctx context.Context, user string, reply []byte) *endpoint.Problem {
	if !b.server.nc.IsConnected() {
		return gateway.ProblemOf(gateway.NATSAway)
	}
	msgs, err := client.Sender{Space: b.server.flags.Space(), Tenant: b.server.flags.Tenant, Publisher: user}.Messages(subject.ProtoAAEP, reply)
	if err != nil {
		return gateway.ProblemOf(gateway.BadEvent)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.server.flags.Timeout)
	defer cancel()
	if err := streams.PublishEvents(ctx, b.server.nc, msgs); err != nil {
		return gateway.ProblemOf(publishFailure(err))
	}
	b.server.count.Stored(subject.ProtoAAEP, len(msgs))
	return nil
}

// holds reports whether the caller of an open connection is still the subscriber that opened it: a token, a
// certificate or a JWT may have expired, been revoked, or been mapped to another user or role.
func (b *aaepBridge) holds(r *http.Request, user string) bool {
	who, _, refused := b.server.signIn(r)
	return refused == nil && isSubscriber(who) && who.User == user
}

func isSubscriber(t token.Record) bool { return t.Role == token.Subscriber }

// routes adds AAEP's endpoints.
func (b *aaepBridge) routes(mux *router) {
	mux.HandleFunc("GET "+manifestPath, b.serveManifest)
	mux.HandleFunc(subscribePattern, b.postSubscription)
	mux.HandleFunc(aaepEventsPattern, b.getEvents)
	mux.HandleFunc(repliesPattern, b.postReply)
	mux.HandleFunc(socketPattern, b.openSocket)
}

// serveManifest answers with the manifest, or with its signature where the client asks for JOSE.
func (b *aaepBridge) serveManifest(w http.ResponseWriter, r *http.Request) {
	out := endpoint.JSON(http.StatusOK, b.terms.Manifest())
	if signed := b.terms.SignedManifest; signed != "" && acceptsJOSE(r.Header) {
		out = endpoint.Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/jose"}}, Body: []byte(signed)}
	}
	b.server.write(w, "GET "+manifestPath, out)
}

// acceptsJOSE reports whether a client names JOSE among what it takes.
func acceptsJOSE(h http.Header) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(h.Values("Accept"), ","), ","), func(part string) bool {
		media, parameters, err := mime.ParseMediaType(part)
		return err == nil && media == "application/jose" && parameters["q"] != "0"
	})
}
