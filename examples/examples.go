// Package examples embeds the sample policies, requests and sessions that the documentation
// shows, `countersign demo` plays and the tests run. It holds no code: begin with FS.
package examples

import "embed"

// FS holds the set policies/assistant, gates/*.yaml (policies for aioc's gates and for AAEP's
// confirmations), mandates/*.json, tables/*.yaml, requests/*.json and sessions/*.jsonl.
//
// Each folder of policies is one set: what reads policies reads subfolders as well, so a set that lay
// in policies itself would be put in force together with the others.
//
//go:embed policies/assistant/*.yaml gates/*.yaml mandates/*.json tables/*.yaml requests/*.json sessions/*.jsonl
var FS embed.FS
