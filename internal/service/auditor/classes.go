package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/streams"
)

// retentionClasses are the retention classes of the tenants' policies. The bucket is checked
// before each batch, so a class applies from the next batch on. One goroutine changes them,
// between batches. The custodian notes changes of the bucket on the log; a record with withheld
// text names the policy that withholds it.
type retentionClasses struct {
	shardAccess
	version streams.BucketVersion // as last read
	known   map[string]retention.Classes
}

// classOf implements build.Classes.
func (r *retentionClasses) classOf(tenant, session string) (retention.Class, string) {
	c, own := r.known[tenant]
	if !own {
		return retention.FullTranscript, ""
	}
	return c.ClassOf(session)
}

// load reads the policies if the bucket has changed. A system without the bucket has no
// classes.
func (r *retentionClasses) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	version, err := streams.VersionOf(ctx, r.js, streams.BucketRetention)
	if errors.Is(err, jetstream.ErrStreamNotFound) && r.version.Store == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the retention policies: %w", err)
	}
	if version == r.version {
		return nil
	}
	entries, err := streams.KVNewest(ctx, r.js, streams.BucketRetention, func(key string) bool { _, ok := retention.PolicyTenant(key); return ok })
	if err != nil {
		return fmt.Errorf("reading the retention policies: %w", err)
	}
	next := retentionClasses{shardAccess: r.shardAccess, version: version, known: map[string]retention.Classes{}}
	problem := ""
	for _, e := range entries {
		tenant, _ := retention.PolicyTenant(e.Key)
		c, err := r.readTenant(ctx, tenant, e)
		if err != nil {
			return fmt.Errorf("reading the retention policies: %w", err)
		}
		next.known[tenant] = c
		if c.Err() != nil {
			class, _ := c.ClassOf("")
			problem = fmt.Sprintf("the retention policy of tenant %.60q cannot be read; until it is mended its evidence keeps what class %s allows: %s", tenant, class, c.Err())
			r.env.Log.Error().Str("tenant", tenant).Str("class", class.String()).Err(c.Err()).Msg("a retention policy cannot be read; records are made by the strictest class of the last one that could")
		}
	}
	*r = next
	r.env.Health.Set("retention_classes", problem)
	return nil
}

// readTenant reads a tenant's policy. If it cannot be read, earlier revisions in the bucket are
// read, too.
func (r *retentionClasses) readTenant(ctx context.Context, tenant string, newest streams.KVEntry) (retention.Classes, error) {
	c := retention.ReadClasses(tenant, policyTexts(newest))
	if c.Err() == nil {
		return c, nil
	}
	list, err := streams.KVHistory(ctx, r.js, streams.BucketRetention, newest.Key)
	if err != nil {
		return c, err
	}
	slices.Reverse(list)
	return retention.ReadClasses(tenant, policyTexts(list...)), nil
}

// policyTexts returns the texts of revisions of a policy, nil for a removal.
func policyTexts(list ...streams.KVEntry) [][]byte {
	out := make([][]byte, len(list))
	for i, e := range list {
		if !e.Deleted {
			out[i] = append([]byte{}, e.Value...)
		}
	}
	return out
}
