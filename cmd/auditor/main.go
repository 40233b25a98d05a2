// The auditor writes redacted, tamper-evident evidence to ClickHouse.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/auditor"
)

func main() { os.Exit(auditor.Main(os.Args[1:])) }
