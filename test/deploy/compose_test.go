package deploy_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// compose is the part of the Compose file format that compose.yaml uses; any
// other key is an error.
type compose struct {
	Name      string                           `yaml:"name"`
	Container any                              `yaml:"x-container"`
	Check     any                              `yaml:"x-check"`
	Later     int                              `yaml:"x-later"`
	Services  map[string]composeService        `yaml:"services"`
	Secrets   map[string]struct{ File string } `yaml:"secrets"`
}

type composeService struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	User        string
	NetworkMode string   `yaml:"network_mode"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Restart     string
	Logging     any
	Entrypoint  []string
	Command     []string
	Environment map[string]string
	Volumes     []struct {
		Type, Source, Target string
		ReadOnly             bool `yaml:"read_only"`
		Bind                 struct {
			CreateHostPath *bool `yaml:"create_host_path"`
		}
	}
	Tmpfs       []string
	Secrets     []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Ports       []string
	Ulimits     map[string]int
	CPUShares   int    `yaml:"cpu_shares"`
	StopGrace   string `yaml:"stop_grace_period"`
	Healthcheck *struct {
		Test              []string
		Interval, Timeout string
		Retries           int
		StartPeriod       string `yaml:"start_period"`
	}
}

func loadCompose(t *testing.T) compose {
	t.Helper()
	var c compose
	dec := yaml.NewDecoder(strings.NewReader(read(t, "deploy/compose.yaml")))
	dec.KnownFields(true)
	ok(t, dec.Decode(&c))
	return c
}

func TestComposeIsConfined(t *testing.T) {
	c := loadCompose(t)
	if got, want := slices.Sorted(maps.Keys(c.Services)), []string{"admitter", "auditor", "clickhouse", "correlator", "gateway", "nats", "provision"}; !slices.Equal(got, want) {
		t.Fatalf("services %q, want %q", got, want)
	}
	for name, s := range c.Services {
		for what, holds := range map[string]bool{
			"runs as a user without rights": s.User == "10001:10001",
			"has a read-only root":          s.ReadOnly,
			"has no capability":             slices.Equal(s.CapDrop, []string{"ALL"}),
			"gains no privilege":            slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}),
			"is on the machine's loopback":  s.NetworkMode == "host" && len(s.Ports) == 0,
			"is pinned":                     s.Image != "" && !strings.HasSuffix(s.Image, ":latest"),
			"has a health check or ends":    s.Healthcheck != nil || name == "provision",
		} {
			if !holds {
				t.Errorf("%s: not true that it %s", name, what)
			}
		}
		for k, v := range s.Environment {
			host, _, err := net.SplitHostPort(strings.TrimPrefix(v, "nats://"))
			if strings.HasSuffix(k, "_HTTP") && (err != nil || !net.ParseIP(host).IsLoopback()) {
				t.Errorf("%s: %s=%s is not a loopback address", name, k, v)
			}
			if strings.Contains(strings.ToLower(k), "password") {
				t.Errorf("%s: %s stands in the file; it belongs into a secret", name, k)
			}
		}
		for dep, d := range s.DependsOn {
			on, known := c.Services[dep]
			switch {
			case !known:
				t.Errorf("%s depends on %s, which is not there", name, dep)
			case d.Condition == "service_healthy" && on.Healthcheck == nil:
				t.Errorf("%s waits for the health of %s, which has no check", name, dep)
			case d.Condition != "service_healthy" && d.Condition != "service_completed_successfully":
				t.Errorf("%s waits for %s to be %q", name, dep, d.Condition)
			}
		}
	}
}

// TestComposeFilesExist: whatever is mounted is in the repository, is a secret
// that the documented commands make, or is a folder for state.
func TestComposeFilesExist(t *testing.T) {
	c := loadCompose(t)
	made := makeSecrets(t)
	for _, key := range []string{"receipt.key", "receipt.json", "checkpoint.key", "checkpoint.pub", "master.key"} { // countersign provision --keys
		made[key] = true
	}
	used := map[string]bool{}
	for name, s := range c.Services {
		if s.Build.Dockerfile != "" {
			if _, err := os.Stat(path("deploy", s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, v := range s.Volumes {
			_, err := os.Stat(path("deploy", v.Source))
			state := strings.HasPrefix(v.Source, "./state/")
			switch {
			case state && (v.Bind.CreateHostPath == nil || *v.Bind.CreateHostPath || v.ReadOnly):
				t.Errorf("%s: %s must be writable and must not be made by Docker, which would make it root's", name, v.Source)
			case !state && (err != nil || !v.ReadOnly):
				t.Errorf("%s: %s must exist (%v) and be read-only", name, v.Source, err)
			}
		}
		for _, secret := range s.Secrets {
			used[secret] = true
			if _, declared := c.Secrets[secret]; !declared {
				t.Errorf("%s uses the secret %s, which is not declared", name, secret)
			}
		}
		for _, ref := range regexp.MustCompile(`/run/secrets/([^ "]+)`).FindAllStringSubmatch(strings.Join(append(s.Entrypoint, s.Command...), " "), -1) {
			if !slices.Contains(s.Secrets, ref[1]) {
				t.Errorf("%s reads the secret %s without having it", name, ref[1])
			}
		}
	}
	for name, secret := range c.Secrets {
		if !used[name] {
			t.Errorf("nobody uses the secret %s", name)
		}
		if file := strings.TrimPrefix(secret.File, "./secrets/"); file != name || !made[file] {
			t.Errorf("nothing makes the secret %s (%s)", name, secret.File)
		}
	}
}

// TestComposeKeysAreApart: no service holds a key that is another's alone.
func TestComposeKeysAreApart(t *testing.T) {
	owners := map[string][]string{
		"receipt.key": {"admitter"}, "checkpoint.key": {"auditor"}, "master.key": {"admitter", "auditor", "correlator"}, "clickhouse.dsn": {"auditor"},
		"manifest.key": {"gateway"},
	}
	c := loadCompose(t)
	for key, want := range owners {
		var got []string
		for name, s := range c.Services {
			if slices.Contains(s.Secrets, key) {
				got = append(got, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s is with %q, want %q", key, got, want)
		}
	}
}

// TestComposeCommands: flags and variables are those of the programs.
func TestComposeCommands(t *testing.T) {
	conf, users := read(t, natsConf), read(t, usersXML)
	for name, s := range loadCompose(t).Services {
		env, argv := unwrapSecrets(t, slices.Concat(s.Entrypoint, s.Command))
		maps.Copy(env, s.Environment)
		switch filepath.Base(argv[0]) {
		case "nats-server":
			consume(t, name, env, envReference, conf)
		case "clickhouse":
			consume(t, name, env, fromEnv, users)
		default:
			consumeService(t, name, env, argv)
		}
		if len(env) > 0 {
			t.Errorf("%s: nobody reads %q", name, slices.Sorted(maps.Keys(env)))
		}
	}
}

// unwrapSecrets takes with-secrets apart: what it sets and the command behind.
func unwrapSecrets(t *testing.T, argv []string) (env map[string]string, command []string) {
	t.Helper()
	env = map[string]string{}
	if len(argv) == 0 || filepath.Base(argv[0]) != "with-secrets" {
		t.Fatalf("%q gets no secrets", argv)
	}
	end := slices.Index(argv, "--")
	for _, pair := range argv[1:end] {
		name, file, _ := strings.Cut(pair, "=")
		env[name] = file
	}
	return env, argv[end+1:]
}

// A service in a container has as long to stop as its unit gives it.
func TestComposeLetsServicesStop(t *testing.T) {
	c, units := loadCompose(t), loadUnits(t)
	for _, name := range []string{"admitter", "correlator", "auditor", "gateway"} {
		if got, want := c.Services[name].StopGrace, strings.Join(units["countersign-"+name+".service"]["Service"]["TimeoutStopSec"], ""); got != want {
			t.Errorf("%s: %q, its unit has %q", name, got, want)
		}
	}
}
