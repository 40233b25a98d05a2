package strictjson_test

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// A document in which a key stands twice is refused: two readers could see two
// different documents in it.
func ExampleParse() {
	_, err := strictjson.Parse([]byte(`{"transfer":{"amount":10,"amount":1000}}`), strictjson.DefaultLimits)

	var refused *strictjson.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code, refused.Path)
	}
	// Output: duplicate_key /transfer/amount
}

// Documents with the same meaning have one canonical form (RFC 8785): it is what
// digests and signatures are made over.
func ExampleCanonicalBytes() {
	for _, text := range []string{`{ "to": "dana", "amount": 1.0e1 }`, `{"amount":10,"to":"d\u0061na"}`} {
		canonical, err := strictjson.CanonicalBytes([]byte(text))
		fmt.Println(string(canonical), err)
	}
	// Output:
	// {"amount":10,"to":"dana"} <nil>
	// {"amount":10,"to":"dana"} <nil>
}

// Unmarshal fills a Go value. Names are matched to the letter, and an unknown name
// can be an error.
func ExampleUnmarshal() {
	var call struct {
		Tool string `json:"tool"`
	}
	err := strictjson.Unmarshal([]byte(`{"tool":"send_email"}`), &call, strictjson.RejectUnknown)
	fmt.Println(call.Tool, err)

	err = strictjson.Unmarshal([]byte(`{"Tool":"send_email"}`), &call, strictjson.RejectUnknown)
	var refused *strictjson.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code)
	}
	// Output:
	// send_email <nil>
	// unknown_key
}
