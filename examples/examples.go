// Package examples embeds the sample policies, requests and sessions that the documentation
// shows, `countersign demo` plays and the tests run. It holds no code: begin with FS.
package examples

import "embed"

// FS holds policies/*.yaml, tables/*.yaml, requests/*.json and sessions/*.jsonl.
//
//go:embed policies/*.yaml tables/*.yaml requests/*.json sessions/*.jsonl
var FS embed.FS
