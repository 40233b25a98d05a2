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
	Uninstall uninstallCmd `cmd:"" help:"Take the gate out of an agent's configuration; keeps a backup."`
	Doctor    doctorCmd    `cmd:"" help:"Prove that the gate refuses, also without a gateway, and say what the agent lets past it."`
}

type runCmd struct {
	Agent  string `arg:"" help:"claude-code, codex, gemini, cursor, copilot, cline or opencode."`
	Event  string `arg:"" optional:"" help:"The agent's name of the event, if its input does not have it."`
	Config string `help:"The gate's configuration (default: countersign/hook.json in the user's configuration directory)." placeholder:"FILE"`
}

func (c *runCmd) Run(io ui.Stdio) error {
	if code := hookgate.Run(c.Agent, c.Event, c.Config, hookgate.Stdio{In: io.In, Out: io.Out, Err: io.Err}); code != 0 {
		return ui.ExitCode(code)
	}
	return nil
}

// place selects a configuration of an agent: for the user, for a project or for the machine.
type place struct {
	Agent   string `arg:"" help:"claude-code, codex, gemini, cursor, copilot or opencode."`
	User    bool   `help:"Every project of this user (default)." xor:"scope"`
	Project bool   `help:"The project in the current directory." xor:"scope"`
	Managed bool   `help:"Every user of this machine; the gate's configuration stays yours, so that calls of other users are refused." xor:"scope"`
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

// open finds the configuration and reads it; a missing file is empty.
func (p place) open() (i installation, path string, text []byte, err error) {
	if i, err = findInstallation(p.Agent); err != nil {
		return i, "", nil, ui.UsageError{Err: err}
	}
	if path, err = i.file(p.scope()); err != nil {
		return i, "", nil, ui.UsageError{Err: err}
	}
	if text, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return i, "", nil, fmt.Errorf("reading the agent's configuration: %w", err)
	}
	return i, path, text, nil
}

type installCmd struct {
	place
	ReadyFile     string `help:"Ready file of a running 'up' on this machine: the gate reads gateway, token and key from it." env:"COUNTERSIGN_READY_FILE" placeholder:"FILE" xor:"peer"`
	Gateway       string `help:"Address of the gateway, with the four flags below." placeholder:"URL" xor:"peer"`
	TokenFile     string `help:"A token of the role runtime; a file that only its owner may read." placeholder:"FILE"`
	PublicKeyFile string `name:"key" help:"checkpoint.pub." placeholder:"FILE"`
	Tenant        string `help:"The tenant." placeholder:"NAME"`
	Publisher     string `help:"The publisher for which the token was made." placeholder:"NAME"`
	Budget        string `help:"The longest time until the gate answers, approvals included (default 25s)." placeholder:"DURATION"`
	ApprovalURL   string `name:"approval-url" help:"Address of the page where a person decides, for refusals of calls that wait; {workflow} stands for the workflow's id. Default: the command that shows it." placeholder:"URL"`
	Prompts       *bool  `negatable:"" help:"Report the texts of prompts, not only their length."`
	Defer         *bool  `negatable:"" help:"End a headless run whose call still waits for a person when the time is over; resuming the run repeats the call. Of calls made in parallel, all but the last are lost. Only claude-code can."`
	DryRun        bool   `help:"Show the difference and change nothing."`
}

func (c *installCmd) Run(_ context.Context, io ui.Stdio) error {
	i, path, old, err := c.open()
	if err != nil {
		return err
	}
	command, err := installedCommand(i.agent)
	if err != nil {
		return err
	}
	changed, err := i.merge(old, command)
	if err != nil {
		return fmt.Errorf("%s cannot be changed: %w", path, err)
	}
	configPath, configText, before, err := oldConfig(io)
	if err != nil {
		return err
	}
	config, err := c.config(before)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	if err := replace(io, path, old, changed, beforeGate, c.DryRun); err != nil {
		return err
	}
	if err := writeConfig(io, configPath, configText, config, c.DryRun); err != nil || c.DryRun {
		return err
	}
	if i.after != "" {
		fmt.Fprintf(io.Err, "next: %s\n", i.after)
	}
	fmt.Fprintf(io.Err, "next: countersign hook doctor %s\n", i.agent)
	return nil
}

// oldConfig reads the gate's configuration as it is; it is empty if there is none. All agents of the user share it.
func oldConfig(io ui.Stdio) (path string, text []byte, c gateclient.Config, err error) {
	if path, err = gateclient.DefaultConfigPath(); err != nil {
		return path, nil, c, err
	}
	if text, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, nil, c, fmt.Errorf("reading the gate's configuration: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil && len(text) > 0 {
		fmt.Fprintf(io.Err, "note: %s is not valid JSON: nothing in it is kept\n", path)
		return path, text, gateclient.Config{}, nil
	}
	return path, text, c, nil
}

// config is the gate's configuration: what the flags say, and else what was there before, with absolute paths:
// an agent starts the gate anywhere.
func (c *installCmd) config(before gateclient.Config) (cfg gateclient.Config, err error) {
	if a, _ := hook.Find(c.Agent); c.Defer != nil && *c.Defer && a.Defer == nil {
		return cfg, fmt.Errorf("%s cannot resume a call that waits: leave out --defer", c.Agent)
	}
	cfg = before
	if c.ReadyFile != "" || c.Gateway != "" { // another gateway gets nothing that belongs to the one before, least of all its token
		cfg = gateclient.Config{Budget: before.Budget, Prompts: before.Prompts, Defer: before.Defer, ApprovalURL: before.ApprovalURL}
	}
	for member, flag := range map[*string]string{
		&cfg.ReadyFile: c.ReadyFile, &cfg.Gateway: c.Gateway, &cfg.TokenFile: c.TokenFile, &cfg.PublicKeyFile: c.PublicKeyFile,
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

// writeConfig shows what changes in the gate's configuration and writes it.
func writeConfig(io ui.Stdio, path string, old []byte, config gateclient.Config, dryRun bool) error {
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if !showChange(io, path, old, text) || dryRun {
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
	i, path, old, err := c.open()
	if err != nil {
		return err
	}
	changed, err := i.remove(old)
	if err != nil {
		return fmt.Errorf("%s cannot be changed: %w", path, err)
	}
	return replace(io, path, old, changed, withGate, c.DryRun)
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
	for _, h := range textdiff.Compare(string(old), string(changed)) {
		fmt.Fprintln(io.Out, h.Header())
		for _, l := range h.Lines {
			fmt.Fprintf(io.Out, "%c%s\n", l.Op, ui.Clean(l.Text, 400))
		}
	}
	return true
}

// replace shows what changes in a file and writes it, with the old one beside it, or removes it.
func replace(io ui.Stdio, path string, old, changed []byte, backup string, dryRun bool) error {
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
	mode := fs.FileMode(0o644)
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
