// The correlator links what was admitted with what ran.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/correlator"
)

func main() { os.Exit(correlator.Main(os.Args[1:])) }
