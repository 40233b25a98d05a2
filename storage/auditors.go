package storage

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
)

// Auditor is a user of a managed engine who may read one tenant's rows, and
// nothing else.
//
// An auditor has a database of views of their own, with the names of the tables,
// and no right to the tables: with it the primary index of a table could be read
// (mergeTreeIndex), and in it the names of other tenants' sessions, whatever the
// row policies say. The views run as a second user, whom nobody can log in as and
// whom the row policies bind; conditions in the views alone would be no barrier,
// because an auditor's own conditions may be evaluated before them.
type Auditor struct {
	User   string `json:"user"`
	Tenant string `json:"tenant"`
	Hash   string `json:"password_sha256_hex"`
}

// Limits of an auditor's query, which the auditor may lower and not raise.
const (
	auditorSeconds = 120
	auditorMemory  = 1 << 30 // bytes
	auditorQueries = 4       // at a time
)

// auditorsFile keeps the auditors of a data directory.
const auditorsFile = "auditors.json"

// ErrAuditor says that there cannot be such an auditor.
var ErrAuditor = errors.New("not an auditor")

// A name stands as an element in users.xml, and as an identifier in statements.
var auditorName = regexp.MustCompile(`^[a-z][a-z0-9_]{2,31}$`)

// auditorTables lists what an auditor may read, and which rows of it: $ stands
// for the tenant, and no condition for all. Tree hashes and checkpoints belong to
// no tenant; without them nobody could verify. The keys that decisions are
// signed with are public, and needed for the same; what says that texts of the
// tenant's records expired is, too.
var auditorTables = []struct{ name, rows string }{
	{"evidence", "tenant = $ OR (tenant = '' AND kind = 'control' AND (endsWith(subject, '.key') OR endsWith(subject, '.key_retired') OR concerns = $))"},
	{"evidence_chain", "tenant = $"},
	{"decisions", "tenant = $"},
	{"calls", "tenant = $"},
	{"findings", "tenant = $"},
	{"approvals", "tenant = $"},
	{"redactions", "tenant = $"},
	{"changes", "tenant = $"},
	{"tree_nodes", ""},
	{"tree_hashes", ""},
	{"checkpoints", ""},
}

// AuditorTables lists the tables and views that an auditor may read.
func AuditorTables() (names []string) {
	for _, t := range auditorTables {
		names = append(names, t.name)
	}
	return append(names, "leaf_hashes")
}

// auditorFilter is one row policy.
type auditorFilter struct{ Table, Rows string }

// RowFilters are the row policies of the user that an auditor's views run as.
func (a Auditor) RowFilters() (list []auditorFilter) {
	for _, t := range auditorTables {
		list = append(list, auditorFilter{t.name, strings.ReplaceAll(t.rows, "$", sqlString(a.Tenant))})
	}
	return list
}

// Database holds the auditor's views.
func (a Auditor) Database() string { return "audit_" + a.User }

// Definer is the user that the views run as.
func (a Auditor) Definer() string { return "of_" + a.User }

// viewStatements are the statements that make the auditor's database.
func (a Auditor) viewStatements(database string) []string {
	list := []string{"CREATE DATABASE IF NOT EXISTS " + a.Database()}
	for _, t := range auditorTables {
		list = append(list, fmt.Sprintf("DROP VIEW IF EXISTS %s.%s", a.Database(), t.name), fmt.Sprintf("CREATE VIEW %s.%s DEFINER = %s SQL SECURITY DEFINER AS SELECT * FROM %s.%[2]s",
			a.Database(), t.name, a.Definer(), database))
	}
	// The hashes of all records, and nothing else of them: proofs need them.
	return append(list, fmt.Sprintf("DROP VIEW IF EXISTS %s.leaf_hashes", a.Database()),
		fmt.Sprintf("CREATE VIEW %s.leaf_hashes DEFINER = CURRENT_USER SQL SECURITY DEFINER AS SELECT shard, seq, record_hash FROM %s.evidence", a.Database(), database))
}

// NewAuditor makes an auditor and the password, which is kept nowhere.
func NewAuditor(user, tenant string) (a Auditor, password string, err error) {
	switch {
	case !auditorName.MatchString(user) || strings.HasPrefix(user, "of_") || user == OwnerUser || user == ReadonlyUser || user == "default":
		return a, "", fmt.Errorf("%w: the name %.40q: use 3 to 32 lower-case letters, digits and underscores, not beginning with of_, and none of the engine's own users", ErrAuditor, user)
	case tenant == "" || strings.ContainsFunc(tenant, func(r rune) bool { return r < ' ' || r == 0xfffd }):
		return a, "", fmt.Errorf("%w: the tenant is empty or has control characters", ErrAuditor)
	}
	password = newPassword()
	return Auditor{User: user, Tenant: tenant, Hash: passwordHash(password)}, password, nil
}

// Statements make an auditor on a server of one's own, run by a user with access
// management. Repeating them changes password and tenant, and is needed when a new
// version has changed the tables.
func (a Auditor) Statements(database string) []string {
	list := []string{fmt.Sprintf("CREATE USER OR REPLACE %s IDENTIFIED WITH no_password HOST NONE", a.Definer())}
	for _, f := range a.RowFilters() {
		list = append(list, fmt.Sprintf("GRANT SELECT ON %s.%s TO %s", database, f.Table, a.Definer()))
		if f.Rows != "" {
			list = append(list, fmt.Sprintf("CREATE ROW POLICY OR REPLACE %s ON %s.%s USING %s TO %[1]s", a.Definer(), database, f.Table, f.Rows))
		}
	}
	list = append(list, a.viewStatements(database)...)
	return append(list,
		fmt.Sprintf("CREATE USER OR REPLACE %s IDENTIFIED WITH sha256_hash BY '%s' SETTINGS readonly = 1, max_execution_time = %d MIN 1 MAX %[3]d CHANGEABLE_IN_READONLY, max_memory_usage = %d, max_concurrent_queries_for_user = %d",
			a.User, a.Hash, auditorSeconds, auditorMemory, auditorQueries),
		fmt.Sprintf("GRANT SELECT ON %s.* TO %s", a.Database(), a.User))
}

// Auditors lists the auditors of a data directory.
func Auditors(dataDir string) (list []Auditor, err error) {
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
			return nil, fmt.Errorf("%s: %w: %.40q", path, ErrAuditor, a.User)
		}
	}
	return list, nil
}

// SetAuditor adds an auditor to a data directory, or changes the one of that name.
// It counts from the engine's next start. Not for several processes at a time.
func SetAuditor(dataDir string, a Auditor) error {
	return changeAuditors(dataDir, a.User, func(list []Auditor) []Auditor { return append(list, a) })
}

// RemoveAuditor takes an auditor away, from the engine's next start on. ErrNotFound
// when there is none of that name.
func RemoveAuditor(dataDir, user string) error {
	list, err := Auditors(dataDir)
	if err == nil && !slices.ContainsFunc(list, func(a Auditor) bool { return a.User == user }) {
		err = fmt.Errorf("auditor %.40q: %w", user, ErrNotFound)
	}
	if err != nil {
		return err
	}
	return changeAuditors(dataDir, user, func(list []Auditor) []Auditor { return list })
}

func changeAuditors(dataDir, user string, change func([]Auditor) []Auditor) error {
	list, err := Auditors(dataDir)
	if err != nil {
		return err
	}
	list = change(slices.DeleteFunc(list, func(a Auditor) bool { return a.User == user }))
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFileAtomically(filepath.Join(dataDir, auditorsFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("keeping the auditors: %w", err)
	}
	return nil
}

// createAuditorViews gives every auditor of a managed engine their views, of the tables as
// they are now.
func (e *Engine) createAuditorViews(ctx context.Context, auditors []Auditor) error {
	if len(auditors) == 0 {
		return nil
	}
	db, err := Open(ctx, e.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrate(ctx); err != nil {
		return err
	}
	for _, a := range auditors {
		for _, statement := range a.viewStatements(DatabaseName) {
			if err := db.conn.Exec(ctx, statement); err != nil {
				return fmt.Errorf("making the views of auditor %s: %w", a.User, err)
			}
		}
	}
	return nil
}

// IsTenantView reports whether this database shows the rows of one tenant only, as an
// auditor of one sees it: there evidence is a view.
func (db *DB) IsTenantView(ctx context.Context) (bool, error) {
	var engine string
	err := db.conn.QueryRow(ctx, "SELECT any(engine) FROM system.tables WHERE database = currentDatabase() AND name = 'evidence'").Scan(&engine)
	if err != nil {
		return false, db.queryError(err)
	}
	return strings.HasSuffix(engine, "View"), nil
}
