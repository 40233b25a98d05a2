package main

import (
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// commands is the whole command line; each command is a struct with its flags
// and a Run method in a file of its own.
type commands struct {
	Version versionFlag `help:"Print the version and exit."`

	Up        upCmd        `cmd:"" help:"Start NATS, ClickHouse and the three services on this machine."`
	Demo      demoCmd      `cmd:"" help:"Play sample agent sessions through a pipeline of its own, start to finish."`
	Admit     admitCmd     `cmd:"" help:"Ask for admission once and print the native reply (exit 0 allow, 3 ask or defer, 4 deny)."`
	Evaluate  evaluateCmd  `cmd:"" help:"Decide requests offline, without a server."`
	Check     checkCmd     `cmd:"" help:"Correlate a recorded session offline and print findings."`
	Publish   publishCmd   `cmd:"" help:"Publish events; succeeds only when all are stored durably."`
	Tail      tailCmd      `cmd:"" help:"Follow the decision stream."`
	Chain     chainCmd     `cmd:"" help:"Print the evidence chain of a session."`
	Verify    verifyCmd    `cmd:"" help:"Recompute chain, tree, checkpoints and signatures; succeeds only if everything holds."`
	Export    exportCmd    `cmd:"" help:"Write the compliance bundle of a session."`
	Rules     rulesCmd     `cmd:"" help:"List and explain the rules that findings name."`
	Policy    policyCmd    `cmd:"" help:"Check, test, simulate, push and roll back admission policies."`
	Explain   explainCmd   `cmd:"" help:"Say why a decision was made, and make it again from what was recorded."`
	Mandate   mandateCmd   `cmd:"" help:"Keep, revoke and judge AUMP mandates."`
	Keys      keysCmd      `cmd:"" help:"List, rotate and retire the keys that sign receipts."`
	Publisher publisherCmd `cmd:"" help:"Keep publisher manifests, registrations and tool catalogues."`
	Approvals approvalsCmd `cmd:"" help:"The reviewer's side of ask and defer: list, show, approve, deny, cancel."`
	Doctor    doctorCmd    `cmd:"" help:"Check durability, streams, permissions, lag, clock and keys; say what is unsafe."`
	Provision provisionCmd `cmd:"" help:"Create keys, streams and buckets for a system that 'up' does not run."`
	Engine    engineCmd    `cmd:"" help:"The embedded ClickHouse engine."`
	Bench     benchCmd     `cmd:"" help:"Measure this machine, beside the floors."`
}

type versionFlag bool

// BeforeReset prints the version before anything else is looked at.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	fmt.Fprintln(app.Stdout, "countersign", version)
	app.Exit(exitOK)
	return nil
}
