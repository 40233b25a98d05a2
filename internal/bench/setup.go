package bench

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// pipelineSetup describes a pipeline for one benchmark, in a temporary directory.
type pipelineSetup struct {
	SyncInterval string
	Policies     int
	More         []policy.Document // beside Policies
	Services     []string          // nil: all; empty: none
	CacheDir     string
}

func (s pipelineSetup) run(ctx context.Context, io ui.Stdio, measure func(*pipeline.Pipeline) error) (err error) {
	dir, logFile, remove, err := workDir()
	if err != nil {
		return err
	}
	defer remove()
	unlimit()
	pipe, err := pipeline.Start(ctx, pipeline.Options{
		DataDir: dir, Tenant: "acme", CacheDir: s.CacheDir, SyncInterval: s.SyncInterval, LogLevel: "warn", Services: s.Services,
		Log: daemon.Logger(logFile, "warn"), ChildLog: logFile, Progress: ui.ShowProgress(io),
		BeforeServices: func(ctx context.Context, r target.Ready) error {
			return policycmd.PushPolicies(ctx, r, append(samplePolicies(s.Policies), s.More...))
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.StopTimeout)
		defer cancel()
		err = errors.Join(err, pipe.Stop(stop))
	}()
	return measure(pipe)
}

// workDir makes a temporary directory for one benchmark, with a log file for the services.
func workDir() (dir string, log *os.File, remove func(), err error) {
	signal.Ignore(syscall.SIGPIPE) // if the reader of the output ends, writing fails, and the directory is removed
	if dir, err = os.MkdirTemp("", "countersign-bench-"); err != nil {
		return "", nil, nil, err
	}
	if log, err = os.Create(filepath.Join(dir, "services.log")); err != nil {
		return "", nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, log, func() { _ = log.Close(); _ = os.RemoveAll(dir) }, nil
}

// unlimit disables the admitter's quotas in services started from now on: a benchmark measures
// what the services can do.
func unlimit() {
	for _, name := range []string{"PUBLISHER_EVENTS", "TENANT_EVENTS", "PUBLISHER_BYTES", "TENANT_BYTES", "PUBLISHER_ADMISSIONS", "TENANT_ADMISSIONS"} {
		if name = "COUNTERSIGN_" + name; os.Getenv(name) == "" {
			_ = os.Setenv(name, "0") // fails for malformed names only
		}
	}
}
