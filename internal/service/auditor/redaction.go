package auditor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/streams"
)

// redactionPolicies are the tenants' redaction policies in the bucket. The bucket is checked
// before each batch, so a policy applies from the next batch on. One goroutine uses them.
type redactionPolicies struct {
	shardAccess
	version streams.BucketVersion // as last read
	known   map[string]tenantPolicy
}

// tenantPolicy is one policy, or the reason why it cannot be used.
type tenantPolicy struct {
	policy *redaction.Policy
	err    error
}

// policyOf implements build.Policies.
func (r *redactionPolicies) policyOf(tenant string) (*redaction.Policy, error) {
	p, own := r.known[tenant]
	if !own {
		return redaction.Builtin(), nil
	}
	return p.policy, p.err
}

// load reads the policies if the bucket has changed, and notes on the log which ones
// apply, before the first record that is made with them.
func (r *redactionPolicies) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	version, err := streams.VersionOf(ctx, r.js, streams.BucketRedaction)
	if err != nil {
		return fmt.Errorf("reading the redaction policies: %w", err)
	}
	if version == r.version {
		return nil
	}
	list, err := streams.KVLive(ctx, r.js, streams.BucketRedaction, nil)
	if err != nil {
		return fmt.Errorf("reading the redaction policies: %w", err)
	}
	next := redactionPolicies{shardAccess: r.shardAccess, version: version, known: map[string]tenantPolicy{}}
	change := events.RedactionChange{Writer: fmt.Sprintf("auditor-%d", os.Getpid()), Store: version.Store, Revision: version.Revision, Policies: []events.RedactionRef{}}
	for _, e := range list {
		tenant := policyTenant(e.Key)
		p := readPolicy(tenant, e.Value)
		next.known[tenant] = p
		ref := events.RedactionRef{Tenant: tenant}
		if p.err != nil {
			ref.Error = p.err.Error()
		} else {
			ref.Policy = p.policy.ID()
		}
		change.Policies = append(change.Policies, ref)
	}
	if err := r.noteChange(ctx, change); err != nil {
		return err
	}
	*r = next
	r.reportState(change)
	return nil
}

// policyTenant is the tenant of a key as records name it: a name too long for a subject is
// replaced by its hash.
func policyTenant(key string) string {
	if tenant := events.RuleKeyTenant(key); tenant != "" {
		return tenant
	}
	return strings.Replace(key, "=", "~", 1)
}

func readPolicy(tenant string, text []byte) tenantPolicy {
	p, err := redaction.Parse(tenant, text)
	return tenantPolicy{p, err}
}

// noteChange writes a change to the log, unless the log has it already or there has never been
// a policy.
func (r *redactionPolicies) noteChange(ctx context.Context, c events.RedactionChange) error {
	subj := r.space.Control(r.stream, events.ControlRedaction)
	last, err := streams.LastBySubject(ctx, r.js, r.stream, subj)
	if err != nil {
		return err
	}
	if last == nil && c.Revision == 0 {
		return nil
	}
	if last != nil {
		if before, err := events.DecodeRecord[events.RedactionChange](last.Body); err == nil && before.Store == c.Store && before.Revision == c.Revision {
			return nil
		}
	}
	body, err := events.Encode(c)
	if err != nil {
		return err
	}
	return streams.StoreAll(ctx, r.nc, []streams.Msg{{Subject: subj, Body: body, Header: cloudevents.Binary(cloudevents.Attributes{
		ID: fmt.Sprintf("redaction-%s-%d", c.Store, c.Revision), Source: r.source(), Type: events.TypeControl, Time: time.Now(),
	})}})
}

// reportState reports the state of the policies in log and health.
func (r *redactionPolicies) reportState(c events.RedactionChange) {
	bad := ""
	for _, ref := range c.Policies {
		if ref.Error != "" {
			bad = fmt.Sprintf("the redaction policy of tenant %q cannot be used, its bodies are withheld: %s", ref.Tenant, ref.Error)
			r.env.Log.Error().Str("tenant", ref.Tenant).Str("error", ref.Error).Msg("a redaction policy cannot be used; the tenant's bodies are withheld until it is mended")
		}
	}
	r.env.Health.Set("redaction", bad)
	r.env.Log.Info().Uint64("revision", c.Revision).Int("policies", len(c.Policies)).Msg("redaction policies read")
}
