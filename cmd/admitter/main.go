// The admitter answers admission requests with verdicts that have durable evidence.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/admitter"
)

func main() { os.Exit(admitter.Main(os.Args[1:])) }
