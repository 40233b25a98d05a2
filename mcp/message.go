// Package mcp is what a gate in front of a Model Context Protocol server needs to know of the
// protocol: messages and what they are, tool definitions and their digests, a tools/call as AgentHook
// events, and refusals. It is pure; package internal/mcpgate reads, asks and writes. Begin reading with
// Parse and Call.
package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// MaxMessage is the largest message that a gate reads, in bytes.
const MaxMessage = 32 << 20

// ErrMessage reports a message that must not be passed on: two readers could take it for different
// messages.
var ErrMessage = errors.New("the message cannot be passed on")

// Message is a JSON-RPC message. Its members are the bytes that came.
type Message struct {
	ID     ID     // empty for a notification
	Method string // empty for a response
	Params json.RawMessage
	Result json.RawMessage // of a response that is no error
	Failed bool            // a response that is an error
}

// ID is the id of a request as it is written, a text or a whole number; "" if there is none.
type ID string

// Key maps ids that a careless reader does not tell apart, such as 1 and "1", to one text.
func (id ID) Key() string {
	var text string
	if json.Unmarshal([]byte(id), &text) == nil {
		return text
	}
	return string(id)
}

// IsRequest reports whether the message asks the other side for an answer.
func (m Message) IsRequest() bool { return m.Method != "" && m.ID != "" }

// IsNotification reports whether a message asks for no answer.
func (m Message) IsNotification() bool { return m.Method != "" && m.ID == "" }

// envelope are the members of a JSON-RPC message.
var envelope = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// maxID bounds an id, in bytes: a gate remembers those of cancelled requests.
const maxID = 256

var wholeNumber = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,17})$`)

// Parse reads a message. It refuses what readers understand differently: batches, members twice at any
// depth, members of the envelope in another case, text that is not UTF-8, a line break within, an id
// that is neither a text nor a whole number, a message that is request and response at once. The error
// is ErrMessage with a reason that quotes nothing.
func Parse(line []byte) (Message, error) {
	line = bytes.TrimRight(line, "\r\n")
	if bytes.ContainsAny(line, "\r\n") {
		return Message{}, fmt.Errorf("%w: there is a line break in it", ErrMessage)
	}
	o, err := members(line, envelope)
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	m := Message{Params: o["params"], Result: o["result"], Failed: o["error"] != nil}
	if text := o["method"]; text != nil {
		if m.Method, err = readMethod(text); err != nil {
			return Message{}, err
		}
	}
	if id := o["id"]; id != nil {
		if id[0] != '"' && !wholeNumber.Match(id) {
			return Message{}, fmt.Errorf("%w: the id is neither a text nor a whole number", ErrMessage)
		}
		if len(id) > maxID {
			return Message{}, fmt.Errorf("%w: the id has more than %d bytes", ErrMessage, maxID)
		}
		m.ID = ID(id)
	}
	return m, m.check(string(o["jsonrpc"]))
}

// UnreadID is the id of a message that Parse refuses: what every reader takes for it, "" if there is no such id.
// answers tells a response from a request.
func UnreadID(line []byte) (id ID, answers bool) {
	d := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != jsontext.KindBeginObject {
		return "", false
	}
	var ids, methods int
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return "", false
		}
		known := strings.ToLower(name.String())
		value, err := d.ReadValue()
		if err != nil {
			return "", false
		}
		switch known {
		case "id":
			id = readID(value)
			ids++
		case "method":
			methods++
		case "result", "error":
			answers = true
		}
	}
	_, broken := d.ReadToken()
	if _, err := d.ReadToken(); broken != nil || !errors.Is(err, io.EOF) || ids != 1 || answers == (methods > 0) {
		return "", false
	}
	return id, answers
}

// readID reads an id; a number as the whole one that it is, in whatever form.
func readID(value jsontext.Value) ID {
	if n, err := strconv.ParseFloat(string(value), 64); err == nil && !wholeNumber.Match(value) {
		value = strconv.AppendFloat(nil, n, 'f', -1, 64)
	}
	if value.Kind() == jsontext.KindString && !value.IsValid() || value.Kind() != jsontext.KindString && !wholeNumber.Match(value) || len(value) > maxID {
		return ""
	}
	return ID(value)
}

// ReadQuestion reads a request without its envelope, as gateways show it to a decision point: an object
// with method and params.
func ReadQuestion(body []byte) (method string, params json.RawMessage, err error) {
	o, err := members(body, envelope)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	method, err = readMethod(o["method"])
	return method, o["params"], err
}

func readMethod(raw json.RawMessage) (method string, err error) {
	if json.Unmarshal(raw, &method) != nil || method == "" {
		return "", fmt.Errorf("%w: the method is no text", ErrMessage)
	}
	return method, CheckMethod(method)
}

// CheckMethod refuses what a careless server may take for a method that a gate treats in its own way: in another case,
// or with blanks around it.
func CheckMethod(method string) error {
	for _, own := range []string{MethodCall, MethodList, MethodRead, MethodPrompt, MethodCanceled, MethodTaskUpdate} {
		if method != own && strings.EqualFold(strings.TrimSpace(method), own) {
			return fmt.Errorf("%w: its method is written like %s", ErrMessage, own)
		}
	}
	return nil
}

// check reports what is wrong with a message as a whole.
func (m Message) check(version string) error {
	answers := 0
	if m.Result != nil {
		answers++
	}
	if m.Failed {
		answers++
	}
	switch {
	case version != `"2.0"`:
		return fmt.Errorf("%w: it is not JSON-RPC 2.0", ErrMessage)
	case m.Method != "" && answers > 0:
		return fmt.Errorf("%w: it is a request and a response", ErrMessage)
	case m.Method == "" && answers != 1:
		return fmt.Errorf("%w: it is neither a request nor one response", ErrMessage)
	case m.Method == "" && m.ID == "" && !m.Failed:
		return fmt.Errorf("%w: it answers no request", ErrMessage)
	}
	return nil
}

// members reads an object with exact names. Names of known in another case are refused: some readers
// do not tell them apart.
func members(raw []byte, known []string) (map[string]json.RawMessage, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	whole, err := d.ReadValue() // refuses duplicates at any depth, and what is not UTF-8
	if err != nil || whole.Kind() != jsontext.KindBeginObject {
		return nil, errors.New("it is no strict JSON object")
	}
	if rest := bytes.TrimLeft(raw[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, errors.New("something follows the JSON object")
	}
	o := map[string]json.RawMessage{}
	if err := json.Unmarshal(whole, &o); err != nil {
		return nil, errors.New("it is no strict JSON object")
	}
	for name := range o {
		for _, k := range known {
			if name != k && strings.EqualFold(name, k) {
				return nil, fmt.Errorf("a member is written like %s in another case", k)
			}
		}
	}
	return o, nil
}

// canonical returns the one form of a value whose members have any order and whose texts any spelling. Numbers stay as
// they are written: as doubles, which RFC 8785 makes of them, long ids of two accounts or users are one.
func canonical(raw []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return v, err
}

// argumentsOf returns the arguments of a call, {} if there are none, and refuses what two tools could
// read differently.
func argumentsOf(raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return json.RawMessage("{}"), nil
	}
	if _, err := strictjson.ParseObject(raw, strictjson.DefaultLimits); err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	return raw, nil
}
