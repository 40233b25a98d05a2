// Command correlator runs the correlator, which links what was admitted with what ran. See
// package internal/service/correlator.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/correlator"
)

func main() { os.Exit(correlator.Main(os.Args[1:])) }
