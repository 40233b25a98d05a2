package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/cli/target"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// operator is the running system as its operator may use it. Who opened it closes
// nc.
type operator struct {
	t      *target.Target
	tenant string // the one that the command is about
	nc     *nats.Conn
	js     jetstream.JetStream
}

// operate connects to a system that was found.
func operate(ctx context.Context, t *target.Target) (operator, error) {
	nc, err := t.Connect(ctx, target.Operator)
	if err != nil {
		return operator{}, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return operator{}, err
	}
	return operator{t, t.Tenant, nc, js}, nil
}

// knows tells whether there is such a tenant, as far as an operator can see: it is
// the ready file's, or the log holds something of it. A server's accounts are not
// for operators to list, so one that is configured and has not sent anything is not
// known.
func (o operator) knows(ctx context.Context, tenant string) (bool, error) {
	if r := o.t.ReadyInfo(); r != nil && r.Tenant == tenant {
		return true, nil
	}
	for _, class := range []subject.Class{subject.Events, subject.Decisions} {
		m, err := streams.NextBySubject(ctx, o.js, o.t.Stream, subject.Space{Prefix: o.t.Prefix}.AllOf(class, tenant), 1)
		if m != nil || err != nil {
			return m != nil, err
		}
	}
	return false, nil
}

// noteStranger says so if what was put in force is for a tenant that is not known:
// that is nobody, if the name is misspelt.
func (o operator) noteStranger(ctx context.Context, io stdio) {
	if known, err := o.knows(ctx, o.tenant); err == nil && !known {
		fmt.Fprintf(io.err, "note: the log %s holds nothing of tenant %s; check the name, unless it has not sent anything yet\n", o.t.Stream, clean(o.tenant, 64))
	}
}

// operatorBucket is one of the system's KV buckets.
type operatorBucket struct {
	operator
	kv jetstream.KeyValue
}

// openBucket finds the running system and opens a bucket of it.
func openBucket(ctx context.Context, f target.Flags, name string) (operatorBucket, error) {
	t, err := f.Resolve()
	if err != nil {
		return operatorBucket{}, err
	}
	return bucketAt(ctx, t, name)
}

// bucketAt opens a bucket of a system that was found.
func bucketAt(ctx context.Context, t *target.Target, name string) (operatorBucket, error) {
	o, err := operate(ctx, t)
	if err != nil {
		return operatorBucket{}, err
	}
	kv, err := streams.OpenBucket(ctx, o.js, name)
	if err != nil {
		o.nc.Close()
		return operatorBucket{}, err
	}
	return operatorBucket{o, kv}, nil
}
