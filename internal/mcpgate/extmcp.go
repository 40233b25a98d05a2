package mcpgate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countersign-dev/countersign/mcp"
)

// The messages of agentgateway's ExtMCP, service agentgateway.dev.ext_mcp.ExtMcp, as protocol buffers: the
// fields that are used here, in the shape that has params and results as bytes of JSON. In the older
// shape they are a google.protobuf.Struct, which is never strict JSON: a call in it is refused.

// Paths of the service's methods.
const (
	extCheckRequest  = "/agentgateway.dev.ext_mcp.ExtMcp/CheckRequest"
	extCheckResponse = "/agentgateway.dev.ext_mcp.ExtMcp/CheckResponse"
)

// Fields of McpRequest and McpResponse.
const (
	extServers  protowire.Number = 1 // texts: the one server of a call, all servers of a list
	extMethod   protowire.Number = 2
	extMetadata protowire.Number = 3 // what the gateway's configuration says of the request
	extBody     protowire.Number = 4 // the params of a request, the result of a response
)

// extQuestion is an McpRequest or McpResponse.
type extQuestion struct {
	server   string // "" if there is not exactly one
	method   string
	metadata []byte
	body     json.RawMessage // nil if there is none
}

// errExtMessage reports a message that is none of ExtMCP, or that two readers could take for different ones.
var errExtMessage = errors.New("it is no message of ExtMCP")

// readExtQuestion reads an McpRequest or McpResponse. Unknown fields are skipped; a known one that must be
// there once and is there twice is refused.
func readExtQuestion(message []byte) (extQuestion, error) {
	var q extQuestion
	servers, seen := 0, map[protowire.Number]bool{}
	err := eachField(message, func(number protowire.Number, value []byte) error {
		if number != extServers && seen[number] && number <= extBody {
			return errExtMessage
		}
		seen[number] = true
		switch number {
		case extServers:
			servers++
			q.server = string(value)
		case extMethod:
			q.method = string(value)
		case extMetadata:
			q.metadata = value
		case extBody:
			q.body = append(json.RawMessage{}, value...)
		}
		return nil
	})
	if servers != 1 {
		q.server = ""
	}
	if err == nil && (q.method == "" || !utf8.ValidString(q.method)) {
		err = errExtMessage
	}
	if err == nil {
		err = mcp.CheckMethod(q.method)
	}
	return q, err
}

// eachField calls use with each field of a message that has a length. The first four fields of every message of
// ExtMCP that is read here have one; so a field up to extBody without one is refused.
func eachField(message []byte, use func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errExtMessage
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return errExtMessage
		}
		value, _ := protowire.ConsumeBytes(message)
		switch {
		case kind == protowire.BytesType:
			if err := use(number, value); err != nil {
				return err
			}
		case number <= extBody:
			return errExtMessage
		}
		message = message[n:]
	}
	return nil
}

// Fields of google.protobuf.Struct, of an entry of its map, and of google.protobuf.Value.
const (
	structFields protowire.Number = 1
	entryKey     protowire.Number = 1
	entryValue   protowire.Number = 2
	valueText    protowire.Number = 3
)

// errMetadata reports metadata that does not name a caller.
var errMetadata = errors.New("the gateway's metadata must be texts, each once: lists, numbers and objects name no caller")

// nullValue is a google.protobuf.Value that is null: an expression that gave nothing.
var nullValue = []byte{0x08, 0x00}

// readExtMetadata reads a google.protobuf.Struct of texts. What is null is left out.
func readExtMetadata(message []byte) (map[string]string, error) {
	texts := map[string]string{}
	err := eachField(message, func(number protowire.Number, entry []byte) error {
		if number != structFields {
			return errMetadata
		}
		members, err := onceEach(entry, entryKey, entryValue)
		if err != nil || bytes.Equal(members[entryValue], nullValue) {
			return err
		}
		value, err := onceEach(members[entryValue], valueText)
		key, text := string(members[entryKey]), value[valueText]
		if _, twice := texts[key]; err != nil || twice || text == nil || !utf8.ValidString(key) || !utf8.Valid(text) {
			return errMetadata
		}
		texts[key] = string(text)
		return nil
	})
	if err != nil {
		return nil, errMetadata
	}
	return texts, nil
}

// onceEach returns the fields of a message that has no others, and none twice.
func onceEach(message []byte, known ...protowire.Number) (map[protowire.Number][]byte, error) {
	fields := map[protowire.Number][]byte{}
	err := eachField(message, func(number protowire.Number, value []byte) error {
		if fields[number] != nil || !slices.Contains(known, number) {
			return errExtMessage
		}
		fields[number] = append([]byte{}, value...) // not nil
		return nil
	})
	return fields, err
}

// Fields of McpRequestResult and McpResponseResult.
const (
	extPass        protowire.Number = 1 // an empty message
	extError       protowire.Number = 3 // AuthorizationError
	extNewMetadata protowire.Number = 5 // only of McpRequestResult
)

// extPasses is the result that the request or response passes as it is. With an id, expressions of the
// gateway's configuration find it as mcpGuardrails.countersign_call.
func extPasses(id string) []byte {
	b := appendField(nil, extPass, nil)
	if id == "" {
		return b
	}
	entry := appendField(nil, entryKey, []byte(metadataCall))
	entry = appendField(entry, entryValue, appendField(nil, valueText, []byte(id)))
	return appendField(b, extNewMetadata, appendField(nil, structFields, entry))
}

// metadataCall names the id of an admitted call in metadata.
const metadataCall = "countersign_call"

// Fields of AuthorizationError, and its codes. The gateway makes a JSON-RPC error of it, whose data is the
// payload.
const (
	extErrorCode    protowire.Number = 1
	extErrorReason  protowire.Number = 2
	extErrorPayload protowire.Number = 3

	extDenied    = 1
	extExhausted = 2
	extInvalid   = 3
)

// extCodes are the codes of refusals that are no denial. 0, which is not written, is the gateway's internal
// error.
var extCodes = map[string]uint64{
	"bad_call": extInvalid, "bad_arguments": extInvalid, "too_many_requests": extExhausted,
	noVerdictCode: 0, "bad_configuration": 0, "internal_error": 0,
}

// extRefuses is the result that a request is refused. The payload is left out where the gateway may have
// the older shape: it could not read it, and may pass what it has no readable answer to.
func extRefuses(r *mcp.Refusal, payload bool) []byte {
	code, other := extCodes[r.Code]
	if !other {
		code = extDenied
	}
	var e []byte
	if code != 0 {
		e = protowire.AppendVarint(protowire.AppendTag(e, extErrorCode, protowire.VarintType), code)
	}
	e = appendField(e, extErrorReason, []byte(r.Text))
	if text, err := json.Marshal(r); err == nil && payload {
		e = appendField(e, extErrorPayload, text)
	}
	return appendField(nil, extError, e)
}

func appendField(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// frameHead is how many bytes of gRPC are before a message: whether it is compressed, and its length.
const frameHead = 5

// readFrame reads the one message of a unary call of gRPC, of at most most bytes.
func readFrame(body io.Reader, most uint32) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(body, head[:]); err != nil {
		return nil, errors.New("the message is missing, or was cut off")
	}
	size := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0] != 0:
		return nil, errors.New("the message is compressed")
	case size > most:
		return nil, fmt.Errorf("the message has %d bytes, of %d at most", size, most)
	}
	message, err := io.ReadAll(io.LimitReader(body, int64(size)+1)) // as it comes: what is announced may not come
	if err != nil || len(message) != int(size) {
		return nil, errors.New("the message was cut off, or is not the only one")
	}
	return message, nil
}

// frame is a message with its length before it.
func frame(message []byte) []byte {
	head := make([]byte, frameHead, frameHead+len(message))
	binary.BigEndian.PutUint32(head[1:], uint32(len(message)))
	return append(head, message...)
}
