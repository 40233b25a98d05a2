package verify

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// against is what evidence is verified against, read from flags and files.
type against struct {
	public       string // checkpoint key
	keys         []note.Verifier
	kept         []verify.Published
	witnesses    []note.Verifier
	receipts     []string
	retired      []events.KeyRetirement
	since, until time.Time
}

// Bounds of the files that the flags name.
const (
	maxReceiptFile = 64 << 20
)

// against reads everything but the checkpoint key.
func (c *Cmd) against() (a against, err error) {
	if err := c.consistent(); err != nil {
		return a, err
	}
	for _, path := range c.From {
		b, err := ui.ReadSmallFile("--from-checkpoint", path, ui.MaxKeptFile)
		if err != nil {
			return a, err
		}
		a.kept = append(a.kept, verify.Published{Source: path, Text: string(b)})
	}
	for _, key := range c.Witness {
		v, _, err := witnessKey(key)
		if err != nil {
			return a, err
		}
		a.witnesses = append(a.witnesses, v)
	}
	for _, path := range c.Receipt {
		b, err := ui.ReadSmallFile("--receipt", path, maxReceiptFile)
		if err != nil {
			return a, err
		}
		a.receipts = append(a.receipts, strings.Fields(string(b))...)
	}
	for _, path := range c.Retired {
		b, err := ui.ReadSmallFile("--retired", path, ui.MaxKeptFile)
		if err != nil {
			return a, err
		}
		k, err := events.DecodeRecord[events.KeyRetirement](bytes.TrimSpace(b))
		if err != nil {
			return a, ui.UsageError{Err: fmt.Errorf("--retired: %s is not the retirement of a key: %w", path, err)}
		}
		a.retired = append(a.retired, k)
	}
	for flag, bound := range map[string]struct {
		text string
		into *time.Time
	}{"--since": {c.Since, &a.since}, "--until": {c.Until, &a.until}} {
		if bound.text == "" {
			continue
		}
		if *bound.into, err = ui.ParseMoment(bound.text, time.Now()); err != nil {
			return a, ui.UsageError{Err: fmt.Errorf("%s %w", flag, err)}
		}
	}
	return a, nil
}

// consistent refuses flags that do not go together: a requested check that is not made must not
// look like one that passed.
func (c *Cmd) consistent() error {
	offline := c.Bundle != "" || c.Proof != ""
	times := c.Since != "" || c.Until != ""
	for _, rule := range []struct {
		broken bool
		says   string
	}{
		{c.Bundle != "" && c.Proof != "", "--bundle and --proof are two files: verify them one after the other"},
		{offline && (c.Session != "" || times || c.Shard != "" || c.Prove > 0), "--bundle and --proof verify the whole file; leave --session, --since, --until, --shard and --prove out"},
		{offline && len(c.From) > 0, "--from-checkpoint needs the log: leave --bundle and --proof out"},
		{offline && len(c.Receipt) > 0, "--receipt needs the log: leave --bundle and --proof out"},
		{c.Session != "" && times, "--session verifies the whole session; leave --since and --until out"},
		{times && (len(c.Receipt) > 0 || c.AtLeast > 0), "--receipt and --at-least are about the whole log; leave --since and --until out"},
		{len(c.Retired) > 0 && c.Bundle == "", "--retired is for --bundle; elsewhere the log has the retirements"},
		{c.StatementKey != "" && c.Bundle == "", "--statement-key is for --bundle"},
		{(c.Prove > 0) != (c.Out != ""), "--prove SEQ and --out FILE go together"},
		{c.Prove > 0 && (c.Session != "" || times || len(c.From) > 0 || len(c.Receipt) > 0 || c.AtLeast > 0), "--prove writes one proof; verify the rest without it"},
		{c.Proof != "" && c.AtLeast > 1, "--proof holds one record"},
		{c.Quorum < 0 || c.Quorum > len(c.Witness), "--quorum must be at most the number of --witness keys"},
		{c.Unwitnessed != nil && (len(c.Witness) == 0 || offline || *c.Unwitnessed < 0), "--unwitnessed limits what is behind the newest checkpoint of the --witness keys; a --bundle or --proof has one checkpoint"},
		{c.Workers < 0, "--workers must not be negative"},
	} {
		if rule.broken {
			return ui.UsageError{Err: errors.New(rule.says)}
		}
	}
	return nil
}

// key finds the public checkpoint key.
func (a *against) key(flag string, t *target.Target) (err error) {
	if a.public, err = system.CheckpointKey(flag, t); err == nil {
		a.keys, err = system.CheckpointVerifiers(a.public)
	}
	return err
}

// offlineKey finds the key without a system: from --key, or from the ready file if one is named.
func (c *Cmd) offlineKey(a *against) error {
	var ready *target.Target
	if c.Key == "" && c.ReadyFile != "" {
		var err error
		if ready, err = c.Resolve(); err != nil {
			return err
		}
	}
	return a.key(c.Key, ready)
}

// witnessKey reads a witness's public key, or the file that holds it, and also returns its text.
func witnessKey(given string) (v note.Verifier, text string, err error) {
	text = given
	if b, err := os.ReadFile(given); err == nil {
		text = string(b)
	} else if !strings.Contains(given, "+") { // a key contains plus signs, so this is a file name
		return nil, "", ui.UsageError{Err: fmt.Errorf("reading the witness's key: %w", err)}
	}
	if v, err = tree.NewWitness(text); err != nil {
		return nil, "", ui.UsageError{Err: fmt.Errorf("the witness's key: %w", err)}
	}
	return v, strings.TrimSpace(text), nil
}
