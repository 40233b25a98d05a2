// Command admitter runs the admitter, which answers admission requests with verdicts that have
// durable evidence. See package internal/service/admitter.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/admitter"
)

func main() { os.Exit(admitter.Main(os.Args[1:])) }
