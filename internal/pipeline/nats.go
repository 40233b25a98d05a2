package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// NATSConfig is the configuration file of the nats child. It holds passwords; only its owner may
// read it.
type NATSConfig struct {
	Host         string           `json:"host"`
	Port         int              `json:"port"`
	StoreDir     string           `json:"store_dir"`
	SyncInterval string           `json:"sync_interval,omitempty"`
	LogLevel     string           `json:"log_level,omitempty"`
	Services     []streams.User   `json:"services"`
	Tenants      []streams.Tenant `json:"tenants"`
}

func (c NATSConfig) write(path string) (text []byte, err error) {
	if text, err = json.Marshal(c); err != nil {
		return nil, err
	}
	return text, atomicfile.Write(path, text, 0o600)
}

// NATSInfo is what the nats child reports once it answers.
type NATSInfo struct {
	URL  string `json:"url"`
	Port int    `json:"port"`
}

// NATSMain is the main function of the nats child: it runs the embedded server with the
// configuration file named by its argument until it is stopped.
func NATSMain(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "nats: one argument, the configuration file")
		return daemon.ExitUsage
	}
	ctx, stop := signal.NotifyContext(supervise.Attach(context.Background()), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runNATS(ctx, args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		supervise.Failed(err)
		return daemon.ExitFailed
	}
	return daemon.ExitOK
}

func runNATS(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c, err := decodeNATSConfig(text, path)
	if err != nil {
		return err
	}
	lock, err := lockStore(ctx, c.StoreDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := engine.RequireFreeSpace(c.StoreDir); err != nil {
		return fmt.Errorf("the log's server: %w", err)
	}
	level := c.LogLevel
	if level == "" || level == "info" {
		level = "warn" // hide the server's own start-up banner
	}
	config, err := c.render()
	if err != nil {
		return err
	}
	srv, err := embedded.Start(ctx, config, daemon.Logger(os.Stderr, level).With().Str("service", "nats").Logger())
	if err != nil {
		return err
	}
	n, err := portOf(srv.ClientURL())
	if err == nil {
		err = supervise.Ready(NATSInfo{URL: srv.ClientURL(), Port: n})
	}
	if err == nil {
		err = noteApplied(path, text, nil)
	}
	if err == nil {
		if broken := serveNATS(ctx, srv, path, text, os.Stderr); broken != nil {
			return broken // without Shutdown: see Broken
		}
	}
	srv.Shutdown()
	return err
}

// serveNATS puts each change of the configuration file in force, until ctx ends (the result is then nil)
// or the store breaks. What fails is told on out, and tried again.
func serveNATS(ctx context.Context, srv *embedded.Server, path string, applied []byte, out io.Writer) error {
	pause := lookEvery
	for {
		select {
		case err := <-srv.Broken():
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = lookEvery
		text, err := os.ReadFile(path)
		if err != nil || bytes.Equal(text, applied) {
			continue
		}
		var config []byte
		c, err := decodeNATSConfig(text, path)
		if err == nil {
			config, err = c.render()
		}
		if err == nil {
			err = srv.Reload(config)
		}
		if err := errors.Join(err, noteApplied(path, text, err)); err != nil {
			fmt.Fprintln(out, "nats: the changed configuration; it is tried again:", err)
			pause = applyRetry
			continue
		}
		applied = text
	}
}

func decodeNATSConfig(text []byte, path string) (c NATSConfig, err error) {
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c NATSConfig) render() ([]byte, error) {
	return streams.ServerConfig{
		Host: c.Host, Port: c.Port, StoreDir: c.StoreDir, SyncInterval: c.SyncInterval, Services: c.Services, Tenants: c.Tenants,
	}.Render()
}

// lookEvery is the time between two looks at a file that another process may change.
const lookEvery = 500 * time.Millisecond

// applied says which content of a file is in force, or why it is not.
type applied struct {
	SHA256 string `json:"sha256"`
	Error  string `json:"error,omitempty"`
}

func appliedFile(path string) string { return path + ".applied" }

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// noteApplied tells the parent that a content of the file is in force, or why it is not.
func noteApplied(path string, text []byte, problem error) error {
	a := applied{SHA256: sumOf(text)}
	if problem != nil {
		a.Error = problem.Error()
	}
	out, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return atomicfile.Write(appliedFile(path), out, 0o600)
}

// awaitApplied waits until the server has a content of the configuration file in force.
func awaitApplied(ctx context.Context, path string, text []byte) error {
	for {
		var a applied
		if out, err := os.ReadFile(appliedFile(path)); err == nil && json.Unmarshal(out, &a) == nil && a.SHA256 == sumOf(text) {
			if a.Error != "" {
				return errors.New(a.Error)
			}
			return nil
		}
		if err := retry.Sleep(ctx, lookEvery/4); err != nil {
			return fmt.Errorf("the NATS server has not read its changed configuration: %w", err)
		}
	}
}

// portOf returns the port of a URL.
func portOf(text string) (int, error) {
	u, err := url.Parse(text)
	if err != nil {
		return 0, errors.New("an address that is no URL") // the text may hold a password
	}
	return strconv.Atoi(u.Port())
}
