// Command auditor runs the auditor, which writes redacted, tamper-evident evidence to ClickHouse.
// See package internal/service/auditor.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/auditor"
)

func main() { os.Exit(auditor.Main(os.Args[1:])) }
