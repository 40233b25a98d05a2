// Command countersign-bench measures Countersign on this machine, and the limits that server,
// disk and database set. It is not part of the product. See package internal/bench.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/bench"
	"github.com/countersign-dev/countersign/internal/pipeline/child"
)

func main() {
	child.RunIfAsked()
	os.Exit(bench.Program().Main())
}
