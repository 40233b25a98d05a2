package schemas_test

import (
	"fmt"
	"log"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Validate judges any document by the name of a schema.
func ExampleRegistry_Validate() {
	doc, err := strictjson.ReadObject([]byte(`{"type":"confirmation.reply"}`), strictjson.DefaultLimits)
	if err != nil {
		log.Fatal(err)
	}
	violations := schemas.Default().Validate("aaep/confirmation.reply", doc)
	fmt.Println(schemas.HasErrors(violations))
	for _, v := range violations {
		fmt.Println(v)
	}
	// Output:
	// true
	// the document: missing property decision
	// the document: missing property reply_token
	// the document: missing property subscription_id
	// the document: missing property timestamp
}
