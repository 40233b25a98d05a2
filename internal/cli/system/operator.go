// Package system gives commands access to the running system: connections as its operator, its
// buckets, its log and evidence, the keys of digests, and waiting until the admitters use a
// change. Package target finds the system. Begin with Connect, OpenBucket, OpenEvidence and
// OpenLog.
package system

import (
	"context"
	"errors"
	"fmt"
	"os/user"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/streams"
)

// Operator is an operator's connection to the running system. The caller that opened it closes
// Conn.
type Operator struct {
	Target *target.Target
	Tenant string // the tenant that the command is about
	Conn   *nats.Conn
	JS     jetstream.JetStream
}

// Connect connects to a resolved system as its operator.
func Connect(ctx context.Context, t *target.Target) (Operator, error) {
	nc, err := t.Connect(ctx, target.Operator)
	if err != nil {
		return Operator{}, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return Operator{}, err
	}
	return Operator{t, t.Tenant, nc, js}, nil
}

// KnowsTenant reports whether a tenant is known as far as an operator can see: it is the ready
// file's, or the log has messages of it. An operator may not list a server's accounts, so a
// configured tenant that has not sent anything is not known.
func (o Operator) KnowsTenant(ctx context.Context, tenant string) (bool, error) {
	if r := o.Target.ReadyInfo(); r != nil && r.Tenant == tenant {
		return true, nil
	}
	for _, class := range []subject.Class{subject.Events, subject.Decisions} {
		m, err := streams.NextBySubject(ctx, o.JS, o.Target.Stream, subject.Space{Prefix: o.Target.Prefix}.AllOf(class, tenant), 1)
		if m != nil || err != nil {
			return m != nil, err
		}
	}
	return false, nil
}

// NoteUnknownTenant prints a note if the command's tenant is not known: its name may be misspelt.
func (o Operator) NoteUnknownTenant(ctx context.Context, io ui.Stdio) {
	if known, err := o.KnowsTenant(ctx, o.Tenant); err == nil && !known {
		fmt.Fprintf(io.Err, "note: the log %s holds nothing of tenant %s; check the name, unless it has not sent anything yet\n", o.Target.Stream, ui.Clean(o.Tenant, 64))
	}
}

// Bucket is one of the system's KV buckets.
type Bucket struct {
	Operator
	KV jetstream.KeyValue
}

// OpenBucket finds the running system and opens one of its buckets.
func OpenBucket(ctx context.Context, f target.Flags, name string) (Bucket, error) {
	t, err := f.Resolve()
	if err != nil {
		return Bucket{}, err
	}
	return OpenBucketAt(ctx, t, name)
}

// OpenBucketAt opens a bucket of a resolved system.
func OpenBucketAt(ctx context.Context, t *target.Target, name string) (Bucket, error) {
	o, err := Connect(ctx, t)
	if err != nil {
		return Bucket{}, err
	}
	kv, err := streams.OpenBucket(ctx, o.JS, name)
	if err != nil {
		o.Conn.Close()
		return Bucket{}, err
	}
	return Bucket{o, kv}, nil
}

// Update stores a value if the newest revision of its key is still the given one; 0 is the revision
// of a key that was never there. If another writer came first, the error is changed.
func (b Bucket) Update(ctx context.Context, key string, value []byte, revision uint64, changed error) (uint64, error) {
	stored, err := b.KV.Update(ctx, key, value, revision)
	if streams.IsKVConflict(err) {
		return 0, changed
	}
	if err != nil {
		return 0, fmt.Errorf("writing to the %s bucket: %w", b.KV.Bucket(), err)
	}
	return stored, nil
}

// changeAttempts is how often a change is tried when concurrent changes win.
const changeAttempts = 20

// Change stores the value that step makes of the newest one. revision is the one that step has read, 0
// if the key is not there. If another change came first, step is called again.
func (b Bucket) Change(ctx context.Context, key string, step func() (value []byte, revision uint64, err error)) error {
	for range changeAttempts {
		value, revision, err := step()
		if err != nil {
			return err
		}
		if revision == 0 {
			_, err = b.KV.Create(ctx, key, value)
		} else {
			_, err = b.KV.Update(ctx, key, value, revision)
		}
		if !streams.IsKVConflict(err) {
			if err != nil {
				err = fmt.Errorf("writing to the %s bucket: %w", b.KV.Bucket(), err)
			}
			return err
		}
	}
	return fmt.Errorf("another writer keeps changing the key %s of the %s bucket; try again", ui.Clean(key, 100), b.KV.Bucket())
}

// AuthorName is the author of a change: the given name, else the name of the user who runs the command.
func AuthorName(given string) string {
	if given != "" {
		return given
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// OpenLog connects to the log as operator. The caller calls the returned function to close it.
func OpenLog(ctx context.Context, f target.Flags) (recorded.Log, func(), string, error) {
	t, err := f.Resolve()
	if err != nil {
		return recorded.Log{}, nil, "", err
	}
	o, err := Connect(ctx, t)
	if err != nil {
		return recorded.Log{}, nil, "", err
	}
	return recorded.Log{JS: o.JS, Stream: t.Stream, Space: subject.Space{Prefix: t.Prefix}}, o.Conn.Close, t.Tenant, nil
}

// WithRefusals returns a context that ends as soon as the server refuses a subject to nc. The
// server reports a refusal asynchronously: without this a caller would wait for an answer until
// its timeout.
func WithRefusals(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	return ctx, func() { cancel(nil) }
}

// Refusal returns the server's refusal that ended ctx, nil if there was none.
func Refusal(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}
