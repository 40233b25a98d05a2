package engine

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// Files in a data directory. Only their owner can read them; config.xml and users.xml are
// written anew at every start.
const (
	configFile = "config.xml"
	usersFile  = "users.xml"
	portFile   = "port"
	dataFolder = "data"
	userFolder = dataFolder + "/user_files" // a server's default; empty
)

// engineConfig is the content of the engine's two configuration files.
type engineConfig struct {
	Dir                    string // the data directory, absolute
	Host                   string
	TCPPort, HTTPPort      int
	MaxMemory              int64
	KeepFree               int64 // free disk space to keep, in bytes
	Database               string
	Owner, OwnerHash       string
	Readonly, ReadonlyHash string
	Embedded               bool
	NobodyHash             string
	Auditors               []TenantReader
	Limits                 struct{ Seconds, Memory, Queries int } // of a tenant reader
}

// Path joins names to the path of the data directory.
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
  <access_control_improvements>
    <users_without_row_policies_can_read_rows>true</users_without_row_policies_can_read_rows>
    <select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>
    <select_from_information_schema_requires_grant>true</select_from_information_schema_requires_grant>
    <settings_constraints_replace_previous>true</settings_constraints_replace_previous>
  </access_control_improvements>
  <memory_worker_period_ms>500</memory_worker_period_ms>
  <send_crash_reports><enabled>false</enabled></send_crash_reports>
{{- if .Embedded}}
  <background_streaming_schedule_pool_size>0</background_streaming_schedule_pool_size>
  <merge_tree><merge_selector_base>16</merge_selector_base></merge_tree>
{{- end}}
  <storage_configuration><disks><default><keep_free_space_bytes>{{.KeepFree}}</keep_free_space_bytes></default></disks></storage_configuration>
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

{{- /* query_plan_merge_expressions costs half of the planning of a query that names a view of record_fields, and gains nothing. */}}
{{- define "users.xml" -}}
<clickhouse>
  <profiles>
    <default>
      <query_profiler_real_time_period_ns>0</query_profiler_real_time_period_ns>
      <query_profiler_cpu_time_period_ns>0</query_profiler_cpu_time_period_ns>
      <query_plan_merge_expressions>0</query_plan_merge_expressions>
      <poll_interval>1</poll_interval>
    </default>
    <reading>
      <readonly>1</readonly>
      <query_plan_merge_expressions>0</query_plan_merge_expressions>
      <poll_interval>1</poll_interval>
      <constraints>
        <max_execution_time><changeable_in_readonly/></max_execution_time>
        <max_block_size><changeable_in_readonly/></max_block_size>
      </constraints>
    </reading>
    <auditing>
      <readonly>1</readonly>
      <max_execution_time>{{.Limits.Seconds}}</max_execution_time>
      <max_memory_usage>{{.Limits.Memory}}</max_memory_usage>
      <max_concurrent_queries_for_user>{{.Limits.Queries}}</max_concurrent_queries_for_user>
      <use_skip_indexes>0</use_skip_indexes>
      <query_plan_merge_expressions>0</query_plan_merge_expressions>
      <poll_interval>1</poll_interval>
      <constraints>
        <max_execution_time><min>1</min><max>{{.Limits.Seconds}}</max><changeable_in_readonly/></max_execution_time>
        <max_block_size><changeable_in_readonly/></max_block_size>
      </constraints>
    </auditing>
{{- if .Embedded}}
    <closed><max_sessions_for_user>1</max_sessions_for_user></closed>
{{- end}}
  </profiles>
  <quotas><default/></quotas>
  <users>
{{- if .Embedded}}
    <!-- The engine's own session, of which there can be only one; see engine.Start. -->
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
{{- range .Auditors}}
        <query>GRANT SHOW, SELECT, CREATE DATABASE, CREATE VIEW, DROP VIEW ON {{.Database}}.*</query>
        <query>GRANT SET DEFINER ON {{.Definer}}</query>
{{- end}}
      </grants>
    </{{.Owner}}>
    <{{.Readonly}}>
      <password_sha256_hex>{{.ReadonlyHash}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>reading</profile>
      <quota>default</quota>
      <grants>
        <query>GRANT SHOW, SELECT ON {{.Database}}.*</query>
        <query>GRANT SHOW ROW POLICIES ON *.*</query>
        <query>GRANT SELECT ON system.row_policies</query>
      </grants>
    </{{.Readonly}}>
{{- $c := .}}
{{- range .Auditors}}
    <{{.User}}>
      <password_sha256_hex>{{.Hash}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>auditing</profile>
      <quota>default</quota>
      <grants><query>GRANT SELECT ON {{.Database}}.*</query></grants>
    </{{.User}}>
    <!-- The views of {{.User}} run as this one. The password was thrown away. -->
    <{{.Definer}}>
      <password_sha256_hex>{{$c.NobodyHash}}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>auditing</profile>
      <quota>default</quota>
      <grants>
{{- range .RowFilters}}
        <query>GRANT SELECT ON {{$c.Database}}.{{.Table}}</query>
{{- end}}
      </grants>
      <databases><{{$c.Database}}>
{{- range .RowFilters}}{{if .Rows}}
        <{{.Table}}><filter>{{.Rows | x}}</filter></{{.Table}}>
{{- end}}{{end}}
      </{{$c.Database}}></databases>
    </{{.Definer}}>
{{- end}}
  </users>
</clickhouse>
{{end}}`))

func xmlText(s string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

// write writes the configuration files and makes the folders of the data.
func (c engineConfig) write() error {
	if err := os.MkdirAll(c.Path(userFolder), 0o700); err != nil {
		return fmt.Errorf("making the engine's data directory: %w", err)
	}
	for _, name := range []string{configFile, usersFile} {
		var b bytes.Buffer
		if err := configTemplates.ExecuteTemplate(&b, name, c); err != nil {
			return fmt.Errorf("writing the engine's %s: %w", name, err)
		}
		if err := atomicfile.Write(c.Path(name), b.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the engine's %s: %w", name, err)
		}
	}
	return nil
}
