// Package system is the running system as a command may use it: connections as its
// operator, its buckets, its log and its evidence, the keys of digests, and waiting
// until the admitters decide by a change. Package target finds the system.
package system

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// Operator is the running system as its operator may use it. The caller that opened
// it closes Conn.
type Operator struct {
	Target *target.Target
	Tenant string // the one that the command is about
	Conn   *nats.Conn
	JS     jetstream.JetStream
}

// Connect connects to a system that was found, as its operator.
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

// KnowsTenant tells whether there is such a tenant, as far as an operator can see: it
// is the ready file's, or the log holds something of it. An operator may not list the
// accounts of a server, so a tenant that is configured and has not sent anything is
// not known.
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

// NoteUnknownTenant says so if what was put in force is for a tenant that is not
// known: its name may be misspelt.
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

// OpenBucket finds the running system and opens a bucket of it.
func OpenBucket(ctx context.Context, f target.Flags, name string) (Bucket, error) {
	t, err := f.Resolve()
	if err != nil {
		return Bucket{}, err
	}
	return OpenBucketAt(ctx, t, name)
}

// OpenBucketAt opens a bucket of a system that was found.
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
