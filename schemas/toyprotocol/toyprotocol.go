// Package toyprotocol has the row of the tests' toy protocol at the stage of schemas
// (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"testing/fstest"

	"github.com/countersign-dev/countersign/schemas"
)

// Row is the row to load a registry with. An event is {"run": session, "was": type}.
func Row() schemas.Protocol {
	const event = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://schemas.countersign.dev/toy/event/v1","type":"object","required":["run","was"]}`
	return schemas.Protocol{Token: "toy", Schemas: fstest.MapFS{"toy/event.json": {Data: []byte(event)}}}
}
