package inspect

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/storage/engine"
)

// auditDir is the directory where 'up' keeps the configuration of its ClickHouse engine.
type auditDir struct {
	DataDir string `help:"Data directory of 'up' (default: its own)." env:"COUNTERSIGN_DATA" placeholder:"DIR"`
}

func (d auditDir) engine() (string, error) {
	if d.DataDir == "" {
		d.DataDir = target.DefaultDataDir()
	}
	dir := filepath.Join(d.DataDir, "clickhouse")
	if _, err := os.Stat(dir); err != nil {
		return "", ui.UsageError{Err: fmt.Errorf("%s is no data directory of `countersign up`: %w; for a ClickHouse of your own give --sql", d.DataDir, err)}
	}
	return dir, nil
}

type auditGrantCmd struct {
	auditDir
	Tenant    string `help:"The tenant whose evidence it is." required:""`
	User      string `help:"Name of the auditor: 3 to 32 lower-case letters, digits and underscores." required:""`
	SQL       bool   `name:"sql" help:"Change nothing; print the statements for a ClickHouse of your own."`
	Database  string `help:"Name of the database there." default:"countersign"`
	ReadyFile string `help:"Ready file of the running 'up', to print the whole DSN." env:"COUNTERSIGN_READY_FILE" placeholder:"FILE"`
	JSON      bool   `name:"json" help:"Print JSON."`
}

// grant is a granted access in the JSON output. Its password is kept nowhere else.
type grant struct {
	User       string   `json:"user"`
	Tenant     string   `json:"tenant"`
	Database   string   `json:"database"`
	Password   string   `json:"password"`
	DSN        string   `json:"dsn,omitempty"`
	Statements []string `json:"statements,omitempty"` // with --sql
}

func (c *auditGrantCmd) Run(io ui.Stdio) error {
	a, password, err := engine.NewTenantReader(c.User, c.Tenant)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	made := grant{User: a.User, Tenant: a.Tenant, Database: a.Database(), Password: password}
	if c.SQL {
		if c.JSON {
			made.Statements = a.Statements(c.Database)
			return ui.WriteJSON(io, made)
		}
		for _, s := range a.Statements(c.Database) {
			fmt.Fprintf(io.Out, "%s;\n", s)
		}
		fmt.Fprintf(io.Err, "The password of %s, which is kept nowhere else: %s\nThe database of %[1]s: %[3]s\n", a.User, password, a.Database())
		return nil
	}
	dir, err := c.engine()
	if err != nil {
		return err
	}
	if err := engine.SetTenantReader(dir, a); err != nil {
		return err
	}
	if made.DSN, err = c.dsn(a, password); err != nil {
		return err
	}
	if c.JSON {
		return ui.WriteJSON(io, made)
	}
	fmt.Fprintln(io.Out, made.DSN)
	fmt.Fprintf(io.Err, "Auditor %s may read tenant %s from the next start of `countersign up` on, at this DSN. The password is kept nowhere else.\n", a.User, a.Tenant)
	return nil
}

// dsn is the auditor's DSN, with the running engine's port if that is known.
func (c *auditGrantCmd) dsn(a engine.TenantReader, password string) (string, error) {
	host := "127.0.0.1:PORT"
	if c.ReadyFile != "" {
		r, err := target.ReadReady(c.ReadyFile)
		if err != nil {
			return "", err
		}
		u, err := url.Parse(r.ClickHouseDSN)
		if err != nil {
			return "", errors.New("the ready file has no ClickHouse DSN")
		}
		host = u.Host
	}
	return fmt.Sprintf("clickhouse://%s:%s@%s/%s", a.User, password, host, a.Database()), nil
}

type auditRevokeCmd struct {
	auditDir
	User string `help:"Name of the auditor." required:""`
}

func (c *auditRevokeCmd) Run(io ui.Stdio) error {
	dir, err := c.engine()
	if err != nil {
		return err
	}
	if err := engine.RemoveTenantReader(dir, c.User); err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%s can log in no more from the next start of `countersign up` on\n", c.User)
	return nil
}

type auditAuditorsCmd struct {
	auditDir
	JSON bool `name:"json" help:"Print one JSON object for each auditor."`
}

func (c *auditAuditorsCmd) Run(io ui.Stdio) error {
	dir, err := c.engine()
	if err != nil {
		return err
	}
	list, err := engine.TenantReaders(dir)
	if err != nil {
		return err
	}
	for _, a := range list {
		if c.JSON {
			if err := ui.WriteJSON(io, map[string]string{"user": a.User, "tenant": a.Tenant, "database": a.Database()}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(io.Out, "%s %s\n", ui.Fill(ui.Clean(a.User, 200), 32), ui.Clean(a.Tenant, 100))
	}
	return nil
}
