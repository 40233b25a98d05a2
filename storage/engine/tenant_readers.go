package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/schema"
)

// TenantReader is a user of a managed engine that may read one tenant's rows and nothing else.
//
// Each tenant reader has a database of views with the names of the tables, and no right to the
// tables. With such a right a tenant reader could read the primary index of a table
// (mergeTreeIndex), and in it the names of other tenants' sessions, in spite of row
// policies. The views run as a second user that cannot log in and that the row policies
// bind. Conditions in the views alone would be no barrier, because ClickHouse may evaluate
// the tenant reader's own conditions before them.
//
// Its queries use no skip indexes: row policies do not bind those, and the number of rows that a
// query reads would tell whether another tenant has an id (TestReadRowsTellNoIDs).
type TenantReader struct {
	User   string `json:"user"`
	Tenant string `json:"tenant"`
	Hash   string `json:"password_sha256_hex"`
}

// Limits of a tenant reader's query. The tenant reader may lower them but not raise them.
const (
	auditorSeconds = 120
	auditorMemory  = 1 << 30 // bytes
	auditorQueries = 4       // at a time
)

// auditorsFile holds the tenant readers of a data directory.
const auditorsFile = "auditors.json"

// ErrTenantReader says that a tenant reader's name, tenant or file entry is not valid.
var ErrTenantReader = errors.New("not an auditor")

// auditorName matches valid names: they are elements in users.xml and identifiers in statements.
var auditorName = regexp.MustCompile(`^[a-z][a-z0-9_]{2,31}$`)

// auditorTables lists the tables that a tenant reader may read, with the condition on the rows:
// $ stands for the tenant, and "" means all rows. Tree hashes and checkpoints belong to no
// tenant, and a tenant reader cannot verify without them. The same holds for the keys that sign
// decisions, which are public, and for the records that explain why texts of the tenant
// expired.
//
// Views of record_fields have no condition of their own: they run with the rights of who reads them.
var auditorTables = []struct{ name, rows string }{
	{"evidence", "tenant = $ OR (tenant = '' AND kind = 'control' AND (endsWith(subject, '.key') OR endsWith(subject, '.key_retired') OR concerns = $))"},
	{"evidence_chain", "tenant = $"},
	{"decisions", ""},
	{"calls", ""},
	{"findings", ""},
	{"approvals", ""},
	{"redactions", ""},
	{"changes", ""},
	{"tree_hashes", ""},
	{"checkpoints", ""},
}

// underlyingFilter is the row policy of the table under the views. A change belongs to the tenant
// that its record names.
var underlyingFilter = struct{ name, rows string }{"record_fields", "tenant = $ OR (tenant = '' AND kind = 'control' AND control.tenant = $)"}

// TenantReaderTables lists the tables and views that a tenant reader may read.
func TenantReaderTables() (names []string) {
	for _, t := range auditorTables {
		names = append(names, t.name)
	}
	return append(names, "leaf_hashes")
}

// auditorFilter is one row policy.
type auditorFilter struct{ Table, Rows string }

// RowFilters lists the row policies of the user that the tenant reader's views run as.
func (a TenantReader) RowFilters() (list []auditorFilter) {
	for _, t := range append(auditorTables[:len(auditorTables):len(auditorTables)], underlyingFilter) {
		list = append(list, auditorFilter{t.name, strings.ReplaceAll(t.rows, "$", conn.QuoteString(a.Tenant))})
	}
	return list
}

// Database is the name of the database with the tenant reader's views.
func (a TenantReader) Database() string { return storage.TenantDatabase + a.User }

// Definer is the user that the views run as.
func (a TenantReader) Definer() string { return "of_" + a.User }

// viewStatements returns the statements that make the tenant reader's database and views.
func (a TenantReader) viewStatements(database string) []string {
	list := []string{"CREATE DATABASE IF NOT EXISTS " + a.Database()}
	for _, t := range auditorTables {
		list = append(list, fmt.Sprintf("DROP VIEW IF EXISTS %s.%s", a.Database(), t.name), fmt.Sprintf("CREATE VIEW %s.%s DEFINER = %s SQL SECURITY DEFINER AS SELECT * FROM %s.%[2]s",
			a.Database(), t.name, a.Definer(), database))
	}
	// Proofs need the hashes of all records, so every tenant reader may read these, and nothing else.
	return append(list, fmt.Sprintf("DROP VIEW IF EXISTS %s.leaf_hashes", a.Database()),
		fmt.Sprintf("CREATE VIEW %s.leaf_hashes DEFINER = CURRENT_USER SQL SECURITY DEFINER AS SELECT shard, seq, record_hash FROM %s.evidence", a.Database(), database))
}

// NewTenantReader makes a tenant reader and a random password. Only the hash of the password is kept.
func NewTenantReader(user, tenant string) (a TenantReader, password string, err error) {
	switch {
	case !auditorName.MatchString(user) || strings.HasPrefix(user, "of_") || user == OwnerUser || user == ReadonlyUser || user == "default":
		return a, "", fmt.Errorf("%w: the name %.40q: use 3 to 32 lower-case letters, digits and underscores, not beginning with of_, and none of the engine's own users", ErrTenantReader, user)
	case tenant == "" || strings.ContainsFunc(tenant, func(r rune) bool { return r < ' ' || r == 0xfffd }):
		return a, "", fmt.Errorf("%w: the tenant is empty or has control characters", ErrTenantReader)
	}
	password = newPassword()
	return TenantReader{User: user, Tenant: tenant, Hash: passwordHash(password)}, password, nil
}

// Statements returns the statements that make a tenant reader on a server that the caller runs. A
// user with access management must run them. Running them again changes password and
// tenant; it is needed when a new version has changed the tables.
//
// Their order keeps the rows of other tenants closed between any two of them: the login comes
// first, without any right, and gets its right last; every row policy comes before the first right
// to a table (TestStatementsOpenNothingMeanwhile).
func (a TenantReader) Statements(database string) []string {
	list := []string{
		fmt.Sprintf("CREATE USER OR REPLACE %s IDENTIFIED WITH sha256_hash BY '%s' SETTINGS readonly = 1, max_execution_time = %d MIN 1 MAX %[3]d CHANGEABLE_IN_READONLY, max_memory_usage = %d, max_concurrent_queries_for_user = %d, use_skip_indexes = 0",
			a.User, a.Hash, auditorSeconds, auditorMemory, auditorQueries),
		fmt.Sprintf("CREATE USER OR REPLACE %s IDENTIFIED WITH no_password HOST NONE SETTINGS use_skip_indexes = 0", a.Definer()),
	}
	for _, f := range a.RowFilters() {
		if f.Rows != "" {
			list = append(list, fmt.Sprintf("CREATE ROW POLICY OR REPLACE %s ON %s.%s USING %s TO %[1]s", a.Definer(), database, f.Table, f.Rows))
		}
	}
	for _, f := range a.RowFilters() {
		list = append(list, fmt.Sprintf("GRANT SELECT ON %s.%s TO %s", database, f.Table, a.Definer()))
	}
	list = append(list, a.viewStatements(database)...)
	return append(list, fmt.Sprintf("GRANT SELECT ON %s.* TO %s", a.Database(), a.User))
}

// TenantReaders lists the tenant readers of a data directory.
func TenantReaders(dataDir string) (list []TenantReader, err error) {
	path := filepath.Join(dataDir, auditorsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the auditors: %w", err)
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s does not hold a list of auditors: %w", path, err)
	}
	for _, a := range list {
		if !auditorName.MatchString(a.User) || len(a.Hash) != 64 || strings.Trim(a.Hash, "0123456789abcdef") != "" || a.Tenant == "" {
			return nil, fmt.Errorf("%s: %w: %.40q", path, ErrTenantReader, a.User)
		}
	}
	return list, nil
}

// SetTenantReader adds a tenant reader to a data directory, or replaces the one of that name. It takes
// effect at the engine's next start. Several processes must not call it at the same time.
func SetTenantReader(dataDir string, a TenantReader) error {
	return changeTenantReaders(dataDir, a.User, func(list []TenantReader) []TenantReader { return append(list, a) })
}

// RemoveTenantReader removes a tenant reader. It takes effect at the engine's next start. It returns
// storage.ErrNotFound if there is none of that name.
func RemoveTenantReader(dataDir, user string) error {
	list, err := TenantReaders(dataDir)
	if err == nil && !slices.ContainsFunc(list, func(a TenantReader) bool { return a.User == user }) {
		err = fmt.Errorf("auditor %.40q: %w", user, storage.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return changeTenantReaders(dataDir, user, func(list []TenantReader) []TenantReader { return list })
}

func changeTenantReaders(dataDir, user string, change func([]TenantReader) []TenantReader) error {
	list, err := TenantReaders(dataDir)
	if err != nil {
		return err
	}
	list = change(slices.DeleteFunc(list, func(a TenantReader) bool { return a.User == user }))
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dataDir, auditorsFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("keeping the auditors: %w", err)
	}
	return nil
}

// createReaderViews makes the views of every tenant reader anew, for the current tables.
func (e *Engine) createReaderViews(ctx context.Context, auditors []TenantReader) error {
	if len(auditors) == 0 {
		return nil
	}
	pool, err := conn.Open(ctx, e.dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := schema.Migrate(ctx, pool); err != nil {
		return err
	}
	for _, a := range auditors {
		for _, statement := range a.viewStatements(conn.DatabaseName) {
			if err := pool.Exec(ctx, statement); err != nil {
				return fmt.Errorf("making the views of auditor %s: %w", a.User, err)
			}
		}
	}
	return nil
}
