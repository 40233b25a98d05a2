package main

import (
	"context"

	"github.com/countersign-dev/countersign/cmd/internal/cli/target"
	"github.com/countersign-dev/countersign/cmd/internal/recorded"
	"github.com/countersign-dev/countersign/events/subject"
)

// openLog connects to the log as operator.
func openLog(ctx context.Context, f target.Flags) (recorded.Log, func(), string, error) {
	t, err := f.Resolve()
	if err != nil {
		return recorded.Log{}, nil, "", err
	}
	o, err := operate(ctx, t)
	if err != nil {
		return recorded.Log{}, nil, "", err
	}
	return recorded.Log{JS: o.js, Stream: t.Stream, Space: subject.Space{Prefix: t.Prefix}}, o.nc.Close, t.Tenant, nil
}
