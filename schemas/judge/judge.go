// Package judge judges one event or request of any protocol by its schemas and by the checks on
// one document.
package judge

import (
	"fmt"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Judge judges one event or request of a protocol, as bytes. An error means that the bytes are no
// JSON object that all readers read alike; it quotes no value. A protocol that the table does not
// have is an error, too.
func Judge(protocol string, document []byte) ([]schemas.Violation, error) {
	judge := judges[protocol]
	if judge == nil {
		return nil, fmt.Errorf("there is no such protocol; known are %v", schemas.Tokens())
	}
	v, err := strictjson.ReadObject(document, strictjson.DefaultLimits)
	if err != nil {
		return nil, err
	}
	return judge(v), nil
}

// bySchema judges documents by one schema if they have a member, and by another one if not.
func bySchema(member, with, without string) func(strictjson.Value) []schemas.Violation {
	return func(v strictjson.Value) []schemas.Violation {
		if v.Get(member).Exists() {
			return schemas.Default().Validate(with, v)
		}
		return schemas.Default().Validate(without, v)
	}
}
