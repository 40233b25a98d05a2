package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/storage/engine/internal/chdb"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

// fakeServerEnv makes the test binary behave as `clickhouse server`: it runs the
// embedded engine with the configuration files that a server is given. Its value
// is the library.
const fakeServerEnv = "COUNTERSIGN_TEST_SERVER_LIBRARY"

func runFakeServerIfAsked() {
	lib := os.Getenv(fakeServerEnv)
	if lib == "" {
		return
	}
	if err := runFakeServer(lib, strings.TrimPrefix(os.Args[2], "--config-file=")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runFakeServer(lib, config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	value := func(tag string) string {
		m := regexp.MustCompile("\n  <" + tag + ">([^<]*)</").FindSubmatch(text)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	// A server has no session of its own, so its users file has no default user.
	users := filepath.Join(filepath.Dir(config), usersFile)
	b, err := os.ReadFile(users)
	if err != nil {
		return err
	}
	own := "<users><default><no_password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>"
	if err := os.WriteFile(users, []byte(strings.Replace(string(b), "<users>", own, 1)), 0o600); err != nil {
		return err
	}
	l, err := chdb.Load(lib)
	if err != nil {
		return err
	}
	return l.Run("clickhouse-local", "--config-file="+config, "--path="+value("path"), "--listen_host", value("listen_host"),
		"--tcp_port", value("tcp_port"), "--query", "SYSTEM START LISTEN TCP; "+blockingQuery)
}

// fakeProgram puts a program called clickhouse first on PATH.
func fakeProgram(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "clickhouse"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestProgramOnPath(t *testing.T) {
	for _, c := range []struct {
		name, script string
		written      release // what wrote the data
		found        bool
	}{
		{"recent", "echo 'ClickHouse local version 25.3.1.1 (official build).'", release{}, true},
		{"the one that wrote the data", "echo 'ClickHouse local version 25.3.1.1 (official build).'", release{25, 3}, true},
		{"older than the data", "echo 'ClickHouse local version 25.3.1.1 (official build).'", release{25, 4}, false},
		{"oldest", "echo 'ClickHouse local version 24.12.1.1 (official build).'", release{}, true},
		{"too old", "echo 'ClickHouse server version 18.16.1.'", release{}, false},
		{"just too old", "echo 'ClickHouse local version 24.11.9.9.'", release{}, false},
		{"something else", "echo hello", release{}, false},
		{"broken", "exit 3", release{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeProgram(t, c.script)
			if got := findProgram(t.Context(), zerolog.Nop(), c.written); (got != "") != c.found {
				t.Errorf("found %q, want found = %v", got, c.found)
			}
		})
	}
	t.Setenv("PATH", t.TempDir())
	if got := findProgram(t.Context(), zerolog.Nop(), release{}); got != "" {
		t.Errorf("found %q on an empty PATH", got)
	}
}

// ClickHouse cannot go back: an engine that is older than the one that wrote the data does not start
// on it.
func TestOlderEngine(t *testing.T) {
	for text, want := range map[string]string{"99.1.2.3 binary\n": "was written by ClickHouse 99.1", "nothing": "does not name the version"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, versionFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), Options{DataDir: dir, Embedded: true, NoFetch: true, CacheDir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrOlderEngine) != (text != "nothing") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestManagedProgram(t *testing.T) {
	needLibrary(t)
	lib, err := Fetch(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	fakeProgram(t, fmt.Sprintf(`[ "$1" = --version ] && { echo "ClickHouse local version 26.7.2.1"; exit; }
[ "$CLICKHOUSE_WATCHDOG_ENABLE" = 0 ] || exit 9
grep -q 'NoNewPrivs:.*1' /proc/$$/status || exit 8
%s='%s' exec '%s' "$@"`, fakeServerEnv, lib, os.Args[0]))
	dir := t.TempDir()
	e, err := Start(t.Context(), Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(t.Context()) })
	if e.Kind() != KindBinary {
		t.Errorf("kind %s", e.Kind())
	}
	if b, err := os.ReadFile(filepath.Join(dir, versionFile)); string(b) != e.Version()+" binary\n" {
		t.Errorf("the data directory says that %q wrote it (%v)", b, err)
	}
	db := openMigrated(t, e)
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, "S", 1)); err != nil {
		t.Fatal(err)
	}
	if err := openPool(t, e.ReadonlyDSN()).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := Start(t.Context(), Options{DataDir: dir}); !errors.Is(err, ErrDataDirInUse) {
		t.Errorf("a second one: %v", err)
	}
	if err := e.Stop(t.Context()); err != nil || alive(e.PID()) {
		t.Errorf("stop: %v, alive %v", err, alive(e.PID()))
	}
	again, err := Start(t.Context(), Options{DataDir: dir, TCPPort: tcpPort(t, e.DSN())})
	if err != nil {
		t.Fatal(err)
	}
	if again.DSN() != e.DSN() {
		t.Error("the DSN changed")
	}
	storagetest.WantRows(t, openPool(t, again.DSN()), "S", storagetest.OneEach)
	if err := syscall.Kill(again.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-again.Done()
	if !errors.Is(again.Err(), ErrEngineDied) {
		t.Errorf("error %v", again.Err())
	}
}

func TestProgramThatDoesNotStart(t *testing.T) {
	fakeProgram(t, `[ "$1" = --version ] && { echo "ClickHouse local version 26.7.2.1"; exit; }; echo "Code: 9. no such thing" >&2; exit 70`)
	_, err := Start(t.Context(), Options{DataDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "no such thing") || !strings.Contains(err.Error(), "70") {
		t.Errorf("error %v", err)
	}
}
