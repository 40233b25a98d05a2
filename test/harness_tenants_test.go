package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// deployment is a nats-server with the configuration in deploy/nats and another tenant as in
// docs/operating.md, with an admitter and a correlator.
type deployment struct {
	url, keys string
	services  map[string]*proc
}

func deploy(t *testing.T, tenant string) deployment {
	t.Helper()
	needPrograms(t)
	conf, err := os.ReadFile(filepath.Join(root, "deploy", "nats", "nats-server.conf"))
	ok(t, err)
	// The passwords stand in the environment there. This process has one environment for all its tests.
	text := regexp.MustCompile(`password: \$([A-Z0-9_]+)`).ReplaceAllString(withTenant(string(conf), tenant), `password: "pw-$1"`)
	file := filepath.Join(t.TempDir(), "nats-server.conf")
	ok(t, os.WriteFile(file, []byte(text), 0o600))
	opts, err := natsd.ProcessConfigFile(file)
	ok(t, err)
	opts.Port, opts.StoreDir, opts.NoSigs, opts.NoLog = -1, t.TempDir(), true, true
	srv, err := natsd.NewServer(opts)
	ok(t, err)
	go srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not accept connections")
	}
	d := deployment{srv.ClientURL(), filepath.Join(t.TempDir(), "keys"), map[string]*proc{}}
	d.run(t, "provisioner", "provision", "--keys", d.keys, "--streams").want(t, 0)
	for _, name := range []string{"admitter", "correlator"} {
		p := serve(t, name, filepath.Join(t.TempDir(), name+".log"), "COUNTERSIGN_NATS_URL="+d.url, "COUNTERSIGN_NATS_PASSWORD="+passwordOf(name), "COUNTERSIGN_KEYS="+d.keys)
		d.services[name] = p
		t.Cleanup(func() {
			select {
			case <-p.done: // the test has stopped it itself
				return
			default:
			}
			p.signal(syscall.SIGTERM)
			if err := p.wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	return d
}

// withTenant follows docs/operating.md: it repeats every line and block that names acme for the
// new name.
func withTenant(conf, tenant string) string {
	rename := strings.NewReplacer("acme", tenant, "ACME", strings.ToUpper(tenant))
	lines := strings.Split(conf, "\n")
	var out []string
	for i := 0; i < len(lines); i++ {
		from := i
		if strings.Contains(lines[i], "acme") && strings.HasSuffix(lines[i], "{") {
			end := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " "))] + "}"
			for lines[i] != end {
				i++
			}
		}
		block := strings.Join(lines[from:i+1], "\n")
		out = append(out, block)
		if strings.Contains(block, "acme") && !strings.HasPrefix(block, "#") {
			out = append(out, rename.Replace(block))
		}
	}
	return strings.Join(out, "\n")
}

func passwordOf(user string) string {
	return "pw-COUNTERSIGN_PW_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_"))
}

// run runs the tool as a user of the server.
func (d deployment) run(t testing.TB, user string, args ...string) result {
	t.Helper()
	return command(t, exec.Command(program("countersign"), args...), "NATS_URL="+d.url, "NATS_USER="+user, "NATS_PASSWORD="+passwordOf(user))
}

func (d deployment) connect(t testing.TB, user string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return dial(t, d.url, role{User: user, Password: passwordOf(user), InboxPrefix: "_INBOX_" + user}, opts...)
}

func (d deployment) runtime(t testing.TB, tenant string) runtimeClient {
	t.Helper()
	return runtimeClient{d.connect(t, tenant+"-runtime"), tenant, tenant + "-runtime"}
}

// logged is a decoded message of the log.
type logged struct {
	class, tenant, state string // of its subject
	body                 object
}

// seqs are the sequences of the messages that prove a finding.
func (l logged) seqs() (list []uint64) {
	all, _ := l.body["seqs"].([]any)
	for _, n := range all {
		list = append(list, uint64(n.(float64)))
	}
	return list
}

// logOf returns a function that reads on in the log and returns everything read so far.
func (d deployment) logOf(t testing.TB) func() []logged {
	t.Helper()
	operator := d.connect(t, "operator")
	var list []logged
	return func() []logged {
		t.Helper()
		for last := lastSeq(t, operator); uint64(len(list)) < last; {
			m, err := message(operator, "GOV", object{"seq": len(list) + 1})
			ok(t, err)
			part := strings.Split(m.Subject, ".")
			l := logged{class: part[1], tenant: part[2], state: part[3]}
			ok(t, json.Unmarshal(m.Data, &l.body))
			list = append(list, l)
		}
		return list
	}
}

// subscribe subscribes to everything that a tenant's subscriber may receive.
func (d deployment) subscribe(t testing.TB, tenant string) func() []*nats.Msg {
	t.Helper()
	nc := d.connect(t, tenant+"-subscriber")
	var subs []*nats.Subscription
	for _, class := range []string{"decisions", "calls", "findings", "approvals"} {
		sub, err := nc.SubscribeSync("gov." + class + "." + tenant + ".>")
		ok(t, err)
		subs = append(subs, sub)
	}
	ok(t, nc.Flush())
	var list []*nats.Msg
	return func() []*nats.Msg {
		ok(t, nc.Flush())
		for _, sub := range subs {
			for {
				m, err := sub.NextMsg(1)
				if err != nil {
					break
				}
				list = append(list, m)
			}
		}
		return list
	}
}

// deaf requires that the server refuses a user each of some subscriptions.
func (d deployment) deaf(t testing.TB, user string, subjects ...string) {
	t.Helper()
	var p permissions
	nc := d.connect(t, user, nats.ErrorHandler(p.handler))
	for _, subject := range subjects {
		_, err := nc.SubscribeSync(subject)
		ok(t, err)
	}
	ok(t, nc.Flush())
	for _, subject := range subjects {
		eventually(t, user+" is refused "+subject, func() error {
			if !p.has("Subscription", subject) {
				return errorf("it is not")
			}
			return nil
		})
	}
}
