// Package measure has what the measurements share: the pipeline that they run on, their results and
// their floors.
package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// Setup describes a pipeline for one benchmark.
type Setup struct {
	Dir          string // kept; "": a temporary one
	SyncInterval string
	Policies     int
	More         []policy.Document // beside Policies
	Services     []string          // nil: all; empty: none
	CacheDir     string
}

func (s Setup) Run(ctx context.Context, io ui.Stdio, measure func(*pipeline.Pipeline) error) (err error) {
	dir, logFile, remove, err := s.workDir()
	if err != nil {
		return err
	}
	defer remove()
	unlimit()
	pipe, err := pipeline.Start(ctx, pipeline.Options{
		DataDir: dir, Tenant: "acme", CacheDir: s.CacheDir, SyncInterval: s.SyncInterval, LogLevel: "warn", Services: s.Services,
		Log: daemon.Logger(logFile, "warn"), ChildLog: logFile, Progress: ui.ShowProgress(io),
		BeforeServices: func(ctx context.Context, r target.Ready) error {
			return policycmd.PushPolicies(ctx, r, append(SamplePolicies(s.Policies), s.More...))
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
	if err := pipe.Running(); err != nil {
		return err
	}
	return measure(pipe)
}

// RunReady runs the pipeline with its ready file in a directory that a gate may use.
func (s Setup) RunReady(ctx context.Context, io ui.Stdio, measure func(dir, readyFile string, ready target.Ready) error) error {
	return s.Run(ctx, io, func(p *pipeline.Pipeline) error {
		dir, err := os.MkdirTemp("", "countersign-bench-gate-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		text, err := json.Marshal(p.Ready())
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "ready.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		return measure(dir, file, p.Ready())
	})
}

func (s Setup) workDir() (dir string, log *os.File, remove func(), err error) {
	if s.Dir == "" {
		return WorkDir()
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", nil, nil, err
	}
	if log, err = createLog(s.Dir); err != nil {
		return "", nil, nil, err
	}
	return s.Dir, log, func() { _ = log.Close() }, nil
}

// WorkDir makes a temporary directory for one benchmark, with a log file for the services.
func WorkDir() (dir string, log *os.File, remove func(), err error) {
	signal.Ignore(syscall.SIGPIPE) // if the reader of the output ends, writing fails, and the directory is removed
	if dir, err = os.MkdirTemp("", "countersign-bench-"); err != nil {
		return "", nil, nil, err
	}
	if log, err = createLog(dir); err != nil {
		return "", nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, log, func() { _ = log.Close(); _ = os.RemoveAll(dir) }, nil
}

func createLog(dir string) (*os.File, error) { return os.Create(filepath.Join(dir, "services.log")) }

// unlimit disables the admitter's quotas in services started from now on: a benchmark measures
// what the services can do.
func unlimit() {
	for _, name := range []string{"PUBLISHER_EVENTS", "TENANT_EVENTS", "PUBLISHER_BYTES", "TENANT_BYTES", "PUBLISHER_ADMISSIONS", "TENANT_ADMISSIONS"} {
		if name = "COUNTERSIGN_" + name; os.Getenv(name) == "" {
			_ = os.Setenv(name, "0") // fails for malformed names only
		}
	}
}

// SamplePolicies returns the example policies and n more, each for a tool of its own.
func SamplePolicies(n int) []policy.Document {
	var docs []policy.Document
	for _, name := range []string{"mail.yaml", "database.yaml", "files.yaml", "assistant.yaml"} {
		data, err := examples.FS.ReadFile("policies/assistant/" + name)
		if err != nil {
			panic(err) // embedded
		}
		docs = append(docs, policy.Document{Name: strings.TrimSuffix(name, ".yaml"), Data: data})
	}
	for i := len(docs); i < n; i++ {
		name := fmt.Sprintf("bench-%d", i)
		docs = append(docs, policy.Document{Name: name, Data: fmt.Appendf(nil, `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  match: {tenants: [acme], tools: [bench_tool_%d]}
  rules:
    - {name: small, when: 'has(args.amount) && args.amount < %d', verdict: allow, reason: small_amount}
`, name, i, i)})
	}
	return docs
}

// Beside is the path of a program that is built beside this one. A process of its own is measured alone.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not beside this program: run make build: %w", name, err)
	}
	return path, nil
}
