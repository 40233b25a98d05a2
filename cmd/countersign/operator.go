package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/target"
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
	kv, err := o.js.KeyValue(ctx, name)
	if err != nil {
		o.nc.Close()
		return operatorBucket{}, fmt.Errorf("opening the bucket %s (was `countersign provision` run since the upgrade?): %w", name, err)
	}
	return operatorBucket{o, kv}, nil
}
