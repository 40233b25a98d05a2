package cloudevents_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/countersign-dev/countersign/events/cloudevents"
)

// Decode reads a NATS message in whatever mode it is, and hands out the producer's
// event byte for byte.
func ExampleDecode() {
	structured := `{"specversion":"1.0","id":"e1","source":"rt1","type":"hook","data":{"event_type": "PreToolUse"}}`
	e, err := cloudevents.Decode(map[string][]string{"Content-Type": {cloudevents.ContentTypeStructured}}, []byte(structured))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Mode, e.ID, string(e.Data))

	e, err = cloudevents.Decode(nil, []byte(`{"event_type": "PreToolUse"}`))
	fmt.Println(e.Mode, string(e.Data), err)

	_, err = cloudevents.Decode(map[string][]string{"ce-specversion": {"0.3"}}, nil)
	fmt.Println(errors.Is(err, cloudevents.ErrSpecVersion))
	// Output:
	// structured e1 {"event_type": "PreToolUse"}
	// plain {"event_type": "PreToolUse"} <nil>
	// true
}

// Binary builds the headers of a message; the body is the event itself.
func ExampleBinary() {
	header := cloudevents.Binary(cloudevents.Attributes{
		ID: "d1", Source: "/admitter", Type: "dev.countersign.decision.v1", Extra: map[string]string{"tenant": "acme"},
	})
	for _, name := range []string{"ce-specversion", "ce-id", "ce-type", "ce-tenant", "ce-datacontenttype"} {
		fmt.Println(name, header[name])
	}
	// Output:
	// ce-specversion [1.0]
	// ce-id [d1]
	// ce-type [dev.countersign.decision.v1]
	// ce-tenant [acme]
	// ce-datacontenttype [application/json]
}
