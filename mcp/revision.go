package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Stateless is the first revision of the protocol without sessions: a request says all that it needs.
const Stateless = "2026-07-28"

// Revisions are the revisions of the protocol over HTTP that a gate knows, the newest first. In one that
// it does not know, a method could have effects that it does not see.
var Revisions = []string{Stateless, "2025-11-25", "2025-06-18", "2025-03-26"}

// RevisionsOfStreams are those over standard input and output: the oldest is no revision over this HTTP.
var RevisionsOfStreams = append(slices.Clone(Revisions), "2024-11-05")

// Headers of the protocol over HTTP.
const (
	HeaderRevision = "Mcp-Protocol-Version"
	HeaderSession  = "Mcp-Session-Id"
	HeaderMethod   = "Mcp-Method"
	HeaderName     = "Mcp-Name"
)

// Codes of errors in requests over HTTP.
const (
	CodeInvalid  = codeInvalid
	CodeInternal = codeInternal
	CodeMismatch = -32020
	CodeRevision = -32022
)

// metaRevision is the member of _meta that has a request's revision.
const metaRevision = "io.modelcontextprotocol/protocolVersion"

// CheckHeaders holds the headers of a request without a session against its body: a server that goes by
// the headers must not run something else than the body says. The values are as http.Header.Values has
// them.
func (m Message) CheckHeaders(h http.Header) error {
	if !m.IsRequest() {
		return nil
	}
	params, err := members(m.Params, nil)
	if err != nil {
		return fmt.Errorf("%w: it has no params", ErrMessage)
	}
	meta, err := members(params["_meta"], nil)
	if err != nil {
		return fmt.Errorf("%w: it has no _meta", ErrMessage)
	}
	want := map[string]string{HeaderMethod: m.Method, HeaderRevision: text(meta[metaRevision])}
	if name, has := m.subject(params); has {
		want[HeaderName] = name
	}
	for header, value := range want {
		if got := h.Values(header); len(got) != 1 || decoded(got[0]) != value {
			return fmt.Errorf("%w: the header %s does not say what the body says", ErrMessage, header)
		}
	}
	return nil
}

// namedBy is the member of params that the header Mcp-Name repeats, by method (tasks: SEP-2663).
var namedBy = map[string]string{
	MethodCall: "name", MethodPrompt: "name", MethodRead: "uri", "tasks/get": "taskId", "tasks/cancel": "taskId", MethodTaskUpdate: "taskId",
}

// subject is what a request names: a tool, a prompt, a resource or a task.
func (m Message) subject(params map[string]json.RawMessage) (string, bool) {
	member := namedBy[m.Method]
	return text(params[member]), member != ""
}

// Headers returns the headers that a gate sends with a request without a session. They repeat what the
// body says. find returns the tool that a call names.
func (m Message) Headers(find func(name string) (Tool, bool)) map[string]string {
	h := map[string]string{HeaderMethod: encoded(m.Method)}
	params, _ := members(m.Params, nil) // params that are none name nothing
	name, has := m.subject(params)
	if has {
		h[HeaderName] = encoded(name)
	}
	if m.Method == MethodCall {
		t, _ := find(name) // a tool that is not known has no headers
		t.addHeaders(h, params["arguments"])
	}
	return h
}

// argumentHeader is an argument of a tool that calls without a session repeat in a header (SEP-2243): the tool's
// schema says so.
type argumentHeader struct {
	path []string // of the argument
	name string   // of the header
}

const (
	headerKeyword  = "x-mcp-header"
	headerArgument = "Mcp-Param-" // begins the header's name
)

// Bounds of what a schema may ask for.
const (
	maxArgumentHeaders = 64
	maxArgumentDepth   = 16
	maxArgumentName    = 256
)

// headerToken is what may follow headerArgument.
var headerToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")

// argumentHeaders reads the headers that the schema of a tool's arguments asks for.
func argumentHeaders(schema json.RawMessage) (found []argumentHeader) {
	var collect func(schema any, path []string)
	collect = func(schema any, path []string) {
		o, _ := schema.(map[string]any)
		if name, is := o[headerKeyword].(string); is && len(path) > 0 && headerToken.MatchString(name) && len(found) < maxArgumentHeaders {
			found = append(found, argumentHeader{slices.Clone(path), headerArgument + name})
		}
		properties, _ := o["properties"].(map[string]any)
		if len(path) == maxArgumentDepth {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if len(name) <= maxArgumentName {
				collect(properties[name], append(path, name))
			}
		}
	}
	var whole any
	_ = json.Unmarshal(schema, &whole) // a schema that is none asks for nothing
	collect(whole, nil)
	return found
}

// addHeaders adds the headers of a call of the tool.
func (t Tool) addHeaders(h map[string]string, arguments json.RawMessage) {
	if len(t.headers) == 0 {
		return
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var whole any
	_ = d.Decode(&whole) // arguments that are none have no headers
	for _, a := range t.headers {
		at := whole
		for _, name := range a.path {
			o, _ := at.(map[string]any)
			at = o[name]
		}
		if value, is := headerValue(at); is {
			h[a.name] = encoded(value)
		}
	}
}

// maxExact is the largest whole number that all clients write alike.
const maxExact = 1<<53 - 1

// headerValue is an argument as a header has it; ok is false for what no header repeats.
func headerValue(argument any) (value string, ok bool) {
	switch v := argument.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		n, err := v.Float64()
		return strconv.FormatFloat(n, 'f', 0, 64), err == nil && n == math.Trunc(n) && math.Abs(n) <= maxExact
	}
	return "", false
}

// Revision is the revision in the result of an initialize, on which client and server agree; "" if the
// result has none.
func (m Message) Revision() string {
	result, _ := members(m.Result, []string{"protocolVersion"}) // a result that is none agrees on nothing
	return text(result["protocolVersion"])
}

// AskedRevision is the revision that a request without a session names in its _meta. has reports whether
// there is such a member.
func (m Message) AskedRevision() (revision string, has bool) {
	var params, meta map[string]json.RawMessage
	_ = json.Unmarshal(m.Params, &params) // params that are none name nothing
	_ = json.Unmarshal(params["_meta"], &meta)
	raw, has := meta[metaRevision]
	return text(raw), has
}

// ProgressToken is the token under which a request wants progress, or of which a notification reports
// it; "" if there is none.
func (m Message) ProgressToken() string {
	var params struct {
		Token json.RawMessage `json:"progressToken"`
		Meta  struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &params)
	if m.Method == "notifications/progress" {
		return string(params.Token)
	}
	return string(params.Meta.Token)
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // what is no text is ""
	return s
}

// Values that no header can hold, and an empty one, which looks like none, are in Base64 between these.
const encodedPrefix, encodedSuffix = "=?base64?", "?="

func decoded(value string) string {
	inner, is := strings.CutPrefix(value, encodedPrefix)
	if !is || !strings.HasSuffix(inner, encodedSuffix) {
		return value
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(inner, encodedSuffix))
	if err != nil {
		return value
	}
	return string(b)
}

func encoded(value string) string {
	plain := value != "" && strings.TrimSpace(value) == value && !strings.HasPrefix(value, encodedPrefix) && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return value
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(value)) + encodedSuffix
}
