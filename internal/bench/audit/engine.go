package audit

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
)

// onEngine runs a measurement on an engine of its own, without a log.
func onEngine(ctx context.Context, io ui.Stdio, dir, cacheDir string, measure func(*engine.Engine, *read.Reader) error) (err error) {
	e, err := engine.Start(ctx, engine.Options{DataDir: dir, CacheDir: cacheDir, Progress: ui.ShowProgress(io)})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.StopTimeout)
		defer cancel()
		err = errors.Join(err, e.Stop(stop))
	}()
	db, err := read.Open(ctx, e.DSN())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := schema.Migrate(ctx, db.Pool()); err != nil {
		return err
	}
	return measure(e, db)
}
