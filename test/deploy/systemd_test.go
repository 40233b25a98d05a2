package deploy_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
)

const unitDir = "deploy/systemd"

// unit is a unit file: sections, directives, and their values in order.
type unit map[string]map[string][]string

func loadUnits(t *testing.T) map[string]unit {
	t.Helper()
	units := map[string]unit{}
	for _, f := range files(t, unitDir, ".service") {
		units[filepath.Base(f)] = parseUnit(t, f)
	}
	return units
}

func parseUnit(t *testing.T, file string) unit {
	t.Helper()
	u, section := unit{}, ""
	for i, line := range strings.Split(read(t, file), "\n") {
		key, value, isPair := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
			u[section] = map[string][]string{}
		case !isPair || section == "":
			t.Errorf("%s:%d: %q is no directive of a section", file, i+1, line)
		default:
			u[section][key] = append(u[section][key], value)
		}
	}
	return u
}

// directives that the units may use; anything else is a slip of the pen, which
// systemd would only warn about.
var directives = map[string]string{
	"Unit": "Description Documentation After Wants StartLimitIntervalSec",
	"Service": "Type RemainAfterExit User DynamicUser EnvironmentFile Environment ExecStart ExecReload Restart RestartSec RestartPreventExitStatus KillMode TimeoutStopSec" +
		" StateDirectory StateDirectoryMode CacheDirectory RuntimeDirectory RuntimeDirectoryMode LimitNOFILE TimerSlackNSec CPUWeight IPAddressDeny IPAddressAllow" +
		" MemoryDenyWriteExecute NoNewPrivileges CapabilityBoundingSet AmbientCapabilities ProtectSystem ProtectHome PrivateTmp PrivateDevices" +
		" ProtectClock ProtectControlGroups ProtectHostname ProtectKernelLogs ProtectKernelModules ProtectKernelTunables ProtectProc" +
		" RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID LockPersonality SystemCallArchitectures SystemCallFilter" +
		" SystemCallErrorNumber UMask OOMPolicy",
	"Install": "WantedBy",
}

// confined is what every unit must say.
var confined = map[string]string{
	"NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict", "ProtectHome": "yes",
	"PrivateTmp": "yes", "PrivateDevices": "yes", "RestrictSUIDSGID": "yes", "UMask": "0077", "Restart": "on-failure", "IPAddressDeny": "any",
}

func TestUnitsAreConfined(t *testing.T) {
	units := loadUnits(t)
	want := []string{"countersign-admitter.service", "countersign-auditor.service", "countersign-clickhouse.service",
		"countersign-correlator.service", "countersign-gateway.service", "countersign-nats.service", "countersign-provision.service", "countersign.service"}
	if got := slices.Sorted(maps.Keys(units)); !slices.Equal(got, want) {
		t.Fatalf("units %q, want %q", got, want)
	}
	users := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^u\s+(\S+)`).FindAllStringSubmatch(read(t, unitDir, "sysusers.conf"), -1) {
		users[m[1]] = false
	}
	for name, u := range units {
		for section, keys := range u {
			for key, values := range keys {
				if !slices.Contains(strings.Fields(directives[section]), key) {
					t.Errorf("%s: [%s] has no %s", name, section, key)
				}
				if many := key == "Environment"; len(values) > 1 && !many {
					t.Errorf("%s: %s is there %d times", name, key, len(values))
				}
			}
		}
		s := u["Service"]
		for key, value := range confined {
			if got, there := s[key]; !there || got[0] != value {
				t.Errorf("%s: %s must be %q, is %q", name, key, value, got)
			}
		}
		if s["DynamicUser"] == nil {
			user := strings.Join(s["User"], "")
			if _, made := users[user]; !made || user == "" {
				t.Errorf("%s: sysusers.conf does not make its user %q", name, user)
			}
			users[user] = true
		}
		for _, other := range strings.Fields(strings.Join(slices.Concat(u["Unit"]["After"], u["Unit"]["Wants"]), " ")) {
			if _, there := units[other]; !there && other != "network-online.target" && other != "time-sync.target" {
				t.Errorf("%s: there is no %s", name, other)
			}
		}
		if waits := slices.Contains(strings.Fields(strings.Join(u["Unit"]["After"], " ")), "time-sync.target"); waits != (name == "countersign.service" || name == "countersign-nats.service") {
			t.Errorf("%s starts after the clock is set: %v", name, waits)
		}
	}
	for user, used := range users {
		if !used {
			t.Errorf("no unit runs as %s", user)
		}
	}
}

// TestUnitsFenced: a service that another instance has fenced off (exit code 3)
// must not come back at once, and one whose log cannot be trusted not at all.
func TestUnitsFenced(t *testing.T) {
	units := loadUnits(t)
	for _, name := range []string{"countersign-correlator.service", "countersign-auditor.service"} {
		if got := strings.Join(units[name]["Service"]["RestartSec"], ""); got != "15s" {
			t.Errorf("%s: RestartSec is %q", name, got)
		}
		if got := strings.Join(units[name]["Service"]["RestartPreventExitStatus"], ""); got != strconv.Itoa(daemon.ExitUntrustedLog) {
			t.Errorf("%s: RestartPreventExitStatus is %q", name, got)
		}
	}
	if got := strings.Join(units["countersign.service"]["Service"]["KillMode"], ""); got != "mixed" {
		t.Errorf("countersign.service: KillMode %q would stop its children behind its back", got)
	}
}

// `up` starts a child again that the kernel ended for want of memory.
func TestUnitOfUpOutlivesAChild(t *testing.T) {
	if got := strings.Join(loadUnits(t)["countersign.service"]["Service"]["OOMPolicy"], ""); got != "continue" {
		t.Errorf("OOMPolicy %q would stop all for the want of memory of one child", got)
	}
}

// TestUnitsTimerSlack: where every program has a unit of its own, those written in Go
// have the slack that `up` gives its children.
func TestUnitsTimerSlack(t *testing.T) {
	for name, u := range loadUnits(t) {
		want := "1ms"
		switch name {
		case "countersign.service", "countersign-clickhouse.service", "countersign-provision.service":
			want = "" // gives it itself, is not written in Go, is over at once
		}
		if got := strings.Join(u["Service"]["TimerSlackNSec"], ""); got != want {
			t.Errorf("%s: TimerSlackNSec is %q, want %q", name, got, want)
		}
	}
}

// TestWhoStandsBack: what follows from the log gets the share of busy processors
// that nice 5 gives it under `up`, 335 of 1024.
func TestWhoStandsBack(t *testing.T) {
	later := []string{"correlator", "auditor"}
	for name, u := range loadUnits(t) {
		want := ""
		if slices.ContainsFunc(later, func(s string) bool { return name == "countersign-"+s+".service" }) {
			want = "33" // of 100
		}
		if got := strings.Join(u["Service"]["CPUWeight"], ""); got != want {
			t.Errorf("%s: CPUWeight is %q, want %q", name, got, want)
		}
	}
	for name, service := range loadCompose(t).Services {
		want := 0
		if slices.Contains(later, name) {
			want = 340 // of 1024
		}
		if service.CPUShares != want {
			t.Errorf("compose: %s has cpu_shares %d, want %d", name, service.CPUShares, want)
		}
	}
}

// TestUnitCommands: flags and variables are those of the programs, and the
// environment files hold what make-secrets.sh puts there.
func TestUnitCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	shell(t, "sh", "make-secrets.sh", dir)
	const public = "countersign+0f2c81aa+AQIDBA=="
	ok(t, os.WriteFile(filepath.Join(dir, "checkpoint.pub"), []byte(public+"\n"), 0o600)) // countersign provision --keys
	for range 2 {
		shell(t, "sh", "make-secrets.sh", dir)
	}
	made := contents(t, dir)
	if got := strings.Count(made["gateway.env"], "COUNTERSIGN_PUBLIC_KEY="+public+"\n"); got != 1 {
		t.Errorf("gateway.env has the public key %d times:\n%s", got, made["gateway.env"])
	}
	if _, err := keys.Seed(dir, "manifest.key"); err != nil {
		t.Error(err)
	}
	conf, xml := read(t, natsConf), read(t, usersXML)
	for name, u := range loadUnits(t) {
		env := map[string]string{}
		for _, pair := range strings.Fields(strings.Join(u["Service"]["Environment"], " ")) {
			k, v, _ := strings.Cut(pair, "=")
			env[k] = v
		}
		for _, file := range u["Service"]["EnvironmentFile"] {
			text, there := made[filepath.Base(file)]
			if !there || filepath.Dir(file) != "/etc/countersign" {
				t.Errorf("%s: nothing makes %s", name, file)
			}
			for _, pair := range strings.Fields(text) {
				k, v, _ := strings.Cut(pair, "=")
				env[k] = v
			}
		}
		argv := strings.Fields(u["Service"]["ExecStart"][0])
		switch filepath.Base(argv[0]) {
		case "nats-server":
			consume(t, name, env, envReference, conf)
		case "clickhouse":
			consume(t, name, env, fromEnv, xml)
		default:
			consumeService(t, name, env, argv)
		}
		if len(env) > 0 {
			t.Errorf("%s: nobody reads %q", name, slices.Sorted(maps.Keys(env)))
		}
	}
}

// needs are what a program runs without, but not as the pages promise: a gateway that checks no receipts and
// signs no manifest.
var needs = map[string][]string{"gateway": {"COUNTERSIGN_PUBLIC_KEY", "COUNTERSIGN_GATEWAY_MANIFEST_KEY"}}

func checkNeeds(t *testing.T, name, program string, env map[string]string) {
	t.Helper()
	for _, setting := range needs[program] {
		if env[setting] == "" {
			t.Errorf("%s goes without %s", name, setting)
		}
	}
}

func consume(t *testing.T, name string, env map[string]string, refs *regexp.Regexp, text string) {
	t.Helper()
	for _, m := range refs.FindAllStringSubmatch(text, -1) {
		if env[m[1]] == "" {
			t.Errorf("%s goes without %s", name, m[1])
		}
		delete(env, m[1])
	}
}

// consumeService checks the command line of one of our programs, and takes what it reads out of env.
func consumeService(t *testing.T, name string, env map[string]string, argv []string) {
	t.Helper()
	program := filepath.Base(argv[0])
	if err := accepts(t, program, env, argv[1:]); err != nil {
		t.Errorf("%s: %q is refused: %v", name, argv, err)
	}
	checkNeeds(t, name, program, env)
	for k := range envOf(t, program) {
		delete(env, k)
	}
}

// TestUnitsVerify asks systemd itself, with programs that exist here.
func TestUnitsVerify(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	dir := t.TempDir()
	program := regexp.MustCompile(`(?m)^ExecStart=\S+`)
	args := []string{"verify", "--man=no"}
	for _, f := range files(t, unitDir, ".service") {
		to := filepath.Join(dir, filepath.Base(f))
		ok(t, os.WriteFile(to, []byte(program.ReplaceAllString(read(t, f), "ExecStart=/bin/true")), 0o644))
		args = append(args, to)
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	if err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestAPasswordIsChanged: as docs/operating.md says.
func TestAPasswordIsChanged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	shell(t, "sh", "make-secrets.sh", dir)
	old := contents(t, dir)
	shell(t, "sh", "-c", "cd "+dir+" && : >nats-auditor && : >clickhouse-owner && rm *.env *.dsn *.sha256")
	shell(t, "sh", "make-secrets.sh", dir)
	made := contents(t, dir)
	for name, users := range map[string][]string{"nats.env": {"nats-auditor", "nats-admitter"}, "auditor.env": {"nats-auditor", "nats-custodian", "clickhouse-owner"},
		"clickhouse.dsn": {"clickhouse-owner"}, "admitter.env": {"nats-admitter"}} {
		for _, user := range users {
			if password := strings.TrimSpace(made[user]); password == "" || !strings.Contains(made[name], password) {
				t.Errorf("%s lacks the password of %s", name, user)
			}
		}
	}
	for _, name := range []string{"nats-auditor", "clickhouse-owner", "clickhouse-owner.sha256", "nats-admitter", "clickhouse-readonly.sha256", "manifest.key"} {
		if changes := name == "nats-auditor" || strings.HasPrefix(name, "clickhouse-owner"); (made[name] != old[name]) != changes {
			t.Errorf("%s is as before: %t", name, !changes)
		}
	}
}

// TestAnotherTenantsPasswords: as docs/operating.md says, a password is made for an empty file, one that is there is
// kept, and both are in nats.env, also after another one was changed; only the owner reads them. A copy of an old file is none.
func TestAnotherTenantsPasswords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	shell(t, "sh", "make-secrets.sh", dir)
	shell(t, "sh", "-c", "cd "+dir+" && umask 022 && touch nats-globex-runtime && echo pOwn >nats-globex-gateway && cp nats-witness nats-witness.old && rm nats.env")
	shell(t, "sh", "make-secrets.sh", dir)
	if list := shell(t, "sh", "-c", "find "+dir+" -name 'nats-globex-*' -perm /077"); list != "" {
		t.Errorf("others read:\n%s", list)
	}
	before := contents(t, dir)
	made := strings.TrimSpace(before["nats-globex-runtime"])
	if made == "" {
		t.Error("no password was made")
	}
	shell(t, "sh", "-c", "cd "+dir+" && : >nats-auditor && rm *.env *.dsn *.sha256")
	shell(t, "sh", "make-secrets.sh", dir)
	after := contents(t, dir)
	for file, line := range map[string]string{"nats.env": "COUNTERSIGN_PW_GLOBEX_GATEWAY=pOwn", "gateway-globex.env": "COUNTERSIGN_NATS_PASSWORD=pOwn"} {
		if !slices.Contains(strings.Split(after[file], "\n"), line) {
			t.Errorf("%s lacks %s:\n%s", file, line, after[file])
		}
	}
	if !slices.Contains(strings.Split(after["nats.env"], "\n"), "COUNTERSIGN_PW_GLOBEX_RUNTIME="+made) || strings.Contains(after["nats.env"], "OLD") {
		t.Errorf("nats.env:\n%s", after["nats.env"])
	}
	if strings.Count(after["nats.env"], "\n") != strings.Count(before["nats.env"], "\n") || after["gateway.env"] != before["gateway.env"] {
		t.Error("the first tenant's are others")
	}
	if after["nats-auditor"] == before["nats-auditor"] || after["nats-globex-runtime"] != before["nats-globex-runtime"] {
		t.Error("another password was changed than the auditor's")
	}
}

// TestUnitFilesInDocs: docs/operating.md says where each file goes that a unit reads, and whose it is.
func TestUnitFilesInDocs(t *testing.T) {
	owners, said := map[string]string{}, map[string]bool{} // by folder
	for _, row := range rows(t, "docs/operating.md", "   | what | where | owner, mode |") {
		for _, folder := range codes(row[1]) {
			owners[folder], _, _ = strings.Cut(row[2], ", ")
		}
	}
	path := regexp.MustCompile(`/(?:etc|usr)/[^\s]+`)
	for name, u := range loadUnits(t) {
		if name == "countersign.service" { // reads none
			continue
		}
		s := u["Service"]
		for _, file := range path.FindAllString(strings.Join(slices.Concat(s["EnvironmentFile"], s["Environment"], s["ExecStart"]), " "), -1) {
			if strings.HasPrefix(file, "/etc/countersign/keys/") && filepath.Ext(file) == "" {
				file += "/*" // a folder
			}
			folder := filepath.Dir(file)
			want := "root"
			if strings.HasPrefix(folder, "/etc/countersign/keys/") {
				want = s["User"][0]
			}
			if said[folder] = true; owners[folder] != want {
				t.Errorf("%s reads %s, which %s owns: the page says %q", name, file, want, owners[folder])
			}
		}
	}
	for folder := range owners {
		if !said[folder] && folder != "/etc/systemd/system" {
			t.Errorf("no unit reads %s", folder)
		}
	}
}
