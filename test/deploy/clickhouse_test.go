package deploy_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
)

const (
	usersXML  = "deploy/clickhouse/users.xml"
	configXML = "deploy/clickhouse/config.xml"
)

// element is any XML element.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

// find gives the elements at a path such as "users/countersign".
func (e element) find(path string) (found []element) {
	name, rest, deeper := strings.Cut(path, "/")
	for _, c := range e.Children {
		switch {
		case c.XMLName.Local != name:
		case deeper:
			found = append(found, c.find(rest)...)
		default:
			found = append(found, c)
		}
	}
	return found
}

// texts are the trimmed texts at a path.
func (e element) texts(path string) (list []string) {
	for _, f := range e.find(path) {
		list = append(list, strings.TrimSpace(f.Text))
	}
	return list
}

func parseXML(t *testing.T, text string) element {
	t.Helper()
	var e element
	dec := xml.NewDecoder(strings.NewReader(text))
	dec.Strict = true
	ok(t, dec.Decode(&e))
	for {
		switch tok, err := dec.Token(); v := tok.(type) {
		case nil:
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return e
		case xml.CharData:
			if strings.TrimSpace(string(v)) != "" {
				t.Fatalf("text follows the document: %s", v)
			}
		default:
			t.Fatalf("something follows the document: %v", v)
		}
	}
}

func TestClickHouseConfig(t *testing.T) {
	c := parseXML(t, read(t, configXML))
	for at, want := range map[string][]string{
		"listen_host": {"127.0.0.1"}, "tcp_port": {"9000"}, "timezone": {"UTC"}, "table_engines_require_grant": {"true"},
		"user_directories/users_xml/path": {"users.xml"}, "users_config": {"users.xml"}, "send_crash_reports/enabled": {"false"},
		"storage_configuration/disks/default/keep_free_space_bytes": {"1073741824"},
	} {
		if got := c.texts(at); !slices.Equal(got, want) {
			t.Errorf("%s: %s is %q, want %q", configXML, at, got, want)
		}
	}
	for _, e := range c.Children {
		if name := e.XMLName.Local; strings.HasSuffix(name, "_port") && name != "tcp_port" || strings.HasPrefix(name, "interserver") {
			t.Errorf("%s opens another listener: %s", configXML, name)
		}
	}
}

// TestClickHouseUsers compares the users with those that `up` gives to its own
// engine, so that a server set up by hand has neither more nor fewer rights.
func TestClickHouseUsers(t *testing.T) {
	users := parseXML(t, read(t, usersXML))
	names := []string{}
	for _, u := range users.find("users")[0].Children {
		names = append(names, u.XMLName.Local)
		password := u.find("password_sha256_hex")
		if len(password) != 1 || len(password[0].Attrs) != 1 || password[0].Attrs[0].Name.Local != "from_env" || strings.TrimSpace(password[0].Text) != "" {
			t.Errorf("%s: the password of %s must come from the environment alone", usersXML, u.XMLName.Local)
		}
		if got := u.texts("networks/ip"); !slices.Equal(got, []string{"127.0.0.1", "::1"}) {
			t.Errorf("%s: %s may come from %q", usersXML, u.XMLName.Local, got)
		}
		if len(u.find("no_password")) > 0 {
			t.Errorf("%s: %s has no password", usersXML, u.XMLName.Local)
		}
	}
	if want := []string{engine.OwnerUser, engine.ReadonlyUser}; !slices.Equal(names, want) {
		t.Fatalf("%s: users %q, want %q", usersXML, names, want)
	}
	engine := parseXML(t, engineUsers(t))
	for _, at := range []string{"users/countersign/grants/query", "users/countersign_ro/grants/query", "profiles/reading/readonly"} {
		if got, want := users.texts(at), engine.texts(at); !slices.Equal(got, want) {
			t.Errorf("%s: %s\n got %q\nwant %q", usersXML, at, got, want)
		}
	}
}

// engineUsers is the users.xml that package storage writes for its engine.
func engineUsers(t *testing.T) string {
	t.Helper()
	needEngine(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := engine.Start(ctx, engine.Options{DataDir: dir, Embedded: true, MaxMemory: 1 << 30})
	ok(t, err)
	ok(t, e.Stop(ctx))
	b, err := os.ReadFile(filepath.Join(dir, "users.xml"))
	ok(t, err)
	return string(b)
}

func needEngine(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the ClickHouse engine")
	}
	lib, err := engine.Fetch(t.Context(), "", nil)
	if errors.Is(err, engine.ErrFetch) || errors.Is(err, engine.ErrPlatform) {
		t.Skipf("no ClickHouse engine to test with: %v", err)
	}
	ok(t, err)
	return lib
}

// localSession adds what only the embedded engine needs: the user of its own session, which may
// only listen and block.
const localSession = `<clickhouse><users><default><no_password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>
<grants><query>GRANT SYSTEM LISTEN ON *.*</query><query>GRANT SELECT ON system.numbers</query></grants></default></users></clickhouse>`

// TestClickHouseFilesWork gives both files to a real engine.
func TestClickHouseFilesWork(t *testing.T) {
	lib := needEngine(t)
	owner, reader := "owner-of-a-test", "reader-of-a-test"
	port := startWithFiles(t, lib, map[string]string{
		"COUNTERSIGN_CLICKHOUSE_OWNER_SHA256": sha(owner), "COUNTERSIGN_CLICKHOUSE_READONLY_SHA256": sha(reader),
	})
	dsn := func(user, password string) string {
		return fmt.Sprintf("clickhouse://%s:%s@127.0.0.1:%s/countersign", user, password, port)
	}
	ctx := t.Context()
	pool, err := conn.Open(ctx, dsn(engine.OwnerUser, owner))
	ok(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	ok(t, schema.Migrate(ctx, pool))
	row := storage.EvidenceRow{Shard: "GOV@test", Seq: 1, Kind: storage.KindControl, Subject: "gov.control.GOV.tick",
		BrokerTime: time.Unix(1, 0), Record: `{"v":1}`, RecordHash: [32]byte{1}}
	ok(t, write.New(pool).CommitEvidence(ctx, []storage.EvidenceRow{row})) // all that an auditor needs a right for

	ownerConn, readerConn := open(t, dsn(engine.OwnerUser, owner)), open(t, dsn(engine.ReadonlyUser, reader))
	var n uint64
	ok(t, readerConn.QueryRow(ctx, "SELECT count() FROM evidence").Scan(&n))
	if n != 1 {
		t.Errorf("the reader sees %d records, want 1", n)
	}
	for _, table := range []string{"evidence", "evidence_chain", "tree_hashes", "checkpoints"} {
		var ddl string
		ok(t, ownerConn.QueryRow(ctx, "SELECT create_table_query FROM system.tables WHERE database = 'countersign' AND name = $1", table).Scan(&ddl))
		for _, setting := range []string{"fsync_after_insert = 1", "fsync_part_directory = 1", "min_rows_to_fsync_after_merge = 1", "non_replicated_deduplication_window = "} {
			if !strings.Contains(ddl, setting) {
				t.Errorf("table %s goes without %s", table, setting)
			}
		}
	}
	var async string
	ok(t, ownerConn.QueryRow(ctx, "SELECT value FROM system.settings WHERE name = 'async_insert'").Scan(&async))
	if async != "0" {
		t.Errorf("async_insert is %s by default", async)
	}
	for name, c := range map[string]struct {
		conn clickhouse.Conn
		stmt string
	}{
		"reader inserts":       {readerConn, "INSERT INTO checkpoints (shard) VALUES ('x')"},
		"reader deletes":       {readerConn, "ALTER TABLE evidence DELETE WHERE 1"},
		"reader sets readonly": {readerConn, "SET readonly = 0"},
		"owner reads a file":   {ownerConn, "SELECT * FROM file('/etc/passwd', 'LineAsString')"},
		"owner reads a URL":    {ownerConn, "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')"},
		"owner makes a user":   {ownerConn, "CREATE USER mallory"},
		"owner, file engine":   {ownerConn, "CREATE TABLE f (a String) ENGINE = File(TSV)"},
		"owner, another db":    {ownerConn, "CREATE DATABASE other"},
	} {
		if err := c.conn.Exec(ctx, c.stmt); err == nil {
			t.Errorf("%s: %s was done", name, c.stmt)
		} else if ex := (*clickhouse.Exception)(nil); !errors.As(err, &ex) || !slices.Contains([]int32{497, 164, 291}, ex.Code) {
			t.Errorf("%s: refused for another reason: %v", name, err)
		}
	}
	if _, err := conn.Open(ctx, dsn(engine.OwnerUser, "guess")); err == nil {
		t.Error("a wrong password is accepted")
	}
}

func open(t *testing.T, dsn string) clickhouse.Conn {
	t.Helper()
	options, err := clickhouse.ParseDSN(dsn)
	ok(t, err)
	conn, err := clickhouse.Open(options)
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func sha(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// startWithFiles runs the engine on the deployment's own files until the test
// ends, and gives its port.
func startWithFiles(t *testing.T, lib string, env map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	ok(t, os.MkdirAll(filepath.Join(dir, "users.d"), 0o700))
	for name, text := range map[string]string{
		"config.xml": read(t, configXML), "users.xml": read(t, usersXML), "users.d/local.xml": localSession,
	} {
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	port := filepath.Join(dir, "port")
	self, err := os.Executable()
	ok(t, err)
	cmd := exec.Command(self, "__clickhouse-engine", "embedded", lib, "clickhouse-local",
		"--config-file="+filepath.Join(dir, "config.xml"), "--path="+filepath.Join(dir, "data"), "--listen_host", "127.0.0.1", "--tcp_port", "0",
		"--query", "SYSTEM START LISTEN TCP; SELECT getServerPort('tcp_port') INTO OUTFILE '"+port+"' FORMAT TSV; "+
			"SELECT sleepEachRow(1) FROM system.numbers SETTINGS max_block_size = 1, max_threads = 1, max_execution_time = 0 FORMAT Null")
	cmd.Dir = dir
	cmd.Env = os.Environ()
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	life, err := cmd.StdinPipe() // the engine ends with it
	ok(t, err)
	ok(t, cmd.Start())
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	t.Cleanup(func() { _ = life.Close(); _ = cmd.Process.Kill(); <-gone })
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(port); err == nil && strings.HasSuffix(string(b), "\n") {
			return strings.TrimSpace(string(b))
		}
		select {
		case <-gone:
			t.Fatalf("the engine does not start with these files:\n%s", out.String())
		case <-t.Context().Done():
			t.Fatal("the engine does not listen")
		case <-tick.C:
		}
	}
}

var fromEnv = regexp.MustCompile(`from_env="([A-Z0-9_]+)"`)
