package system

import (
	"context"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/recorded"
)

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
