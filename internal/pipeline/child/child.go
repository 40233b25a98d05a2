// Package child is the child side of package pipeline: a process that pipeline starts from its
// own binary runs one of the services here. Programs that run a pipeline call RunIfAsked first.
package child

import (
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/auditor"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/internal/service/gateway"
	"github.com/countersign-dev/countersign/storage/engine"
)

// exitUsage is the exit code for an unknown service.
const exitUsage = 2

var services = map[string]func(args []string) int{
	"admitter":   admitter.Main,
	"correlator": correlator.Main,
	"auditor":    auditor.Main,
	"gateway":    gateway.Main,
	"nats":       pipeline.NATSMain,
}

// RunIfAsked runs this process as the ClickHouse engine or as a service and exits, if its parent
// started it as one. The main function of every program that runs a pipeline calls it first.
func RunIfAsked() {
	engine.RunChildIfAsked()
	if len(os.Args) > 2 && os.Args[1] == pipeline.ServiceArg {
		os.Exit(run(os.Args[2], os.Args[3:]))
	}
}

func run(name string, args []string) int {
	if service, known := services[name]; known {
		return service(args)
	}
	fmt.Fprintf(os.Stderr, "countersign: no service %q\n", name)
	return exitUsage
}
