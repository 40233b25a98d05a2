// Package hookcmd is `countersign hook`: it answers for a coding agent's hook, puts the hook into the
// agent's configuration, takes it out, and proves that the gate is closed. The gate itself is
// package internal/hookgate. Begin reading with Cmd.
package hookcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/textdiff"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/hookgate"
)

// Cmd is `countersign hook`.
type Cmd struct {
	Run       runCmd       `cmd:"" default:"withargs" help:"Answer one call of an agent's hook: read its JSON, ask the gateway, answer in its hook. countersign-hook does the same and starts faster."`
	Install   installCmd   `cmd:"" help:"Put the gate into an agent's configuration, after showing the difference; keeps a backup."`
	Uninstall uninstallCmd `cmd:"" help:"Take the gate out of an agent's configuration; keeps a backup of a file that it changes, and removes one that is the gate's alone."`
	Doctor    doctorCmd    `cmd:"" help:"Prove that the gate refuses, also without a gateway, and say what the agent lets past it."`
}

type runCmd struct {
	Agent   string `arg:"" help:"claude-code, codex, gemini, cursor, copilot, cline or opencode."`
	Event   string `arg:"" optional:"" help:"The agent's name of the event, if its input does not have it."`
	Config  string `help:"The gate's configuration (default: countersign/hook.json in the user's configuration directory)." placeholder:"FILE" xor:"config"`
	Managed bool   `help:"Read .config/countersign/hook.json in the home of the user, whatever the environment says: for managed configurations." xor:"config"`
}

func (c *runCmd) Run(io ui.Stdio) error {
	if code := hookgate.Run(c.Agent, c.Event, hookgate.ConfigPath(c.Config, c.Managed), hookgate.Stdio{In: io.In, Out: io.Out, Err: io.Err}); code != 0 {
		return ui.ExitCode(code)
	}
	return nil
}

// place selects a configuration of an agent: for the user, for a project or for the machine.
type place struct {
	Agent   string `arg:"" help:"claude-code, codex, gemini, cursor, copilot, cline or opencode."`
	User    bool   `help:"Every project of this user (default)." xor:"scope"`
	Project bool   `help:"The project in the current directory; for copilot the Git repository around it. What is written names programs and files of this user: do not commit it." xor:"scope"`
	Managed bool   `help:"Every user of this machine: the gate reads .config/countersign/hook.json in the home of each, which --gate-only writes. Without it, calls of that user are refused." xor:"scope"`
}

func (p place) scope() string {
	switch {
	case p.Project:
		return scopeProject
	case p.Managed:
		return scopeManaged
	}
	return scopeUser
}

// agentFile is a file of an agent's configuration.
type agentFile struct {
	path string
	text []byte // empty if there is none
}

// open finds the configuration and reads it.
func (p place) open() (i installation, files []agentFile, err error) {
	if i, err = findInstallation(p.Agent); err != nil {
		return i, nil, ui.UsageError{Err: err}
	}
	paths, err := i.paths(p.scope())
	if err != nil {
		return i, nil, ui.UsageError{Err: err}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return i, nil, fmt.Errorf("reading the agent's configuration: %w", err)
		}
		files = append(files, agentFile{path, text})
	}
	return i, files, nil
}

type installCmd struct {
	place
	ReadyFile     string `help:"Ready file of a running 'up' on this machine: the gate reads gateway, token and key from it (default: COUNTERSIGN_READY_FILE of the environment, if no gateway is given or configured)." placeholder:"FILE" xor:"peer"`
	Gateway       string `help:"Address of the gateway, with the four flags below." placeholder:"URL" xor:"peer"`
	TokenFile     string `help:"A token of the role runtime; a file that only its owner may read." placeholder:"FILE"`
	PublicKeyFile string `name:"key" help:"checkpoint.pub." placeholder:"FILE"`
	Tenant        string `help:"The tenant." placeholder:"NAME"`
	Publisher     string `help:"The publisher for which the token was made." placeholder:"NAME"`
	Budget        string `help:"The longest time until the gate answers, approvals included (default 25s)." placeholder:"DURATION"`
	ApprovalURL   string `name:"approval-url" help:"Address of the page where a person decides, for refusals of calls that wait; {workflow} stands for the workflow's id. Default: the command that shows it." placeholder:"URL"`
	Prompts       *bool  `negatable:"" help:"Report the texts of prompts and answers, not only their length."`
	Defer         *bool  `negatable:"" help:"End a headless run whose call still waits for a person when the time is over; resuming the run repeats the call. Of calls made in parallel, all but the last are lost. Only claude-code can."`
	GateOnly      bool   `help:"Write the gate's configuration alone, in the home of this user: for users of a machine whose managed configuration runs the gate." xor:"scope"`
	DryRun        bool   `help:"Show the difference and change nothing."`
}

func (c *installCmd) Run(_ context.Context, io ui.Stdio) error {
	i, files, err := c.open()
	if err != nil {
		return err
	}
	var gate gateFile
	if !c.Managed { // of all users of a machine, each has a configuration of its own
		if gate, err = c.gateFile(io); err != nil {
			return err
		}
	}
	if c.GateOnly {
		return gate.write(io, c.DryRun)
	}
	command, err := installedCommand(i.agent, c.scope())
	if err != nil {
		return err
	}
	changed, err := i.mergeAll(files, command)
	if err != nil {
		return err
	}
	for n, f := range files {
		if err := replace(io, f.path, f.text, changed[n], i.mode(), beforeGate, c.DryRun); err != nil {
			return err
		}
		if i.executable && !c.DryRun {
			if err := os.Chmod(f.path, i.mode()); err != nil {
				return err
			}
		}
	}
	if !c.Managed {
		if err := gate.write(io, c.DryRun); err != nil {
			return err
		}
	}
	if !c.DryRun {
		i.printNext(io, c.scope())
	}
	return nil
}

// printNext says what is left to do.
func (i installation) printNext(io ui.Stdio, scope string) {
	if i.after != "" {
		fmt.Fprintf(io.Err, "next: %s\n", i.after)
	}
	flag := ""
	switch scope {
	case scopeProject:
		flag = " --project"
		fmt.Fprintln(io.Err, "next: keep what was written out of the repository: it names programs and files of this user, so that every call of others is refused")
	case scopeManaged:
		flag = " --managed"
		fmt.Fprintf(io.Err, "next: each user: countersign hook install %s --gate-only --ready-file FILE; without that, calls of the user are refused\n", i.agent)
	}
	fmt.Fprintf(io.Err, "next: countersign hook doctor %s%s\n", i.agent, flag)
}

// mergeAll is merge for all files, none of which is written yet.
func (i installation) mergeAll(files []agentFile, command string) (changed [][]byte, err error) {
	for _, f := range files {
		text, err := i.merge(f.text, command)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be changed: %w", f.path, err)
		}
		changed = append(changed, text)
	}
	return changed, nil
}

// mode is that of a file that is made anew.
func (i installation) mode() fs.FileMode {
	if i.executable {
		return 0o755
	}
	return 0o644
}

// gateFile is the gate's configuration: the file as it is, and what it becomes.
type gateFile struct {
	path   string
	old    []byte
	config gateclient.Config
}

func (c *installCmd) gateFile(io ui.Stdio) (gateFile, error) {
	path, old, before, err := c.oldConfig(io)
	if err != nil {
		return gateFile{}, err
	}
	config, err := c.config(before)
	if err != nil {
		return gateFile{}, ui.UsageError{Err: err}
	}
	return gateFile{path, old, config}, nil
}

// configPath is the gate's configuration of a scope.
func configPath(managed bool) (string, error) {
	if managed {
		return gateclient.HomeConfigPath()
	}
	return gateclient.DefaultConfigPath()
}

// oldConfig reads the gate's configuration as it is; it is empty if there is none. All agents of the user share it.
func (c *installCmd) oldConfig(io ui.Stdio) (path string, text []byte, before gateclient.Config, err error) {
	if path, err = configPath(c.GateOnly); err != nil {
		return path, nil, before, err
	}
	if text, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, nil, before, fmt.Errorf("reading the gate's configuration: %w", err)
	}
	if err := json.Unmarshal(text, &before); err != nil && len(text) > 0 {
		fmt.Fprintf(io.Err, "note: %s is not valid JSON: nothing in it is kept\n", path)
		return path, text, gateclient.Config{}, nil
	}
	return path, text, before, nil
}

// config is the gate's configuration: what the flags say, and else what was there before, with absolute paths:
// an agent starts the gate anywhere.
func (c *installCmd) config(before gateclient.Config) (cfg gateclient.Config, err error) {
	if a, _ := hook.Find(c.Agent); c.Defer != nil && *c.Defer && a.Defer == nil {
		return cfg, fmt.Errorf("%s cannot resume a call that waits: leave out --defer", c.Agent)
	}
	cfg = before
	readyFile := gateclient.ReadyFileOf(c.ReadyFile, cmp.Or(c.Gateway, before.Gateway, before.ReadyFile))
	if readyFile != "" || c.Gateway != "" { // another gateway gets nothing that belongs to the one before, least of all its token
		cfg = gateclient.Config{Budget: before.Budget, Prompts: before.Prompts, Defer: before.Defer, ApprovalURL: before.ApprovalURL}
	}
	for member, flag := range map[*string]string{
		&cfg.ReadyFile: readyFile, &cfg.Gateway: c.Gateway, &cfg.TokenFile: c.TokenFile, &cfg.PublicKeyFile: c.PublicKeyFile,
		&cfg.Tenant: c.Tenant, &cfg.Publisher: c.Publisher, &cfg.Budget: c.Budget, &cfg.ApprovalURL: c.ApprovalURL,
	} {
		*member = cmp.Or(flag, *member)
	}
	for member, flag := range map[*bool]*bool{&cfg.Prompts: c.Prompts, &cfg.Defer: c.Defer} {
		if flag != nil {
			*member = *flag
		}
	}
	if cfg.ReadyFile == "" && cfg.Gateway == "" {
		return cfg, errors.New("say where the gateway is: --ready-file FILE, or --gateway URL with --token-file, --key, --tenant and --publisher")
	}
	if cfg.ReadyFile != "" && cmp.Or(cfg.TokenFile, cfg.PublicKeyFile, cfg.Tenant, cfg.Publisher) != "" {
		return cfg, errors.New("--token-file, --key, --tenant and --publisher need --gateway: a ready file has its own")
	}
	for _, path := range []*string{&cfg.ReadyFile, &cfg.TokenFile, &cfg.PublicKeyFile} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return cfg, err
			}
		}
	}
	return cfg, cfg.Check()
}

// write shows what changes in the gate's configuration and writes it.
func (g gateFile) write(io ui.Stdio, dryRun bool) error {
	path := g.path
	text, err := json.MarshalIndent(g.config, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if !showChange(io, path, g.old, text) || dryRun {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("writing the gate's configuration: %w", err)
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return fmt.Errorf("writing the gate's configuration: %w", err)
	}
	fmt.Fprintf(io.Err, "wrote %s\n", path)
	return nil
}

type uninstallCmd struct {
	place
	DryRun bool `help:"Show the difference and change nothing."`
}

func (c *uninstallCmd) Run(_ context.Context, io ui.Stdio) error {
	i, files, err := c.open()
	if err != nil {
		return err
	}
	for _, f := range files {
		changed, err := i.remove(f.text)
		if err != nil {
			return fmt.Errorf("%s cannot be changed: %w", f.path, err)
		}
		if err := replace(io, f.path, f.text, changed, i.mode(), withGate, c.DryRun); err != nil {
			return err
		}
	}
	if dir, err := hookgate.CallsDir(); err == nil {
		if _, err := os.Stat(dir); err == nil {
			fmt.Fprintf(io.Err, "the arguments of calls that waited for a person may be in %s: remove it, unless another agent has the gate\n", dir)
		}
	}
	return nil
}

// Names of backups, after that of the file. The first of each stays.
const (
	beforeGate = ".before-countersign"
	withGate   = ".with-countersign"
)

// showChange shows what changes in a file, and reports whether anything does.
func showChange(io ui.Stdio, path string, old, changed []byte) bool {
	if bytes.Equal(old, changed) {
		fmt.Fprintf(io.Err, "%s stays as it is\n", path)
		return false
	}
	fmt.Fprintf(io.Out, "--- %s\n+++ %s\n", path, path)
	for _, l := range textdiff.Compare(string(old), string(changed)) {
		fmt.Fprintln(io.Out, ui.Clean(l, 400))
	}
	return true
}

// replace shows what changes in a file and writes it, with the old one beside it, or removes it. mode is that of a new
// file.
func replace(io ui.Stdio, path string, old, changed []byte, mode fs.FileMode, backup string, dryRun bool) error {
	if !showChange(io, path, old, changed) || dryRun {
		return nil
	}
	if changed == nil {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing the gate's file: %w", err)
		}
		fmt.Fprintf(io.Err, "removed %s\n", path)
		return nil
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("changing the agent's configuration: %w", err)
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if err := atomicfile.Create(path+backup, old, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("keeping a backup: %w", err)
		}
	}
	if err := atomicfile.Write(path, changed, mode); err != nil {
		return fmt.Errorf("changing the agent's configuration: %w", err)
	}
	fmt.Fprintf(io.Err, "wrote %s\n", path)
	return nil
}
