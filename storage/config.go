package storage

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// Files in a data directory. All are readable by their owner only; config.xml
// and users.xml are written anew at every start.
const (
	configFile = "config.xml"
	usersFile  = "users.xml"
	portFile   = "port"
	dataFolder = "data"
)

// engineConfig is what the engine's two configuration files say.
type engineConfig struct {
	Dir                    string // the data directory, absolute
	Host                   string
	TCPPort, HTTPPort      int
	MaxMemory              int64
	Database               string
	Owner, OwnerHash       string
	Readonly, ReadonlyHash string
	Embedded               bool
}

// Path joins names to the data directory.
func (c engineConfig) Path(names ...string) string {
	return filepath.Join(append([]string{c.Dir}, names...)...)
}

var configTemplates = template.Must(template.New("").Funcs(template.FuncMap{"x": xmlText}).Parse(`
{{- define "config.xml" -}}
<clickhouse>
  <users_config>{{.Path "users.xml" | x}}</users_config>
  <user_directories><users_xml><path>{{.Path "users.xml" | x}}</path></users_xml></user_directories>
  <timezone>UTC</timezone>
  <max_server_memory_usage>{{.MaxMemory}}</max_server_memory_usage>
  <mark_cache_size>67108864</mark_cache_size>
  <table_engines_require_grant>true</table_engines_require_grant>
  <send_crash_reports><enabled>false</enabled></send_crash_reports>
{{- if not .Embedded}}
  <path>{{.Path "data" | x}}/</path>
  <tmp_path>{{.Path "data" "tmp" | x}}/</tmp_path>
  <listen_host>{{.Host | x}}</listen_host>
  <tcp_port>{{.TCPPort}}</tcp_port>
{{- if .HTTPPort}}
  <http_port>{{.HTTPPort}}</http_port>
{{- end}}
  <default_profile>default</default_profile>
  <mlock_executable>false</mlock_executable>
  <logger><console>true</console><level>warning</level></logger>
{{- end}}
</clickhouse>
{{end}}

{{- define "users.xml" -}}
<clickhouse>
  <profiles>
    <default>
      <query_profiler_real_time_period_ns>0</query_profiler_real_time_period_ns>
      <query_profiler_cpu_time_period_ns>0</query_profiler_cpu_time_period_ns>
      <poll_interval>1</poll_interval>
    </default>
    <reading>
      <readonly>1</readonly>
      <poll_interval>1</poll_interval>
      <constraints>
        <max_execution_time><changeable_in_readonly/></max_execution_time>
        <max_block_size><changeable_in_readonly/></max_block_size>
      </constraints>
    </reading>
{{- if .Embedded}}
    <closed><max_sessions_for_user>1</max_sessions_for_user></closed>
{{- end}}
  </profiles>
  <quotas><default/></quotas>
  <users>
{{- if .Embedded}}
    <!-- The engine's own session, of which there can be only one; see storage.StartEngine. -->
    <default>
      <no_password/>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>closed</profile>
      <quota>default</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT SELECT ON system.numbers</query>
      </grants>
    </default>
{{- end}}
    <{{.Owner}}>
      <password_sha256_hex>{{.OwnerHash}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
      <grants>
        <query>GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, TRUNCATE, OPTIMIZE, CHECK, SYSTEM MERGES ON {{.Database}}.*</query>
        <query>GRANT SHOW, SELECT ON system.*</query>
        <query>GRANT TABLE ENGINE ON MergeTree, TABLE ENGINE ON ReplacingMergeTree, TABLE ENGINE ON AggregatingMergeTree, TABLE ENGINE ON SummingMergeTree, TABLE ENGINE ON Memory</query>
        <query>GRANT CREATE TEMPORARY TABLE, KILL QUERY ON *.*</query>
      </grants>
    </{{.Owner}}>
    <{{.Readonly}}>
      <password_sha256_hex>{{.ReadonlyHash}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>reading</profile>
      <quota>default</quota>
      <grants><query>GRANT SHOW, SELECT ON {{.Database}}.*</query></grants>
    </{{.Readonly}}>
  </users>
</clickhouse>
{{end}}`))

func xmlText(s string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

// write makes the configuration files and the data folder.
func (c engineConfig) write() error {
	if err := os.MkdirAll(c.Path(dataFolder), 0o700); err != nil {
		return fmt.Errorf("making the engine's data directory: %w", err)
	}
	for _, name := range []string{configFile, usersFile} {
		var b bytes.Buffer
		if err := configTemplates.ExecuteTemplate(&b, name, c); err != nil {
			return fmt.Errorf("writing the engine's %s: %w", name, err)
		}
		if err := writeFileAtomically(c.Path(name), b.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the engine's %s: %w", name, err)
		}
	}
	return nil
}

// sqlString quotes a string literal.
func sqlString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
