// Package examples embeds the sample policies, requests and sessions that the documentation
// shows, `countersign demo` plays and the tests run. It holds no code: begin with FS.
package examples

import "embed"

// FS holds policies/*.yaml, gates/*.yaml (policies for aioc's gates and for AAEP's
// confirmations), mandates/*.json, tables/*.yaml, requests/*.json and sessions/*.jsonl.
//
//go:embed policies/*.yaml gates/*.yaml mandates/*.json tables/*.yaml requests/*.json sessions/*.jsonl
var FS embed.FS
