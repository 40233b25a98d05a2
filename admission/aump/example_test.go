package aump_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// A mandate says what an agent may do, and for how much. What lies within it is
// allowed; what lies beyond it is denied or goes to a person.
func ExampleEvaluate() {
	text, err := os.ReadFile("../../schemas/testdata/corpus/aump/mandate/valid/minimal.json") // EUR 200.00 for couriers
	if err != nil {
		log.Fatal(err)
	}
	m, err := mandate.Compile(text, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, action := range []wire.Action{
		{Type: "book_courier", Summary: "Book the van."},
		{Type: "buy_van", Summary: "Buy the van."},
	} {
		result := aump.Evaluate(aump.Input{
			Mandate: m, Ref: wire.Ref{ID: m.ID, Hash: m.Hash, Version: "0.1.0"}, Action: action,
			Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		})
		fmt.Println(action.Type, result.Decision, result.ReasonCodes())
	}
	// Output:
	// book_courier allowed []
	// buy_van denied [scope_violation]
}

// Validate judges one document and says whether it can be used at a time.
func ExampleValidate() {
	text, err := os.ReadFile("../../schemas/testdata/corpus/aump/mandate/valid/minimal.json")
	if err != nil {
		log.Fatal(err)
	}
	report, err := aump.Validate(aump.KindMandate, text, nil, time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Valid, report.ReasonCodes)
	// Output: false [mandate_expired]
}
