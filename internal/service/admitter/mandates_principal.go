package admitter

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// inForceRetry is the pause between two looks whether a revocation is in force here.
const inForceRetry = 10 * time.Millisecond

// acceptRequest hands a principal's request to a worker, like an admission.
func (ms *mandateStore) acceptRequest(ctx context.Context, r micro.Request) {
	refuse := func(_, message string) {
		ms.sendReply(r, aump.PrincipalReply{Code: aump.PrincipalUnavailable, Message: message})
	}
	ms.s.answerByWorker(r, "a principal's request", "ask again", refuse, func() { ms.sendReply(r, ms.answerPrincipal(ctx, r)) })
}

func (ms *mandateStore) sendReply(r micro.Request, reply aump.PrincipalReply) {
	body, err := json.Marshal(reply)
	if err == nil {
		err = r.Respond(body)
	}
	if err != nil {
		ms.s.env.Log.Warn().Err(err).Msg("the answer to a principal could not be sent")
	}
}

// answerPrincipal carries out a principal's request. A mandate of another principal is answered like one that
// does not exist.
func (ms *mandateStore) answerPrincipal(ctx context.Context, r micro.Request) aump.PrincipalReply {
	from, ofTenant := ms.s.parseRequest(r, time.Now())
	switch {
	case !ofTenant || from.Source == "":
		return aump.PrincipalReply{Code: aump.PrincipalRefused, Message: "the sender is no user of that tenant, or is not registered as reached through this gateway"}
	case ms.s.overQuota(ms.s.admissionQuota, kindAdmissions, from.Tenant, from.Source, from.Header, from.Body):
		return aump.PrincipalReply{Code: aump.PrincipalBusy, Message: "too many requests of this user; send more slowly"}
	}
	req, err := aump.DecodePrincipalRequest(from.Body)
	if err != nil {
		return aump.PrincipalReply{Code: aump.PrincipalInvalid, Message: err.Error()}
	}
	store := ms.store.Load()
	m := store.Mandate(from.Tenant, req.Ref.ID, "")
	switch {
	case m == nil || m.Principal.Subject != from.Source:
		return aump.PrincipalReply{Code: aump.PrincipalUnknown, Message: "there is no such mandate of yours"}
	case req.Ref.Hash != "" && req.Ref.Hash != m.Hash:
		return aump.PrincipalReply{Code: aump.PrincipalMismatch, Message: "another version of the mandate is in force; its hash is in the answer to present"}
	case req.Action == aump.ActionPresent:
		refused := store.Revoked(from.Tenant, m.ID, m.Hash) || !store.Signatures(from.Tenant).Accepts(m.Signatures)
		return aump.PrincipalReply{Code: aump.PrincipalDone, Mandate: m.Present(m.Hash, refused, time.Now())}
	}
	// A shutdown must not separate a change from its record.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ms.s.flags.Timeout)
	defer cancel()
	done, err := ms.revoke(ctx, from, m, req.Reason)
	if err != nil {
		ms.s.env.Log.Error().Err(err).Str("tenant", from.Tenant).Str("mandate", m.ID).Msg("a principal's revocation")
		return aump.PrincipalReply{Code: aump.PrincipalUnavailable, Message: "the revocation is not in force for certain; ask again"}
	}
	return aump.PrincipalReply{Code: aump.PrincipalDone, Revocation: done}
}

// revoke writes what `countersign mandate revoke` writes, under a key that no operator can write, and returns once
// this admitter has it on the log and decides by it. The first revocation of a mandate stands.
func (ms *mandateStore) revoke(ctx context.Context, from admission.Request, m *mandate.Mandate, reason string) (*aump.Revoked, error) {
	author := "principal " + from.Source
	if from.Gateway != "" {
		author += " through " + from.Gateway
	}
	r := mandate.Revocation{V: mandate.StoredVersion, ID: m.ID, Hash: m.Hash, Reason: reason, Author: author, RevokedAt: events.At(time.Now())}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	key := mandate.PrincipalRevocationKey(from.Tenant, m.ID, m.Hash)
	kv, err := streams.OpenBucket(ctx, ms.s.js, streams.BucketMandates)
	if err != nil {
		return nil, err
	}
	held, err := streams.KVLast(ctx, ms.s.js, streams.BucketMandates, mandate.RevocationKey(from.Tenant, m.ID, m.Hash))
	if err != nil {
		return nil, err
	}
	if held == nil || held.Deleted {
		if _, err = kv.Create(ctx, key, body); streams.IsKVConflict(err) {
			held, err = streams.KVLast(ctx, ms.s.js, streams.BucketMandates, key)
		}
	}
	if err == nil && held != nil && !held.Deleted {
		// A revocation that cannot be read counts, too.
		r, _ = events.DecodeRecord[mandate.Revocation](held.Value)
		r.ID, r.Hash = cmp.Or(r.ID, m.ID), cmp.Or(r.Hash, m.Hash)
	}
	for err == nil && !ms.store.Load().Revoked(from.Tenant, m.ID, m.Hash) {
		err = retry.Sleep(ctx, inForceRetry)
	}
	return &aump.Revoked{ID: r.ID, Hash: r.Hash, Reason: r.Reason, Author: r.Author, RevokedAt: r.RevokedAt}, err
}
