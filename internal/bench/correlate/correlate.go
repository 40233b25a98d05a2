// Package correlate measures the correlator: its service and its lag, beside a consumer that decodes
// nothing.
package correlate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

type Cmd struct {
	Messages     int           `help:"How many messages the log has." default:"300000"`
	Duration     time.Duration `help:"How long messages are published each time to measure the lag; 0 leaves it out." default:"10s"`
	Rate         float64       `help:"Messages a second to publish meanwhile; 0 is as many as can be, and then half of that."`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) (err error) {
	if c.Messages < trafficGroup*trafficMessages {
		return fmt.Errorf("--messages must be at least %d", trafficGroup*trafficMessages)
	}
	dir, logFile, remove, err := measure.WorkDir()
	if err != nil {
		return err
	}
	defer remove()
	measure.Title(io, c.JSON, measure.ResultHeads, "log synced: %s; AgentHook calls (request, decision, pre, post) and AAEP calls mixed", c.SyncInterval)
	b := &correlateBench{dir: dir, childLog: logFile, log: daemon.Logger(logFile, "warn"), messages: c.Messages, print: func(r measure.Result) error { return measure.Print(io, c.JSON, r) }}
	if err := b.start(ctx, c.SyncInterval); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop(ctx)) }()
	return b.service(ctx, c.Duration, c.Rate)
}
