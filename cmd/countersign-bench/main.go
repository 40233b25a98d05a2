// Command countersign-bench measures this machine and Countersign on it, beside the
// floors that server, disk and database set. It is no part of the product.
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
