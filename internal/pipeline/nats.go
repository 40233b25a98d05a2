package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/countersign-dev/countersign/internal/atomicfile"
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

func (c NATSConfig) write(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
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
		return daemon.ExitFailed
	}
	return daemon.ExitOK
}

func runNATS(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c NATSConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("%s: %w", path, err)
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
	config, err := streams.ServerConfig{
		Host: c.Host, Port: c.Port, StoreDir: c.StoreDir, SyncInterval: c.SyncInterval, Services: c.Services, Tenants: c.Tenants,
	}.Render()
	if err != nil {
		return err
	}
	srv, err := embedded.Start(config, daemon.Logger(os.Stderr, level).With().Str("service", "nats").Logger())
	if err != nil {
		return err
	}
	n, err := portOf(srv.ClientURL())
	if err == nil {
		err = supervise.Ready(NATSInfo{URL: srv.ClientURL(), Port: n})
	}
	if err == nil {
		select {
		case err := <-srv.Broken():
			return err // without Shutdown: see Broken
		case <-ctx.Done():
		}
	}
	srv.Shutdown()
	return err
}

// portOf returns the port of a URL.
func portOf(text string) (int, error) {
	u, err := url.Parse(text)
	if err != nil {
		return 0, errors.New("an address that is no URL") // the text may hold a password
	}
	return strconv.Atoi(u.Port())
}
