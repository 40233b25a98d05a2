// Package child is the other side of the pipeline: the processes that it starts are
// its own binary, which runs one of the services here.
package child

import (
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/auditor"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/storage"
)

// exitUsage is the exit code for a service that is not known.
const exitUsage = 2

var services = map[string]func(args []string) int{
	"admitter":   admitter.Main,
	"correlator": correlator.Main,
	"auditor":    auditor.Main,
	"nats":       pipeline.NATSMain,
}

// RunIfAsked runs this process as the ClickHouse engine or as a service, if its
// parent started it as one, and ends it. The main function of every program that
// runs a pipeline calls it first.
func RunIfAsked() {
	storage.RunEngineChildIfAsked()
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
