package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// additionLines are what the lines of "Two reviewers in five minutes" print, in order.
var additionLines = []struct{ begins, prints string }{
	{"bin/countersign policy push", "in force"},
	{"bin/countersign user add dana", "reviewer dana of tenant acme is there"},
	{"bin/countersign user add erin", "erin.json"},
	{"bin/countersign user add web2", "web2.json"},
	{"bin/countersign tenant add globex", "tenant globex is there"},
	{"bin/countersign admit", `"decision":"ask"`},
	{"workflow=", "wf-"},
	{"bin/countersign approvals approve $workflow --ready-file dana", "(1 of 2)"},
	{"bin/countersign approvals approve $workflow --ready-file dana", "already_approved"},
	{"bin/countersign approvals approve $workflow --ready-file globex", "unknown_workflow"},
	{"bin/countersign approvals approve $workflow --ready-file erin", "approved;"},
	{"bin/countersign admit", `"decision":"allow"`},
	{"curl", `"error":"unauthorized"`},
}

// Users and a tenant that are added to a running system: the page's lines as they are printed. A quorum
// of two is reached by two reviewers that were added, for a publisher that was added, and no user of one
// tenant acts for the other.
func TestUsersAndTenantsAreAdded(t *testing.T) {
	t.Parallel()
	needProgram(t, "curl")
	needProgram(t, "jq")
	s := start(t, "--policy", "../examples/policies")
	sh := newShell(t, s)
	text, err := os.ReadFile(filepath.Join(root, "docs/approvals.md"))
	ok(t, err)
	_, section, _ := strings.Cut(string(text), "## Two reviewers in five minutes\n")
	_, section, _ = strings.Cut(section, "```sh\n")
	section, _, _ = strings.Cut(section, "```")
	lines := strings.Split(strings.TrimSpace(section), "\n")
	if len(lines) != len(additionLines) {
		t.Fatalf("the page has %d lines, want %d", len(lines), len(additionLines))
	}
	for i, want := range additionLines {
		if !strings.HasPrefix(lines[i], want.begins) {
			t.Fatalf("line %d is %s", i+1, lines[i])
		}
		if want.begins == "workflow=" {
			lines[i] += "; echo $workflow"
		}
		sh.run(t, lines[i], want.prints)
	}
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
		{"bin/countersign approvals list --ready-file globex.json --tenant acme", "may not review for tenant acme"},
		{"bin/countersign admit --ready-file globex.json --tenant acme --protocol agenthook examples/requests/pre-tool-use.json", "ermissions"},
		{"bin/countersign user add zoe --role reviewer --ready-file web2.json", "ready file of"},
		{"bin/countersign user add dana --role reviewer --out again.json && cmp dana.json again.json && echo same", "same"},
		{"bin/countersign token revoke $(bin/countersign token list --json | jq -r '.[] | select(.user == \"dana\") | .id') && bin/countersign user add dana --role reviewer --out again.json 2>&1", "the token of dana is revoked"},
		{"jq -r '.roles.reviewer | .user + \":\" + (.token // \"\") + \";\"' again.json", "dana:;"},
	} {
		sh.run(t, c[0], c[1])
	}
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
