package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/filelock"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/supervise"
)

func TestStateKeepsPasswordsAndAddsNewOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	first, err := loadState(t.Context(), path, "acme")
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadState(t.Context(), path, "acme")
	if err != nil {
		t.Fatal(err)
	}
	other, err := loadState(t.Context(), path, "globex")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for name, p := range first.Passwords {
		if again.Passwords[name] != p || other.Passwords[name] != p || seen[p] || len(p) < 33 {
			t.Errorf("password of %s", name)
		}
		seen[p] = true
	}
	if other.Passwords["globex-runtime"] == "" || first.readyRoles("acme")[target.Runtime].Name != "acme-runtime" {
		t.Errorf("users %v", other.userNames("globex"))
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadState(t.Context(), path, "acme"); err == nil || !strings.Contains(err.Error(), "may be read by others") {
		t.Errorf("a state that others may read: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"passwords":{"admitter":"hunter2`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadState(t.Context(), path, "acme"); err == nil || !strings.Contains(err.Error(), "move it away") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a damaged state: %v", err)
	}
}

func TestALogKeepsItsKeys(t *testing.T) {
	dir := t.TempDir()
	p := &Pipeline{opt: Options{DataDir: dir}, keys: filepath.Join(dir, "keys")}
	if err := p.ensureKeys(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "nats", "jetstream"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{keys.ReceiptFile: nil, keys.MasterFile: ErrKeyLost, keys.CheckpointFile: ErrKeyLost} {
		path := filepath.Join(p.keys, name)
		key, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := p.ensureKeys(); !errors.Is(err, want) {
			t.Errorf("without %s: %v, want %v", name, err, want)
		}
		if err := os.WriteFile(path, key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneOwnerOfADataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a second owner: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
}

func TestAStoreWaitsForItsLastOwner(t *testing.T) {
	store := filepath.Join(t.TempDir(), "nats")
	held, err := filelock.Try(store + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockStore(ctx, store); !errors.Is(err, ErrInUse) {
		t.Errorf("a store in use: %v", err)
	}
	got := make(chan error)
	go func() {
		f, err := lockStore(t.Context(), store)
		if err == nil {
			err = f.Close()
		}
		got <- err
	}()
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("a store that was given up: %v", err)
	}
}

func TestHealthOfTheWhole(t *testing.T) {
	reports := map[string]daemon.Report{
		"admitter": {Status: daemon.StatusUnhealthy, Problems: map[string]string{"policies": "none"}}, "auditor": {Status: daemon.StatusStarting},
		"correlator": {Status: daemon.StatusOK},
	}
	p := &Pipeline{opt: Options{Services: []string{procGateway}}, health: map[string]string{"gone": "http://127.0.0.1:1"}, sup: supervise.New(zerolog.Nop(), nil)}
	for name, r := range reports {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { daemon.WriteReport(w, r) }))
		defer srv.Close()
		p.health[name] = srv.URL
	}
	w := httptest.NewRecorder()
	p.reportHealth(w, nil)
	var got daemon.Report
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"admitter/policies": "none", "auditor/process": "is starting", "gone/process": "does not answer", "gateway/process": "does not run yet: the log of up says what it waits for"}
	if w.Code != http.StatusServiceUnavailable || len(got.Problems) != len(want) {
		t.Errorf("%d %+v", w.Code, got)
	}
	if got.Services["correlator"].Status != daemon.StatusOK || got.Services["gone"].Status != daemon.StatusUnhealthy || got.Services["admitter"].Problems["policies"] != "none" {
		t.Errorf("services: %+v", got.Services)
	}
	for k, v := range want {
		if got.Problems[k] != v {
			t.Errorf("%s: %q", k, got.Problems[k])
		}
	}
}
