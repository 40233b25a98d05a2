package hookcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

type doctorCmd struct {
	place
	JSON bool `name:"json" help:"Print JSON."`
}

// examined is one line of the doctor's report.
type examined struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Open   bool   `json:"not_checked,omitempty"` // it could not be checked: neither good nor bad
	Detail string `json:"detail,omitempty"`
}

// probeTool is a tool that no agent has and no policy should allow.
const probeTool = "countersign_doctor_probe"

// copilotEvent is the event of the probe for Copilot CLI, whose input does not name it.
const copilotEvent = "preToolUse"

// probeTimeout bounds one run of the gate.
const probeTimeout = 40 * time.Second

func (c *doctorCmd) Run(ctx context.Context, io ui.Stdio) error {
	i, files, err := c.open()
	if err != nil {
		return err
	}
	agent, _ := hook.Find(c.Agent)
	config := gateConfig{managed: c.Managed}
	list := []examined{configured(i, files, c.scope()), config.check()}
	if i.off != "" {
		list = append(list, i.switchedOn(c.scope()))
	}
	if i.files[scopeManaged] != "" {
		list = append(list, i.onlyGate())
	}
	if i.plugins != "" && c.scope() != scopeManaged {
		list = append(list, i.mods())
	}
	if i.program != "" {
		list = append(list, i.asked(ctx, c.scope()))
	}
	gate, err := findGate()
	if err != nil {
		list = append(list, examined{Check: "gate", Detail: err.Error()})
	} else {
		list = append(list, config.refusesProbe(ctx, gate, agent), config.enforces(ctx, agent), config.refusesWithoutGateway(ctx, gate, agent))
	}
	if len(i.moved) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(i.moved)), " or ")
		list = append(list, examined{Check: "environment of the agent", Open: true, Detail: "where " + names + " is not as it is here, the agent reads another configuration"})
	}
	if i.open != "" {
		list = append(list, examined{Check: "in the agent", Open: true, Detail: i.open})
	}
	failed := false
	for _, f := range list {
		failed = failed || !f.OK && !f.Open
	}
	if err := c.print(io, i, agent, list); err != nil || !failed {
		return err
	}
	return ui.ExitCode(ui.ExitFailed)
}

func (c *doctorCmd) print(io ui.Stdio, i installation, agent hook.Agent, list []examined) error {
	if c.JSON {
		return ui.WriteJSON(io, map[string]any{"agent": agent.Name, "checks": list, "closes": i.closes, "past": agent.Past})
	}
	for _, f := range list {
		mark := "ok         "
		switch {
		case f.Open:
			mark = "not checked"
		case !f.OK:
			mark = "FAILED     "
		}
		fmt.Fprintf(io.Out, "%s %s: %s\n", mark, f.Check, f.Detail)
	}
	fmt.Fprintf(io.Out, "if the gate itself dies: %s\n%s lets past its hooks:\n", i.closes, agent.Name)
	for _, hole := range agent.Past {
		fmt.Fprintf(io.Out, "  - %s\n", hole)
	}
	return nil
}

// same reports whether two texts of a configuration mean the same: agents write their own in another form.
func (i installation) same(a, b []byte) bool {
	var left, right any
	if i.whole == nil && json.Unmarshal(a, &left) == nil && json.Unmarshal(b, &right) == nil {
		return reflect.DeepEqual(left, right)
	}
	return bytes.Equal(a, b)
}

// configured checks that the agent's configuration runs the gate as install writes it.
func configured(i installation, files []agentFile, scope string) examined {
	f := examined{Check: "configuration of the agent"}
	command, err := installedCommand(i.agent, scope)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	var paths []string
	for _, file := range files {
		changed, err := i.merge(file.text, command)
		switch info, statErr := os.Stat(file.path); {
		case err != nil:
			f.Detail = file.path + ": " + err.Error()
			return f
		case !i.same(changed, file.text), statErr == nil && i.executable && info.Mode()&0o100 == 0:
			f.Detail = file.path + " does not run the gate as it should: countersign hook install " + i.agent
			return f
		}
		paths = append(paths, file.path)
	}
	f.OK, f.Detail = true, strings.Join(paths, ", ")
	return f
}

// switchedOn checks that no file of the agent's settings switches the gate off. A file that cannot be
// read, or that is no JSON, counts as one that does; of files that are not the gate's only if it can name the member.
func (i installation) switchedOn(scope string) examined {
	f := examined{Check: "hooks are switched on"}
	names := slices.Concat(slices.Sorted(maps.Values(i.files)), i.offFiles)
	if scope == scopeManaged && i.onInManaged {
		names = []string{i.files[scopeManaged]}
	}
	for _, name := range names {
		path, err := i.expand(name)
		if err != nil {
			f.Detail = err.Error()
			return f
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && slices.Contains(i.offFiles, name) && !bytes.Contains(text, []byte(i.off)) && !bytes.ContainsRune(text, '\\') {
			continue // it may have comments, as Copilot CLI reads them
		}
		from, to, found, problem := member(text, i.off)
		var value any
		if found {
			problem = json.Unmarshal(text[from:to], &value)
		}
		if err = errors.Join(err, problem); err != nil {
			f.Detail = path + ": " + err.Error()
			return f
		}
		if found && i.isOff(value) {
			f.Detail = path + " asks for the gate to be switched off: look at its member " + i.off
			return f
		}
	}
	f.OK, f.Detail = true, "no settings file switches them off"
	return f
}

// mods names the installed plugins of Claude Code that have mods in hooks/hooks.json. A manifest may name other files,
// which are not read. What a mod does cannot be seen.
func (i installation) mods() examined {
	f := examined{Check: "mods of plugins", Open: true, Detail: "a mod, also one of --plugin-dir, can allow what hooks of the user refuse; --managed closes that"}
	path, err := i.expand(i.plugins)
	if err != nil {
		return f
	}
	var list struct {
		Plugins map[string][]struct{ InstallPath string }
	}
	switch text, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist):
		return f
	case err != nil || json.Unmarshal(text, &list) != nil:
		f.Detail = path + " cannot be read: " + f.Detail
		return f
	}
	var found []string
	for name, places := range list.Plugins {
		for _, p := range places {
			var hooks struct{ Modules []any }
			if text, err := os.ReadFile(filepath.Join(p.InstallPath, "hooks", "hooks.json")); err == nil && json.Unmarshal(text, &hooks) == nil && len(hooks.Modules) > 0 {
				found = append(found, name)
			}
		}
	}
	if slices.Sort(found); len(found) > 0 {
		f.Detail = ui.Clean(strings.Join(slices.Compact(found), ", "), 300) + " of the installed plugins have one in hooks/hooks.json: " + f.Detail
	}
	return f
}

// onlyGate checks that the agent does not run the gate twice: the commands of the managed configuration and of one of the
// user or of the project differ, and so do those of two agents. A gate that is taken away from Claude Code must be in force
// there from elsewhere.
func (i installation) onlyGate() examined {
	f := examined{Check: "one gate before each call"}
	managed, err := i.gateIn(i.files[scopeManaged])
	for _, scope := range []string{scopeUser, scopeProject} {
		own, ownErr := i.gateIn(i.files[scope])
		switch err = errors.Join(err, ownErr); {
		case err != nil:
			f.Detail = err.Error()
			return f
		case managed != "" && own != "":
			f.Detail = managed + " and " + own + " both run the gate, so each call is asked for and reported twice: countersign hook uninstall " + i.agent + " --" + scope
			return f
		}
	}
	for _, name := range i.claudeFiles {
		switch other, err := i.gateIn(name); {
		case err != nil:
			f.Open, f.Detail = i.claudeOff != "", err.Error()
			return f
		case other != "" && i.claudeOff != "":
			f.Open, f.Detail = true, other+" runs the gate of claude-code: "+i.agent+" runs that, too, so that each call is asked for and reported twice, unless its setting "+i.claudeOff+" is off"
			return f
		case other != "":
			f.Detail = other + " runs the gate of claude-code, and " + i.agent + " runs that, too, so each call is asked for and reported twice: first put the gate of Claude Code in force for the user " +
				"(countersign hook install claude-code), then take it out of " + other
			if filepath.Base(other) == "settings.local.json" {
				f.Detail += " (countersign hook uninstall claude-code --project, in " + filepath.Dir(filepath.Dir(other)) + ")"
			}
			return f
		}
	}
	f.OK, f.Detail = true, "not both in the managed configuration and in one of the user or the project"
	if len(i.claudeFiles) > 0 {
		f.Detail += ", nor in those of claude-code"
	}
	return f
}

// gateIn returns the path of a file of the table if it runs the gate, else nothing.
func (i installation) gateIn(name string) (string, error) {
	path, err := i.expand(name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	rest, problem := i.remove(text)
	if err = errors.Join(err, problem); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if bytes.Equal(rest, text) {
		return "", nil
	}
	return path, nil
}

// gateConfig is the gate's own configuration: of this user's default place, or of the user's home.
type gateConfig struct{ managed bool }

func (c gateConfig) read() (path string, config gateclient.Config, err error) {
	if path, err = configPath(c.managed); err == nil {
		config, err = gateclient.ReadConfig(path)
	}
	return path, config, err
}

func (c gateConfig) check() examined {
	f := examined{Check: "configuration of the gate"}
	path, config, err := c.read()
	if err == nil {
		err = config.Check()
	}
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = true, path
	if config.Defer {
		f.Detail += "; headless runs of claude-code that wait for a person end, to be resumed"
	}
	return f
}

// refusesProbe runs the gate as the agent would, with a call that the admitter must deny: its arguments are marked as
// invalid. So no approval is left that waits.
func (c gateConfig) refusesProbe(ctx context.Context, gate string, agent hook.Agent) examined {
	f := examined{Check: "a call that must be denied"}
	out, err := c.with(func(config *gateclient.Config) { config.Budget, config.Probe = "20s", true }, func(path string) (string, error) { return runGate(ctx, gate, agent, path) })
	switch {
	case err != nil:
		f.Detail = err.Error()
	case out == strings.TrimSpace(agent.Allow.Stdout):
		f.Detail = "it was ALLOWED"
	case !strings.Contains(out, "(deny)"):
		f.Detail = "it was refused, but not by the admitter: " + ui.Clean(out, 600)
	default:
		f.OK, f.Detail = true, "refused by the admitter"
	}
	return f
}

// enforces asks the admitter, without the gate, which keeps this to itself, whether what policies refuse is refused.
func (c gateConfig) enforces(ctx context.Context, agent hook.Agent) examined {
	f := examined{Check: "policies are enforced"}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch mode, err := c.modeOfProbe(ctx, agent); {
	case err != nil:
		f.Detail = ui.Clean(err.Error(), 300)
	case mode == events.ModeObserve:
		f.Detail = "mode observe is on, in which policies refuse nothing: a refusal is recorded and NOT enforced"
	default:
		f.OK, f.Detail = true, "what they allow is not checked here: countersign policy test, simulate"
	}
	return f
}

// modeOfProbe is the mode in which the admitter decides on the doctor's call.
func (c gateConfig) modeOfProbe(ctx context.Context, agent hook.Agent) (string, error) {
	_, config, err := c.read()
	if err != nil {
		return "", err
	}
	peer, err := config.Peer()
	if err != nil {
		return "", err
	}
	e, err := agent.Read(copilotEvent, agent.Probe("countersign-doctor", probeTool))
	if err != nil {
		return "", err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return "", err
	}
	event, err := e.AgentHook(agent.Name, hook.Envelope{ID: id.String(), Time: time.Now(), CallID: id.String(), Derived: true, Adapter: buildinfo.Version(), Probe: true})
	if err != nil {
		return "", err
	}
	r, err := gateclient.NewAsker(peer).Propose(ctx, event, "")
	return r.Mode, err
}

// refusesWithoutGateway runs the gate with a gateway that is not there.
func (c gateConfig) refusesWithoutGateway(ctx context.Context, gate string, agent hook.Agent) examined {
	f := examined{Check: "a call without a gateway"}
	out, err := c.with(func(config *gateclient.Config) {
		*config = gateclient.Config{ReadyFile: filepath.Join(os.TempDir(), "countersign-no-such-ready-file")}
	}, func(path string) (string, error) { return runGate(ctx, gate, agent, path) })
	switch {
	case err != nil:
		f.Detail = err.Error()
	case !strings.Contains(out, "Countersign refused"):
		f.Detail = "it was NOT refused: " + ui.Clean(out, 300)
	default:
		f.OK, f.Detail = true, "refused"
	}
	return f
}

// with calls use with a copy of the gate's configuration that edit has changed.
func (c gateConfig) with(edit func(*gateclient.Config), use func(path string) (string, error)) (string, error) {
	dir, err := os.MkdirTemp("", "countersign-doctor-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	_, config, err := c.read()
	if err != nil {
		return "", err
	}
	edit(&config)
	text, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hook.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", err
	}
	return use(path)
}

// runGate runs the gate with a probe in the agent's dialect and returns its answer, and behind it what it tells people.
func runGate(ctx context.Context, gate string, agent hook.Agent, config string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	args := []string{agent.Name}
	if agent.Name == "copilot" {
		args = append(args, copilotEvent)
	}
	if config != "" {
		args = append(args, "--config", config)
	}
	cmd := exec.CommandContext(ctx, gate, args...)
	cmd.Stdin = bytes.NewReader(agent.Probe("countersign-doctor", probeTool))
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("the gate cannot be run: %w", err)
	}
	return strings.TrimSpace(string(out) + told.String()), nil
}
