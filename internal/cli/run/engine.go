package run

import (
	"context"
	"os"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/storage/engine"
)

// EngineCmd is `countersign engine`.
type EngineCmd struct {
	Fetch engineFetchCmd `cmd:"" help:"Fetch and check the engine's library, unless it is there already."`
}

type engineFetchCmd struct {
	CacheDir string `help:"Where to keep it (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	Quiet    bool   `short:"q" help:"Show no progress."`
}

func (c *engineFetchCmd) Run(ctx context.Context, io ui.Stdio) error {
	if os.Getenv("COUNTERSIGN_CLICKHOUSE") != "" {
		return nil // the user's own server is used
	}
	var progress func(string, int64, int64)
	if !c.Quiet {
		progress = ui.ShowProgress(io)
	}
	_, err := engine.Fetch(ctx, c.CacheDir, progress)
	return err
}
