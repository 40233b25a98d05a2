package mandate_test

import (
	"fmt"
	"log"
	"os"
	"testing/fstest"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
)

// courier is a mandate of the sample corpus: EUR 200.00 for booking couriers.
const courier = "../../../schemas/testdata/corpus/aump/mandate/valid/minimal.json"

// Compile reads a mandate once, so that deciding under it costs little. A document
// that breaks the schema is kept with its violations; requests under it are denied.
func ExampleCompile() {
	text, err := os.ReadFile(courier)
	if err != nil {
		log.Fatal(err)
	}
	m, err := mandate.Compile(text, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.ID, m.Authority.Mode, m.Violations)

	m, err = mandate.Compile([]byte(`{"id":"aump_mnd_empty"}`), nil)
	fmt.Println(m.ID, len(m.Violations) > 0, err)
	// Output:
	// aump_mnd_courier_01 delegated []
	// aump_mnd_empty true <nil>
}

// A directory of mandates is a source for decisions without a service.
func ExampleLoad() {
	text, err := os.ReadFile(courier)
	if err != nil {
		log.Fatal(err)
	}
	directory, err := mandate.Load(fstest.MapFS{"courier.json": {Data: text}}) // os.DirFS("mandates")
	if err != nil {
		log.Fatal(err)
	}
	compiled, err := mandate.Compile(text, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(directory.Len(), directory.Mandate("acme", "aump_mnd_courier_01", compiled.Hash) != nil)
	// Output: 1 true
}
