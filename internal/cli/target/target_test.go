package target

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/owner"
)

var sample = Ready{
	NATSURL: "nats://ready", Tenant: "acme", ClickHouseDSN: "clickhouse://owner", ClickHouseReadonlyDSN: "clickhouse://readonly",
	Roles: map[string]Role{Runtime: {User: "acme-runtime", Password: "p1", InboxPrefix: "_INBOX_r", Publisher: "acme-runtime"}},
	PIDs:  map[string]int{"up": 1},
}

// write puts a ready file and a nats context where they are looked for.
func write(t *testing.T) (ready string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	contexts := filepath.Join(dir, "nats", "context")
	if err := os.MkdirAll(contexts, 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"url":"nats://context","user":"cu","password":"cp","creds":"c.creds","inbox_prefix":"_INBOX_c","unknown":1}`
	if err := os.WriteFile(filepath.Join(contexts, "mine.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ready = filepath.Join(dir, "ready.json")
	if err := sample.Write(ready); err != nil {
		t.Fatal(err)
	}
	return ready
}

// seen is what a connection would be made with.
type seen struct{ url, user, password, creds, inbox string }

func TestPrecedence(t *testing.T) {
	ready := write(t)
	for name, c := range map[string]struct {
		env   map[string]string
		flags Flags
		role  string
		want  seen
		err   string
	}{
		"ready file": {flags: Flags{ReadyFile: ready}, want: seen{"nats://ready", "acme-runtime", "p1", "", "_INBOX_r"}},
		"ready file before the environment": {
			env:   map[string]string{"NATS_URL": "nats://env", "NATS_USER": "eu", "NATS_PASSWORD": "ep", "NATS_CREDS": "e", "NATS_CONTEXT": "mine"},
			flags: Flags{ReadyFile: ready, Server: "nats://env", User: "eu", Password: "ep", Creds: "e", Context: "mine"},
			want:  seen{"nats://ready", "acme-runtime", "p1", "", "_INBOX_r"},
		},
		"flags before the ready file": {
			env:   map[string]string{"NATS_PASSWORD": "ep"},
			flags: Flags{ReadyFile: ready, Server: "nats://flag", User: "fu", Password: "ep"},
			want:  seen{"nats://flag", "fu", "ep", "", ""},
		},
		"context before the ready file": {flags: Flags{ReadyFile: ready, Context: "mine"}, want: seen{"nats://context", "cu", "cp", "c.creds", "_INBOX_c"}},
		"user before the context's credentials": {
			flags: Flags{Context: "mine", User: "fu", Password: "fp"}, want: seen{"nats://context", "fu", "fp", "", ""},
		},
		"credentials file before all users": {
			flags: Flags{ReadyFile: ready, Creds: "f.creds", Inbox: "_INBOX_f"}, want: seen{"nats://ready", "", "", "f.creds", "_INBOX_f"},
		},
		"role that the ready file lacks": {flags: Flags{ReadyFile: ready}, role: "provisioner", err: "no credentials of role provisioner: use the ready file of `countersign up`"},
		"... given by hand": {
			flags: Flags{ReadyFile: ready, User: "provisioner", Password: "x"}, role: "provisioner", want: seen{"nats://ready", "provisioner", "x", "", ""},
		},
		"nothing":         {err: ErrNoServer.Error()},
		"unknown context": {flags: Flags{Context: "nope"}, err: `nats context "nope"`},
		"context as path": {flags: Flags{Context: "../x"}, err: "not the name"},
		"no ready file":   {flags: Flags{ReadyFile: ready + "x"}, err: "is `countersign up"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			if c.role == "" {
				c.role = Runtime
			}
			target, err := c.flags.Resolve()
			var got seen
			if err == nil {
				o, oerr := target.connectOptions(c.role)
				got, err = seen{o.URL, o.User, o.Password, o.CredsFile, o.InboxPrefix}, oerr
			}
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
			case err != nil:
				t.Error(err)
			case got != c.want:
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDSN(t *testing.T) {
	ready := write(t)
	own := sample
	own.ClickHouseReadonlyDSN = ""
	ownFile := filepath.Join(t.TempDir(), "ready.json")
	if err := own.Write(ownFile); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COUNTERSIGN_CLICKHOUSE", "clickhouse://env")
	for name, c := range map[string]struct {
		flags Flags
		want  string
	}{
		"the read-only user":      {Flags{ReadyFile: ready, ClickHouse: "clickhouse://env"}, sample.ClickHouseReadonlyDSN},
		"a flag":                  {Flags{ReadyFile: ready, ClickHouse: "clickhouse://flag"}, "clickhouse://flag"},
		"the environment":         {Flags{ClickHouse: "clickhouse://env"}, "clickhouse://env"},
		"a server without reader": {Flags{ReadyFile: ownFile}, sample.ClickHouseDSN},
	} {
		target, err := c.flags.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := target.DSN(); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := (&Target{}).DSN(); !errors.Is(err, ErrNoClickHouse) {
		t.Errorf("nothing named: %v", err)
	}
	oneUser := FromReady(Ready{NATSURL: "nats://x", Tenant: "globex"}) // as `user add --out` writes it
	for name, dsn := range map[string]func() (string, error){"DSN": oneUser.DSN, "OwnerDSN": oneUser.OwnerDSN} {
		if got, err := dsn(); err == nil || !strings.Contains(err.Error(), "use that of `countersign up`, with --tenant NAME") {
			t.Errorf("%s of a user's file: %q, %v", name, got, err)
		}
	}
}

func TestReadyFileIsTheOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sample.Write(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if got, err := ReadReady(path); err != nil || got.NATSURL != sample.NATSURL {
		t.Errorf("%+v, %v", got, err)
	}
	if err := sample.Write(filepath.Join(t.TempDir(), "no", "such")); err == nil {
		t.Error("no error")
	}
}

// A ready file counts until its `up` is gone, and always where that cannot be
// known.
func TestReadyFileLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	mine := owner.ThisProcess()
	if mine == nil {
		t.Fatal("this kernel does not say when a process started")
	}
	change := func(f func(*owner.Owner)) *owner.Owner {
		o := *mine
		f(&o)
		return &o
	}
	for name, c := range map[string]struct {
		by   *owner.Owner
		want error
	}{
		"it runs":                   {mine, nil},
		"another process by now":    {change(func(o *owner.Owner) { o.Started += "0" }), ErrLeftBehind},
		"no such process":           {change(func(o *owner.Owner) { o.PID = 1 << 30 }), ErrLeftBehind},
		"another machine, or start": {change(func(o *owner.Owner) { o.Machine, o.PID = "other", 1<<30 }), nil},
		"written by hand":           {nil, nil},
	} {
		r := sample
		r.Owner = c.by
		if err := r.Write(path); err != nil {
			t.Fatal(err)
		}
		if _, err := (Flags{ReadyFile: path}).Resolve(); !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for dir, advice := range map[string]string{"": "countersign user add", "/data": "start it again"} { // a user's file, and that of `up`
		r := sample
		r.Owner, r.DataDir = change(func(o *owner.Owner) { o.PID = 1 << 30 }), dir
		if err := r.Write(path); err != nil {
			t.Fatal(err)
		}
		if _, err := (Flags{ReadyFile: path}).Resolve(); !errors.Is(err, ErrLeftBehind) || !strings.Contains(err.Error(), advice) {
			t.Errorf("data directory %q: %v", dir, err)
		}
	}
}
