package agenthook_test

import (
	"fmt"
	"log"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/agenthook"
)

// An event is judged by its protocol's schema and by what the protocol demands in
// its text. A violation says where and what, and quotes no value.
func ExampleStrict() {
	event := `{"schema_version":1,"event_id":"0199a000-0000-7000-8000-000000000001","event_type":"PreToolUse",
		"timestamp":"yesterday","source":"rt1","session_id":"s1","tool_name":"send_email","tool_input":{}}`
	doc, err := strictjson.ReadObject([]byte(event), strictjson.DefaultLimits)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range agenthook.Strict(doc) {
		fmt.Println(v.Level, v.Path, v.Keyword)
	}
	// Output: error /timestamp format
}
