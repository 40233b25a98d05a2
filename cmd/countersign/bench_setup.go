package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/pipeline"
	"github.com/countersign-dev/countersign/cmd/internal/target"
)

// benchSetup is a pipeline that lives for one benchmark, in a directory of its
// own.
type benchSetup struct {
	SyncInterval string
	Policies     int
	Services     []string // nil: all; empty: none
	CacheDir     string
}

func (s benchSetup) run(ctx context.Context, io stdio, measure func(*pipeline.Pipeline) error) (err error) {
	dir, err := os.MkdirTemp("", "countersign-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	logFile, err := os.Create(filepath.Join(dir, "services.log"))
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	pipe, err := pipeline.Start(ctx, pipeline.Options{
		DataDir: dir, Tenant: "acme", CacheDir: s.CacheDir, SyncInterval: s.SyncInterval, LogLevel: "warn", Services: s.Services,
		Log: daemon.Logger(logFile, "warn"), ChildLog: logFile, Progress: showProgress(io),
		BeforeServices: func(ctx context.Context, r target.Ready) error { return pushDocs(ctx, r, benchPolicies(s.Policies)) },
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, pipe.Stop(stop))
	}()
	return measure(pipe)
}
