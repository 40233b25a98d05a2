package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sdkPolicies decide about the tools of the SDKs' tests.
const sdkPolicies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: sdk-test}
spec:
  match: {tools: [allowed_tool, denied_tool, asked_tool, agent_tool]}
  rules:
    - {name: agent, when: 'tool == "agent_tool" && agent == "billing"', verdict: allow, reason: known_agent}
    - {name: no, when: 'tool == "denied_tool"', verdict: deny, reason: forbidden_tool, message: This tool is forbidden.}
    - {name: ask, when: 'tool == "asked_tool"', verdict: ask, reason: needs_a_person, message: A person must approve this.}
    - {name: yes, when: 'tool == "allowed_tool"', verdict: allow, reason: harmless}
`

// sdks are the SDKs' own tests, as they are run against a system.
var sdks = map[string]struct {
	program string
	args    []string
}{
	"python":     {"python3", []string{"-m", "unittest", "discover", "-s", "tests", "-v"}},
	"typescript": {"node", []string{"--test", "test/"}},
}

// The SDKs' own tests, against a system; and what is then on record: what ran is linked with what was
// admitted, and nothing else ran.
func TestSDKs(t *testing.T) {
	t.Parallel()
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needProgram(t, sdk.program)
			s := start(t, "--policy", policyDir(t, "sdk.yaml", sdkPolicies))
			cmd := exec.Command(sdk.program, sdk.args...)
			cmd.Dir = filepath.Join(root, "sdk", name)
			countersign, err := filepath.Abs(program("countersign"))
			ok(t, err)
			cmd.Env = cleanEnv("COUNTERSIGN_READY_FILE="+s.ready, "COUNTERSIGN="+countersign, "COUNTERSIGN_TEST_SESSION=s-sdk", "PYTHONDONTWRITEBYTECODE=1")
			r := command(t, cmd)
			if r.code != 0 || strings.Contains(r.out+r.err, "skipped=") || strings.Contains(r.out, "# SKIP") {
				t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
			}
			s.settle(t)
			wantInChain(t, s, "s-sdk-aump", "aump_ev_sdk")
			ended := map[string]int{}
			for line := range strings.Lines(s.run(t, "calls", "--session", "s-sdk", "--json").want(t, 0).out) {
				for _, state := range []string{"completed", "failed", "denied", "open"} {
					if strings.Contains(line, `"state":"`+state+`"`) {
						ended[state]++
					}
				}
				if strings.Contains(line, `"executed_digest"`) && !strings.Contains(line, `"match":"equal"`) {
					t.Errorf("what ran is not what was admitted: %s", line)
				}
			}
			if ended["completed"] != 3 || ended["failed"] != 1 || ended["denied"] != 3 {
				t.Errorf("calls by their end: %v", ended)
			}
			for _, session := range []string{"s-sdk", "s-sdk-later"} {
				if found := s.run(t, "findings", "--session", session, "--json").out; strings.Contains(found, `"severity":"high"`) || strings.Contains(found, `"severity":"critical"`) || strings.Contains(found, "AH-C-081") {
					t.Errorf("findings of %s:\n%s", session, found)
				}
			}
		})
	}
}

// wantInChain fails the test if an event is not evidence of a session.
func wantInChain(t *testing.T, s *system, session, event string) {
	t.Helper()
	if out := s.run(t, "chain", "--session", session, "--json").out; !strings.Contains(out, event) {
		t.Errorf("the chain of %s lacks %s: %s", session, event, out)
	}
}

// gatePolicies decide about aioc's gates.
const gatePolicies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: gates}
spec:
  match: {protocols: [tool, handoff]}
  rules:
    - {name: no, when: 'protocol == "tool" && tool == "denied_tool"', verdict: deny, reason: forbidden_tool, message: This tool is forbidden.}
    - {name: ask, when: 'protocol == "tool" && tool == "asked_tool"', verdict: ask, reason: needs_a_person, message: A person must approve this.}
    - {name: yes, when: 'protocol == "tool" && tool == "allowed_tool"', verdict: allow, reason: harmless}
    - {name: hand-over, when: 'protocol == "handoff" && to_agent == "Target Agent"', verdict: allow, reason: harmless}
`

// adapters are the frameworks that the TypeScript SDK has an adapter for, and NATS.
var adapters = []string{"adk", "aioc", "langchain", "nats", "openai", "vercel"}

// adaptersEnv names the directory into which `make adapters` installs the frameworks. Without it the one in the user's
// cache is used; a framework that is not there is not tested, visibly.
const adaptersEnv = "COUNTERSIGN_ADAPTERS"

func adaptersDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(adaptersEnv); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	ok(t, err)
	return filepath.Join(cache, "countersign-adapters")
}

// The adapters, each in the real framework with a scripted model. Their types, which take the compiler longer than the
// rest, are checked by `make adapters` alone.
func TestAdapters(t *testing.T) {
	t.Parallel()
	cache := adaptersDir(t)
	if !slices.ContainsFunc(adapters, func(name string) bool { _, err := os.Stat(filepath.Join(cache, name)); return err == nil }) {
		t.Skip("no framework is installed: make adapters")
	}
	needProgram(t, "npm")
	dir := policyDir(t, "sdk.yaml", strings.Replace(sdkPolicies, "match: {", "match: {protocols: [agenthook], ", 1))
	ok(t, os.WriteFile(filepath.Join(dir, "gates.yaml"), []byte(gatePolicies), 0o600))
	s := start(t, "--policy", dir)
	countersign, err := filepath.Abs(program("countersign"))
	ok(t, err)
	for _, name := range adapters {
		t.Run(name, func(t *testing.T) {
			installed := filepath.Join(cache, name)
			if _, err := os.Stat(installed); err != nil {
				t.Skipf("%s is not installed: make adapters", name)
			}
			project := adapterProject(t, installed, name)
			cmd := exec.Command("node", "--test", name+".test.js")
			cmd.Dir = project
			cmd.Env = cleanEnv("COUNTERSIGN_READY_FILE="+s.ready, "COUNTERSIGN="+countersign, "HOME="+project)
			if r := command(t, cmd); r.code != 0 || strings.Contains(r.out, "# SKIP") {
				t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
			}
			s.settle(t)
			session := "s-adapter-" + name
			if out := s.run(t, "calls", "--session", session, "--json").out; name != "aioc" && strings.Count(out, `"match":"equal"`) != 1 {
				t.Errorf("session %s: what ran is not what was admitted: %s", session, out)
			}
			if name == "nats" {
				wantInChain(t, s, session, "aump_ev_sdk")
			}
			if os.Getenv(adaptersEnv) == "" {
				return
			}
			cmd = exec.Command("node", filepath.Join(cache, "typescript/node_modules/typescript/bin/tsc"), "--noEmit", "--strict", "--skipLibCheck",
				"--module", "nodenext", "--target", "es2023", name+".types.ts")
			cmd.Dir = project
			command(t, cmd).want(t, 0)
		})
	}
}

// adapterProject is a project with a framework that is installed, and a copy of the SDK beside it.
func adapterProject(t *testing.T, installed, name string) string {
	project := t.TempDir()
	modules := filepath.Join(project, "node_modules")
	ok(t, os.MkdirAll(filepath.Join(modules, "@countersign"), 0o700))
	link(t, filepath.Join(installed, "node_modules"), modules)
	if name == "aioc" {
		ok(t, os.MkdirAll(filepath.Join(modules, "@axiastudio"), 0o700))
		ok(t, os.Symlink(installed, filepath.Join(modules, "@axiastudio/aioc")))
	}
	ok(t, os.CopyFS(filepath.Join(modules, "@countersign/sdk"), os.DirFS(filepath.Join(root, "sdk/typescript"))))
	for _, file := range []string{"cases.js", name + ".test.js", name + ".types.ts"} {
		b, err := os.ReadFile(filepath.Join(root, "sdk/typescript/test-adapters", file))
		ok(t, err)
		ok(t, os.WriteFile(filepath.Join(project, file), b, 0o600))
	}
	ok(t, os.WriteFile(filepath.Join(project, "package.json"), []byte(`{"type": "module"}`), 0o600))
	return project
}

// link makes links to all that is installed; Node.js would resolve one link to the folder to where the SDK is not.
func link(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	ok(t, err)
	for _, e := range entries {
		path, err := filepath.Abs(filepath.Join(from, e.Name()))
		ok(t, err)
		ok(t, os.Symlink(path, filepath.Join(to, e.Name())))
	}
}

// needProgram skips a test, visibly, where an interpreter is missing; make test says so, too.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("there is no " + name)
	}
}

// importExports checks the package that is installed: each file that another one of it imports is there, each export has
// its types, and each can be imported. Peers are not installed: an export that needs one must fail for that alone.
const importExports = `
import {existsSync, readdirSync, readFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
const root = 'node_modules/@countersign/sdk', read = (file) => readFileSync(join(root, file), 'utf8');
const need = (file, why) => { if (!existsSync(join(root, file))) throw new Error(why + ': the package lacks ' + file); };
for (const file of readdirSync(root, {recursive: true}).filter((f) => /[.](js|d[.]ts)$/.test(f))) {
  for (const [, to] of read(file).matchAll(/from '([.][^']+)'/g)) need(join(dirname(file), file.endsWith('.ts') ? to.replace(/js$/, 'd.ts') : to), file);
}
const {exports, peerDependencies} = JSON.parse(read('package.json'));
for (const [name, {types, default: main}] of Object.entries(exports)) {
  need(types, name);
  need(main, name);
  const {code, message, ...exported} = await import('@countersign/sdk' + name.slice(1)).catch((e) => ({code: e.code, message: e.message}));
  const lacksPeer = code === 'ERR_MODULE_NOT_FOUND' && Object.keys(peerDependencies).some((peer) => message.includes("'" + peer + "'"));
  if (!lacksPeer && Object.keys(exported).length === 0) throw new Error(name + ' exports nothing: ' + message);
}
const {Client, newCall} = await import('@countersign/sdk');
if (typeof Client !== 'function' || newCall('t', {}, 's').tool !== 't') throw new Error('the root export is not the client');
`

// The TypeScript SDK works in an empty project, every export of it: as npm packs it, and as docs/sdk.md installs it. A link
// to its folder would look for the frameworks there.
func TestTypeScriptPackage(t *testing.T) {
	t.Parallel()
	needProgram(t, "npm")
	needPrograms(t)
	sources, err := filepath.Abs(filepath.Join(root, "sdk/typescript"))
	ok(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs/sdk.md"))
	ok(t, err)
	_, documented, _ := strings.Cut(string(page), "\nnpm install ")
	options, _, found := strings.Cut(documented, "./sdk/typescript ")
	if !found {
		t.Fatal("docs/sdk.md does not install ./sdk/typescript")
	}
	packed := t.TempDir()
	pack := exec.Command("npm", "pack", "--pack-destination", packed)
	pack.Dir, pack.Env = sources, cleanEnv("HOME="+packed)
	command(t, pack).want(t, 0)
	for name, packages := range map[string][]string{"packed": {filepath.Join(packed, "countersign-sdk-0.1.0.tgz")}, "as documented": append(strings.Fields(options), sources)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, args := range [][]string{
				append([]string{"npm", "install", "--offline", "--no-audit", "--no-fund"}, packages...), {"node", "--input-type=module", "-e", importExports},
			} {
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Dir, cmd.Env = dir, cleanEnv("HOME="+dir)
				command(t, cmd).want(t, 0)
			}
			info, err := os.Lstat(filepath.Join(dir, "node_modules/@countersign/sdk"))
			ok(t, err)
			if !info.IsDir() {
				t.Error("the package is a link to the clone")
			}
		})
	}
}

// Each package of an SDK has the licence.
func TestPackagedLicence(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	ok(t, err)
	for name := range sdks {
		if have, err := os.ReadFile(filepath.Join(root, "sdk", name, "LICENSE")); err != nil || !bytes.Equal(have, want) {
			t.Errorf("sdk/%s/LICENSE is not the LICENSE (%v)", name, err)
		}
	}
}

// make says which interpreter is missing or too old before tests are skipped or fail for it, and builds all the same.
func TestCheckTools(t *testing.T) {
	t.Parallel()
	needProgram(t, "make")
	for name, tc := range map[string]struct{ python, node, want string }{
		"the oldest that do":  {"Python 3.10.0", "v20.3.0", ""},
		"newer":               {"Python 3.14.1", "v100.1.0", ""},
		"an old Python":       {"Python 3.9.18", "v22.1.0", "Python 3.9.18 is too old: install Python 3.10"},
		"a very old Python":   {"Python 2.7.18", "v22.1.0", "Python 2.7.18 is too old"},
		"an old Node.js":      {"Python 3.11.7", "v18.20.4", "Node.js v18.20.4 is too old: install Node.js 20.3"},
		"an early Node.js 20": {"Python 3.11.7", "v20.2.0", "Node.js v20.2.0 is too old"},
		"a late Node.js 20":   {"Python 3.11.7", "v20.20.2", ""},
		"a very old Node.js":  {"Python 3.11.7", "v8.1.0", "Node.js v8.1.0 is too old"},
		"no Python":           {"", "v22.1.0", "python3 is missing"},
		"npm without Node.js": {"Python 3.11.7", "", "node is missing"},
	} {
		dir := t.TempDir()
		for program, version := range map[string]string{"go": "-", "npm": "-", "uname": "Linux", "python3": tc.python, "node": tc.node} {
			if version != "" {
				ok(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho "+version+"\n"), 0o700))
			}
		}
		cmd := exec.Command("make", "--silent", "--no-print-directory", "check-tools")
		cmd.Dir, cmd.Env = root, []string{"PATH=" + dir, "COUNTERSIGN_CLICKHOUSE=-"}
		r := command(t, cmd).want(t, 0)
		if said := strings.TrimSpace(r.out + r.err); (said == "") != (tc.want == "") || !strings.Contains(said, tc.want) || strings.Contains(said, "\n") {
			t.Errorf("%s: make says %q, want %q", name, said, tc.want)
		}
	}
}

// The example agents: one call runs, one is denied, one runs once a person has approved it.
func TestExampleAgents(t *testing.T) {
	t.Parallel()
	for program, file := range map[string]string{"python3": "agent.py", "node": "agent.mjs"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			needProgram(t, program)
			s := start(t)
			cmd := exec.Command(program, "examples/agents/"+file, s.ready)
			cmd.Dir, cmd.Env = root, cleanEnv("PYTHONPATH=sdk/python", "PYTHONDONTWRITEBYTECODE=1")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			p, err := launch(cmd)
			ok(t, err)
			eventually(t, "the mail waits for a person", func() error {
				list, _ := s.review(t, 0, "list")["workflows"].([]any)
				if len(list) != 1 {
					return errorf("%v", list)
				}
				s.run(t, "approvals", "approve", list[0].(map[string]any)["workflow_id"].(string), "--yes").want(t, 0)
				return nil
			})
			ok(t, p.wait())
			want := []string{"read_file: the content of /etc/hostname", "write_file: refused: deny: ", "send_email: sent to press@newspaper.example"}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			for i, line := range want {
				if len(lines) != len(want) || !strings.HasPrefix(lines[i], line) {
					t.Fatalf("the agent wrote\n%s", out.String())
				}
			}
		})
	}
}
