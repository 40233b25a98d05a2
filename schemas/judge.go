package schemas

import (
	"fmt"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Judge judges one event or request of a protocol, as bytes: by its schemas and by the checks on one
// document. An error means that the bytes are no JSON object that all readers read alike; it quotes no
// value. A protocol that the table does not have is an error, too.
func Judge(protocol string, document []byte) ([]Violation, error) {
	judge := judges()[protocol]
	if judge == nil {
		return nil, fmt.Errorf("there is no such protocol; known are %v", Tokens())
	}
	var d strictjson.Document
	v, err := d.ParseObject(document, strictjson.DefaultLimits)
	if err != nil {
		return nil, err
	}
	return judge(v), nil
}

// Tokens lists the tokens of the protocols.
func Tokens() (list []string) {
	for _, p := range protocols {
		list = append(list, p.Token)
	}
	return list
}

// bySchema judges documents by one schema if they have a member, and by another one if not.
func bySchema(member, with, without string) func(strictjson.Value) []Violation {
	return func(v strictjson.Value) []Violation {
		if v.Get(member).Exists() {
			return Default().Validate(with, v)
		}
		return Default().Validate(without, v)
	}
}
