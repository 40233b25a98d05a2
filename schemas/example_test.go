package schemas_test

import (
	"fmt"
	"log"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// An event is judged by its protocol's schema and by what the protocol demands in
// its text. A violation says where and what, and quotes no value.
func ExampleStrictAgentHook() {
	event := `{"schema_version":1,"event_id":"0199a000-0000-7000-8000-000000000001","event_type":"PreToolUse",
		"timestamp":"yesterday","source":"rt1","session_id":"s1","tool_name":"send_email","tool_input":{}}`
	doc, err := strictjson.ReadObject([]byte(event), strictjson.DefaultLimits)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range schemas.StrictAgentHook(doc) {
		fmt.Println(v.Level, v.Path, v.Keyword)
	}
	// Output: error /timestamp format
}

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
