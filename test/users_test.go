package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
)

// answeredLine is a line of a page, and what it prints.
type answeredLine struct{ begins, prints string }

// removalLines are those of the second block of "Two reviewers in five minutes".
var removalLines = []answeredLine{
	{"countersign user remove web2", "user web2 of tenant acme is removed"},
	{"countersign tenant remove globex", "user globex-gateway of tenant globex is removed"},
	{"curl", `"error":"unauthorized"`},
}

// additionLines are those of the first block, in order.
var additionLines = []answeredLine{
	{"countersign policy push", "in force"},
	{"countersign user add dana", "reviewer dana of tenant acme is there"},
	{"countersign user add erin", "erin.json"},
	{"countersign user add web2", "web2.json"},
	{"countersign tenant add globex", "tenant globex is there"},
	{"countersign admit", `"decision":"ask"`},
	{"workflow=", "wf-"},
	{"countersign approvals approve $workflow --ready-file dana", "(1 of 2)"},
	{"countersign approvals approve $workflow --ready-file dana", "already_approved"},
	{"countersign approvals approve $workflow --ready-file globex", "unknown_workflow"},
	{"countersign approvals approve $workflow --ready-file erin", "approved;"},
	{"countersign admit", `"decision":"allow"`},
	{"curl", `"error":"unauthorized"`},
	{"countersign policy push", "in force"},
}

// Users and a tenant that are added to a running system: the page's lines as they are printed. A quorum
// of two is reached by two reviewers that were added, for a publisher that was added, and no user of one
// tenant acts for the other.
func TestUsersAndTenantsAreAdded(t *testing.T) {
	t.Parallel()
	needProgram(t, "curl")
	needProgram(t, "jq")
	s := start(t, "--policy", "../examples/policies/assistant")
	sh := newShell(t, s)
	typeBlock(t, sh, 0, additionLines)
	globex, web2 := addedGateway(t, sh, "globex.json"), addedGateway(t, sh, "web2.json")
	for _, c := range []struct {
		at     gatewayReady
		token  gatewayReady
		status int
	}{{globex, globex, 200}, {web2, web2, 200}, {globex, web2, 401}, {web2, globex, 401}} {
		c.at.Roles = c.token.Roles
		if got := c.at.request(t, http.MethodPost, "/validate-tool-precheck", "runtime", []byte(`{}`)).StatusCode; got != c.status {
			t.Errorf("a token of %s at %s: %d, want %d", c.token.Roles["runtime"].User, c.at.URL, got, c.status)
		}
	}
	for _, c := range [][2]string{
		{"countersign approvals list --ready-file globex.json --tenant acme", "may not review for tenant acme"},
		{"countersign admit --ready-file globex.json --tenant acme --protocol agenthook examples/requests/pre-tool-use.json", "ermissions"},
		{"countersign user add zoe --role reviewer --ready-file web2.json", "ready file of"},
		{"countersign user add dana --role reviewer --out again.json && cmp dana.json again.json && echo same", "same"},
		{"countersign token revoke $(countersign token list --json | jq -r '.[] | select(.user == \"dana\") | .id') && countersign user add dana --role reviewer --out again.json 2>&1", "the token of dana is revoked"},
		{"jq -r '.roles.reviewer | .user + \":\" + (.token // \"\") + \";\"' again.json", "dana:;"},
	} {
		sh.run(t, c[0], c[1])
	}
	leaving := map[string]*nats.Conn{}
	for _, name := range []string{"web2.json", "globex.json"} {
		leaving[name] = connectAdded(t, sh, name, "runtime")
	}
	typeBlock(t, sh, 1, removalLines)
	for name, nc := range leaving {
		eventually(t, name, func() error {
			if !nc.IsClosed() {
				return errorf("it is connected")
			}
			return nil
		})
		if _, err := dialAdded(t, sh, name, "runtime"); err == nil {
			t.Errorf("the password in %s still lets in", name)
		}
	}
	if res, err := http.Get(globex.URL + "/healthz"); err == nil {
		res.Body.Close()
		t.Error("the gateway of the removed tenant answers")
	}
	for _, c := range [][2]string{
		{"countersign user remove web2 --json", `"already":true`},
		{"countersign user remove nobody || echo code $?", "code 2"},
		{"countersign approvals list --all --json | jq -r '.workflows[] | .source + \" \" + .status'", "web2 consumed"},
		{"countersign user add web2 --role runtime --out new.json && jq -r .roles.runtime.token web2.json new.json | sort -u | wc -l", "2"},
	} {
		sh.run(t, c[0], c[1])
	}
	if _, err := dialAdded(t, sh, "web2.json", "runtime"); err == nil {
		t.Error("the old password is that of the new user")
	}
	dialed, err := dialAdded(t, sh, "new.json", "runtime")
	ok(t, err)
	dialed.Close()
	removeInterrupted(t, s, sh)
}

// removeInterrupted removes a user while `up` stands still and kills `up`: the next one completes the removal,
// and the command that is repeated reports it.
func removeInterrupted(t *testing.T, s *system, sh *shell) {
	t.Helper()
	s.proc.signal(syscall.SIGSTOP)
	cmd := exec.Command(program("countersign"), "user", "remove", "erin", "--yes", "--ready-file", s.ready)
	cmd.Env = cleanEnv()
	command, err := launch(cmd)
	ok(t, err)
	eventually(t, "the removal is stored", func() error {
		text, err := os.ReadFile(filepath.Join(s.data, "state.json"))
		if err != nil || strings.Count(string(text), `"erin"`) != 1 { // in the list of removals alone
			return errorf("it is not there yet: %v", err)
		}
		return nil
	})
	command.signal(syscall.SIGKILL)
	_ = command.wait()
	if nc, err := dialAdded(t, sh, "erin.json", "reviewer"); err != nil {
		t.Errorf("the removal is in force already, and nothing was interrupted: %v", err)
	} else {
		nc.Close()
	}
	s.proc.signal(syscall.SIGKILL)
	_ = s.proc.wait()
	ok(t, os.Remove(s.ready))
	startIn(t, s.dir, "--policy", "../examples/policies/assistant")
	sh.run(t, "countersign user remove erin", "erin of tenant acme is removed already")
	if _, err := dialAdded(t, sh, "erin.json", "reviewer"); err == nil {
		t.Error("the removed user connects")
	}
	sh.run(t, "curl -s -H \"Authorization: Bearer $(jq -r .roles.reviewer.token erin.json)\" $(jq -r .gateway_url ready.json)/v1/caller", "unauthorized")
	// The files of the users that stay are of the `up` before; the same commands make them again.
	for _, c := range [][2]string{
		{"countersign approvals list --ready-file dana.json 2>&1", "make the file again by the `countersign user add`"},
		{"countersign user add dana --role reviewer --out later.json", "reviewer dana of tenant acme is there"},
		{"jq -r .roles.reviewer.password dana.json later.json | sort -u | wc -l", "1"},
		{"countersign approvals list --ready-file later.json --json", "{\"ok\":true"},
	} {
		sh.run(t, c[0], c[1])
	}
}

// typeBlock types the lines of a block of the section "Two reviewers in five minutes".
func typeBlock(t *testing.T, sh *shell, n int, wanted []answeredLine) {
	t.Helper()
	blocks := slices.DeleteFunc(readBlocks(t, "docs/approvals.md"), func(b block) bool { return b.section != "Two reviewers in five minutes" })
	lines := blocks[n].lines
	if len(lines) != len(wanted) {
		t.Fatalf("the page has %d lines, want %d", len(lines), len(wanted))
	}
	for i, want := range wanted {
		line := lines[i].text
		if !strings.HasPrefix(line, want.begins) {
			t.Fatalf("line %d is %s", i+1, line)
		}
		if want.begins == "workflow=" {
			line += "; echo $workflow"
		}
		out, code := sh.code(t, line)
		if code != lines[i].code || !strings.Contains(out, want.prints) {
			t.Fatalf("%s\nexit %d, want %d; it prints:\n%s\nwant %s", line, code, lines[i].code, out, want.prints)
		}
	}
}

// dialAdded connects with the password of a ready file of an added user.
func dialAdded(t *testing.T, sh *shell, name, as string) (*nats.Conn, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sh.dir, name))
	ok(t, err)
	var ready readyFile
	ok(t, json.Unmarshal(text, &ready))
	r := ready.Roles[as]
	return nats.Connect(ready.NATSURL, nats.UserInfo(r.User, r.Password), nats.CustomInboxPrefix(r.InboxPrefix), nats.NoReconnect())
}

func connectAdded(t *testing.T, sh *shell, name, as string) *nats.Conn {
	t.Helper()
	nc, err := dialAdded(t, sh, name, as)
	ok(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func addedGateway(t *testing.T, sh *shell, name string) (g gatewayReady) {
	t.Helper()
	path := filepath.Join(sh.dir, name)
	text, err := os.ReadFile(path)
	ok(t, err)
	ok(t, json.Unmarshal(text, &g))
	info, err := os.Stat(path)
	ok(t, err)
	if info.Mode().Perm() != 0o600 || strings.Contains(string(text), "operator") || strings.Contains(string(text), "clickhouse://") {
		t.Errorf("%s has mode %v, or leads to more than its users:\n%s", name, info.Mode(), text)
	}
	return g
}
