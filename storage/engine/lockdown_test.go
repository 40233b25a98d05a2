package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/conn"
)

// refused runs a statement that must be refused with one of the given codes.
func refused(t *testing.T, dsn, statement string, codes ...int32) {
	t.Helper()
	err := withConn(dsn, func(c clickhouse.Conn) error { return c.Exec(t.Context(), statement) })
	var ex *clickhouse.Exception
	if !errors.As(err, &ex) {
		t.Errorf("%s: error %v, want a refusal", statement, err)
		return
	}
	for _, code := range codes {
		if ex.Code == code {
			return
		}
	}
	t.Errorf("%s: %v, want a code of %v", statement, err, codes)
}

// What ClickHouse says when it refuses.
const (
	codeReadonly        = 164
	codeUnknownDatabase = 81
	codePathDenied      = 291
	codeAccessDenied    = 497
	codeAuthentication  = 516
	codeSessionLimit    = 700
)

func TestLockDown(t *testing.T) {
	sharedPool(t)
	owner, readonly := shared.engine.DSN(), shared.engine.ReadonlyDSN()
	port := tcpPort(t, owner)
	t.Run("default", func(t *testing.T) {
		dsn := nativeDSN("default", "", "127.0.0.1", port, "default")
		for _, statement := range []string{"SELECT 1", "SELECT count() FROM countersign.evidence", "SYSTEM STOP LISTEN TCP", "SYSTEM START LISTEN HTTP", "KILL QUERY WHERE 1"} {
			refused(t, dsn, statement, codeSessionLimit, codeAccessDenied)
		}
	})
	t.Run("strangers", func(t *testing.T) {
		refused(t, nativeDSN(OwnerUser, "wrong", "127.0.0.1", port, conn.DatabaseName), "SELECT 1", codeAuthentication)
		refused(t, nativeDSN(OwnerUser, "", "127.0.0.1", port, conn.DatabaseName), "SELECT 1", codeAuthentication)
		refused(t, nativeDSN("nobody", "", "127.0.0.1", port, conn.DatabaseName), "SELECT 1", codeAuthentication)
	})
	t.Run("owner", func(t *testing.T) {
		for _, statement := range []string{
			"SELECT * FROM file('/etc/passwd', 'LineAsString', 'l String')",
			"INSERT INTO FUNCTION file('/tmp/x', 'TSV', 'l String') SELECT 'x'",
			"SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString', 'l String')",
			"SELECT * FROM remote('127.0.0.1:9000', system, one)",
			"SELECT * FROM s3('http://127.0.0.1:1/bucket/x', 'CSV', 'a String')",
			"CREATE TABLE countersign.f (x String) ENGINE = File(TSV)",
			"CREATE TABLE countersign.f (x String) ENGINE = URL('http://127.0.0.1:1/', 'TSV')",
			"CREATE DATABASE elsewhere",
			"CREATE USER mallory",
			"SYSTEM STOP LISTEN TCP",
			"SYSTEM SHUTDOWN",
		} {
			refused(t, owner, statement, codesFor(statement, codeAccessDenied)...)
		}
	})
	t.Run("readonly", func(t *testing.T) {
		for _, statement := range []string{
			"INSERT INTO evidence (shard, seq) VALUES ('x', 1)",
			"ALTER TABLE evidence DELETE WHERE 1",
			"DROP TABLE evidence",
			"CREATE TABLE x (a UInt8) ENGINE = Memory",
			"SELECT * FROM system.users",
			"SELECT * FROM file('/etc/passwd', 'LineAsString', 'l String')",
			"KILL QUERY WHERE 1",
			"SET readonly = 0",
			"SELECT 1 SETTINGS readonly = 0",
		} {
			refused(t, readonly, statement, codesFor(statement, codeReadonly, codeAccessDenied)...)
		}
	})
	if err := shared.pool.Ping(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	sharedPool(t)
	for _, name := range []string{credentialsFile, usersFile, configFile, lockName, ownerLockName} {
		info, err := os.Stat(filepath.Join(shared.dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v (%v)", name, info.Mode(), err)
		}
	}
	users, err := os.ReadFile(filepath.Join(shared.dir, usersFile))
	o, _ := clickhouse.ParseDSN(shared.engine.DSN())
	if err != nil || strings.Contains(string(users), o.Auth.Password) {
		t.Errorf("%s holds a password in the clear (%v)", usersFile, err)
	}
}

// `clickhouse local` ends itself on every connection that fails before its first
// query; see storage/engine/internal/chdb.
func TestBadClientsDoNotEndTheEngine(t *testing.T) {
	sharedPool(t)
	port := tcpPort(t, shared.engine.DSN())
	o, err := clickhouse.ParseDSN(shared.engine.DSN())
	if err != nil {
		t.Fatal(err)
	}
	send := func(b string, reset bool) {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(b))
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
	for name, attack := range map[string]func(){
		"garbage":         func() { send("garbage\r\n\r\n", false) },
		"an HTTP request": func() { send("GET / HTTP/1.1\r\nHost: x\r\n\r\n", false) },
		"nothing":         func() { send("", false) },
		"a reset":         func() { send("", true) },
		"half a hello":    func() { send("\x00\x05hello", true) },
		"a huge length":   func() { send("\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f", false) },
		"a wrong password": func() {
			refused(t, nativeDSN(OwnerUser, "x", "127.0.0.1", port, conn.DatabaseName), "SELECT 1", codeAuthentication)
		},
		"no such database": func() {
			refused(t, nativeDSN(OwnerUser, o.Auth.Password, "127.0.0.1", port, "nowhere"), "SELECT 1", codeUnknownDatabase)
		},
	} {
		attack()
		if err := withConn(shared.engine.DSN(), func(c clickhouse.Conn) error { return c.Ping(t.Context()) }); err != nil {
			t.Fatalf("after %s: %v; %v", name, err, shared.engine.Err())
		}
	}
}

// codesFor adds the code for a path outside of the folder for users' files to those of a statement that names one.
func codesFor(statement string, codes ...int32) []int32 {
	if strings.Contains(statement, "file('/") {
		codes = append(codes, codePathDenied)
	}
	return codes
}

// `clickhouse local` lets every user read every file; see storage/engine/internal/chdb. A link in the
// folder for users' files opens nothing, either.
func TestFilesAreClosed(t *testing.T) {
	e, tenantReader := twoTenants(t)
	parts, err := filepath.Glob(filepath.Join(e.dataDir, dataFolder, "store", "*", "*", "all_*", "*"))
	if err != nil || len(parts) == 0 {
		t.Fatalf("no part of the store (%v)", err)
	}
	part, err := filepath.Rel(filepath.Join(e.dataDir, userFolder), parts[0])
	if err != nil {
		t.Fatal(err)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", e.PID())); err != nil || cwd != filepath.Join(e.dataDir, userFolder) {
		t.Errorf("the engine works in %s (%v), and a relative path of its owner begins there", cwd, err)
	}
	key := filepath.Join(t.TempDir(), "checkpoint.key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(e.dataDir, userFolder, "link")
	if err := os.Symlink(key, link); err != nil {
		t.Fatal(err)
	}
	paths := []string{
		"/etc/passwd", "/proc/self/environ", key, link, "link", "*", filepath.Join(e.dataDir, credentialsFile), "../../" + credentialsFile,
		filepath.Join(e.dataDir, userFolder, "..", "..", credentialsFile), parts[0], part, "../status", "nothing", "/nothing",
	}
	for user, dsn := range map[string]string{"owner": e.DSN(), "read-only user": e.ReadonlyDSN(), "tenant reader": tenantReader} {
		for _, path := range paths {
			p := conn.QuoteString(path)
			for _, query := range []string{
				"SELECT file(" + p + ")", "SELECT file(" + p + ", 'default')", "SELECT file(" + p + ", NULL)", "SELECT file(materialize(" + p + "))",
				"SELECT * FROM file(" + p + ", 'LineAsString')", "SELECT * FROM file(" + p + ", 'One')", "SELECT * FROM filesystem(" + p + ")",
				"SELECT * FROM default.`" + path + "`", "SELECT * FROM sqlite(" + p + ", 'x')", "SELECT * FROM icebergLocal(" + p + ")",
				"SELECT * FROM executable(" + p + ", 'TSV', 'l String')", "SELECT catboostEvaluate(" + p + ", 1.0)",
				"SELECT * FROM format('Template', '') SETTINGS format_template_row = " + p, "SELECT * FROM format('Protobuf', 'a String', '') SETTINGS format_schema = " + conn.QuoteString(path+":M"),
			} {
				text, rows, err := everything(t, dsn, query)
				if err == nil {
					t.Errorf("%s: %s gives %d rows: %.100q", user, query, rows, text)
				}
			}
		}
	}
}

// TestPasswordsThatOthersMayReadAreRefused: the engine does not start with a file of passwords that
// other users may read.
func TestPasswordsThatOthersMayReadAreRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := loadCredentials(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, credentialsFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadCredentials(dir); err == nil || !strings.Contains(err.Error(), "may be read by others") {
		t.Errorf("%v", err)
	}
}
