// Command gateway runs the gateway, which takes requests and events by HTTP. See package
// internal/service/gateway.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/service/gateway"
)

func main() { os.Exit(gateway.Main(os.Args[1:])) }
