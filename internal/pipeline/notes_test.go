package pipeline

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// A note that cannot be written after the server has reloaded, and one that cannot be written after everything
// is done, are tried again: the command that waits for them gets its answer, and the users are served.
func TestNotesThatCannotBeWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	up := upWith(t)
	server, whole := make(told, 100), make(told, 100)
	p := &Pipeline{opt: Options{Tenant: "acme", DataDir: up.DataDir, Services: []string{}, Log: zerolog.New(whole)}, gateways: tenantGateways{urls: map[string]string{}}, ending: map[string]string{}}
	var err error
	if p.state, err = readState(filepath.Join(up.DataDir, stateFile)); err != nil {
		t.Fatal(err)
	}
	p.opt.NATSPort = -1
	file, first, err := p.writeNATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := decodeNATSConfig(first, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.render()
	if err != nil {
		t.Fatal(err)
	}
	srv, err := embedded.Start(context.Background(), config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	if p.opt.NATSPort, err = portOf(srv.ClientURL()); err != nil {
		t.Fatal(err)
	}
	// A folder in the place of a file cannot be replaced by it.
	blocked := []string{appliedFile(file), filepath.Join(up.DataDir, inForceFile)}
	for _, path := range blocked {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = serveNATS(ctx, srv, file, first, server); ended <- struct{}{} }()
	go func() { p.followState(ctx); ended <- struct{}{} }()
	defer func() { stop(); <-ended; <-ended }()
	if err := addTo(t, up, tenantUser{"acme", "dana", streams.RoleReviewer}); err != nil {
		t.Fatal(err)
	}
	s, err := readState(filepath.Join(up.DataDir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	for i, failure := range []told{server, whole} {
		if line := failure.next(t); !strings.Contains(line, "tried again") {
			t.Fatal(line)
		}
		if err := os.Remove(blocked[i]); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo("dana", s.Passwords["dana"]))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if line := whole.next(t); !strings.Contains(line, "are in force") {
		t.Error(line)
	}
	at := inForce{}
	if text, err := os.ReadFile(blocked[1]); err != nil || json.Unmarshal(text, &at) != nil || at.Generation != s.Generation || at.Error != "" {
		t.Errorf("noted: %+v, %v", at, err)
	}
}

// told passes on what is written.
type told chan string

func (w told) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }

func (w told) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-w:
		return line
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
		return ""
	}
}
