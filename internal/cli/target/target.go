// Package target finds the running system that a command connects to: from flags, from the ready
// file of `countersign up`, or from a context of the nats tool. Commands embed Flags and call
// Resolve; package system builds on the Target.
package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/owner"
	"github.com/countersign-dev/countersign/streams"
)

// Role is one set of credentials in a ready file.
type Role struct {
	User        string `json:"user"`
	Password    string `json:"password"`
	InboxPrefix string `json:"inbox_prefix"`
	Publisher   string `json:"publisher,omitempty"` // runtime only: its publisher token
	Token       string `json:"token,omitempty"`     // bearer token at the gateway
}

// Names of the roles in a ready file.
const (
	Runtime    = "runtime"
	Subscriber = "subscriber"
	Reviewer   = "reviewer"
	Operator   = "operator"
)

// Ready is the ready file, which `up` writes once all services answer. It holds passwords, and
// only its owner may read it.
type Ready struct {
	NATSURL               string          `json:"nats_url"`
	Roles                 map[string]Role `json:"roles"`
	ClickHouseDSN         string          `json:"clickhouse_dsn"`
	ClickHouseReadonlyDSN string          `json:"clickhouse_readonly_dsn"`
	HTTPURL               string          `json:"http_url,omitempty"`
	GatewayURL            string          `json:"gateway_url,omitempty"` // HTTP in front of the pipeline
	PublicKey             string          `json:"public_key"`
	Tenant                string          `json:"tenant"`
	PIDs                  map[string]int  `json:"pids"`
	DataDir               string          `json:"data_dir,omitempty"` // of the `up`; only in its own ready file
	Owner                 *owner.Owner    `json:"owner,omitempty"`    // the `up` that maintains the file
}

// ErrLeftBehind reports that the `up` that wrote a ready file no longer runs. Another program may
// listen at its addresses and must not get its passwords.
var ErrLeftBehind = errors.New("the `countersign up` of that time no longer runs")

// replacement is how a ready file is made again. A restarted `up` replaces its own file alone.
func (r Ready) replacement() string {
	if r.DataDir != "" {
		return "start it again, which replaces the file"
	}
	return "make the file again by the `countersign user add` or `countersign tenant add` that made it, with --out"
}

// ReadReady reads a ready file.
func ReadReady(path string) (Ready, error) {
	var r Ready
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, fmt.Errorf("no ready file at %s: is `countersign up --ready-file %s` running? It writes the file once it is up", path, path)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s is not a ready file of `countersign up`: %w", path, err)
	}
	return r, nil
}

// Write writes the ready file, whole or not at all, with mode 0600.
func (r Ready) Write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	return nil
}

// Flags are the connection flags that all commands share.
type Flags struct {
	ReadyFile  string `help:"Ready file of a running 'up': finds everything below." env:"COUNTERSIGN_READY_FILE" placeholder:"FILE"`
	Server     string `help:"NATS server URL." env:"NATS_URL" placeholder:"URL"`
	User       string `help:"NATS user." env:"NATS_USER"`
	Password   string `help:"NATS password (better in NATS_PASSWORD than on the command line)." env:"NATS_PASSWORD"`
	Creds      string `help:"NATS credentials file." env:"NATS_CREDS" placeholder:"FILE"`
	Context    string `help:"Connection context of the nats tool." env:"NATS_CONTEXT"`
	Inbox      string `name:"inbox-prefix" help:"Reply inbox prefix that this user may subscribe to." placeholder:"PREFIX"`
	ClickHouse string `name:"clickhouse" help:"ClickHouse DSN, clickhouse://user:password@host:port/database (better in COUNTERSIGN_CLICKHOUSE than on the command line)." env:"COUNTERSIGN_CLICKHOUSE" placeholder:"DSN"`
	Tenant     string `help:"Tenant (default: the ready file's, else acme)." env:"COUNTERSIGN_TENANT"`
	Prefix     string `help:"First token of every subject." default:"gov"`
	Stream     string `help:"Name of the shard's stream." default:"GOV"`
}

// Target is the system that a command connects to.
type Target struct {
	Flags
	ready *Ready
}

// ErrNoServer reports that no flag names a NATS server.
var ErrNoServer = errors.New("no server named: give --ready-file FILE of a running `countersign up`, or --server URL, or --context NAME")

// ErrNoClickHouse reports that no flag names a ClickHouse.
var ErrNoClickHouse = errors.New("no ClickHouse named: give --ready-file FILE of a running `countersign up`, or --clickhouse DSN")

// Resolve reads the ready file, if one is named. With a ready file, servers named in the
// environment are ignored: they were meant for another system. It returns ErrLeftBehind if the
// file's `up` no longer runs.
func (f Flags) Resolve() (*Target, error) {
	t := &Target{Flags: f}
	if f.ReadyFile != "" {
		r, err := ReadReady(f.ReadyFile)
		if err != nil {
			return nil, err
		}
		if r.Owner.Gone() {
			return nil, fmt.Errorf("the ready file %s was left behind: %w; %s", f.ReadyFile, ErrLeftBehind, r.replacement())
		}
		t.ready = &r
		t.forgetEnvironment()
		if t.Tenant == "" {
			t.Tenant = r.Tenant
		}
	}
	if t.Tenant == "" {
		t.Tenant = "acme"
	}
	return t, nil
}

// forgetEnvironment removes values that come from the environment and not from the command line.
func (t *Target) forgetEnvironment() {
	for name, flag := range map[string]*string{
		"NATS_URL": &t.Server, "NATS_USER": &t.User, "NATS_CREDS": &t.Creds, "NATS_CONTEXT": &t.Context, "COUNTERSIGN_CLICKHOUSE": &t.ClickHouse,
	} {
		if *flag == os.Getenv(name) {
			*flag = ""
		}
	}
	if t.User == "" {
		t.Password = ""
	}
}

// FromReady is the target that a ready file describes.
func FromReady(r Ready) *Target {
	return &Target{Flags: Flags{Tenant: r.Tenant, Prefix: subject.DefaultPrefix, Stream: streams.DefaultShard}, ready: &r}
}

// ReadyInfo is the content of the ready file, nil without one.
func (t *Target) ReadyInfo() *Ready { return t.ready }

// Connect connects to NATS in a role. Flags take precedence over the context, the context over
// the ready file.
func (t *Target) Connect(ctx context.Context, role string) (*nats.Conn, error) {
	return t.ConnectNamed(ctx, role, "countersign "+role)
}

// ConnectNamed is Connect with the name that the server's log gives the client.
func (t *Target) ConnectNamed(ctx context.Context, role, name string) (*nats.Conn, error) {
	o, err := t.connectOptions(role)
	if err != nil {
		return nil, err
	}
	o.Name = name
	return streams.Connect(ctx, o)
}

func (t *Target) connectOptions(role string) (streams.ConnectOptions, error) {
	o := streams.ConnectOptions{InboxPrefix: t.Inbox}
	if t.ready != nil {
		r, known := t.ready.Roles[role]
		if !known && t.User == "" && t.Creds == "" && t.Context == "" {
			return o, fmt.Errorf("the ready file has no credentials of role %s: use the ready file of `countersign up`, with --tenant NAME, or give --user and --password, or --creds", role)
		}
		o.URL, o.User, o.Password = t.ready.NATSURL, r.User, r.Password
		if o.InboxPrefix == "" {
			o.InboxPrefix = r.InboxPrefix
		}
	}
	if t.Context != "" {
		c, err := readContext(t.Context)
		if err != nil {
			return o, err
		}
		o.URL, o.User, o.Password, o.CredsFile = c.URL, c.User, c.Password, c.Creds
		if c.InboxPrefix != "" && t.Inbox == "" {
			o.InboxPrefix = c.InboxPrefix
		}
	}
	if t.Server != "" {
		o.URL = t.Server
	}
	if t.User != "" { // that user has an inbox of its own
		o.User, o.Password, o.CredsFile, o.InboxPrefix = t.User, t.Password, "", t.Inbox
	}
	if t.Creds != "" {
		o.User, o.Password, o.CredsFile, o.InboxPrefix = "", "", t.Creds, t.Inbox
	}
	if o.URL == "" {
		return o, ErrNoServer
	}
	return o, nil
}

// Publisher is the token under which this target's runtime publishes: the NATS user's name if one
// is given, otherwise the ready file's.
func (t *Target) Publisher() string {
	if t.User != "" {
		return t.User
	}
	if t.ready != nil {
		return t.ready.Roles[Runtime].Publisher
	}
	return ""
}

// errNoEvidence reports a ready file that names no ClickHouse.
var errNoEvidence = errors.New("this ready file is of one user or tenant and has no evidence: use that of `countersign up`, with --tenant NAME, or give --clickhouse DSN")

// DSN is the ClickHouse to read from, with the auditors' read-only user if the ready file has it.
func (t *Target) DSN() (string, error) {
	switch {
	case t.ClickHouse != "":
		return t.ClickHouse, nil
	case t.ready != nil && t.ready.ClickHouseReadonlyDSN != "":
		return t.ready.ClickHouseReadonlyDSN, nil
	case t.ready != nil && t.ready.ClickHouseDSN == "":
		return "", errNoEvidence
	case t.ready != nil: // a server of the user's own, without a read-only user
		return t.ready.ClickHouseDSN, nil
	default:
		return "", ErrNoClickHouse
	}
}

// OwnerDSN is the ClickHouse to change, with the owner of the database.
func (t *Target) OwnerDSN() (string, error) {
	if t.ClickHouse == "" && t.ready != nil && t.ready.ClickHouseDSN != "" {
		return t.ready.ClickHouseDSN, nil
	}
	return t.DSN()
}

// natsContext is the part of the nats tool's context files that is used.
type natsContext struct {
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"`
	InboxPrefix string `json:"inbox_prefix"`
}

func readContext(name string) (natsContext, error) {
	var c natsContext
	if strings.ContainsAny(name, `/\`) || name == ".." {
		return c, fmt.Errorf("%q is not the name of a nats context", name)
	}
	base := os.Getenv("XDG_CONFIG_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return c, err
		}
		base = filepath.Join(home, ".config")
	}
	path := filepath.Join(base, "nats", "context", name+".json")
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("nats context %q: %w (list them with: nats context ls)", name, err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("nats context %q: %s: %w", name, path, err)
	}
	return c, nil
}

// DefaultDataDir is the default data directory of `countersign up`; "" without a home directory.
func DefaultDataDir() string {
	if base := os.Getenv("XDG_DATA_HOME"); base != "" {
		return filepath.Join(base, "countersign")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "countersign")
}
