package admission

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// OfflineTenant and OfflineSource replace identities that an offline decision lacks.
const (
	OfflineTenant = "acme"
	OfflineSource = "offline"
)

// Reason codes of countersign evaluate.
const CodeMalformedLine = "malformed_line" // the envelope of a line cannot be read

// Offline configures EvaluateLine.
type Offline struct {
	Protocol string
	Tenant   string         // OfflineTenant if empty
	Source   string         // if empty, the source that the request claims, or OfflineSource
	Config   *Config        // nil: EvaluatorsOnly, compiled anew for every line
	Now      time.Time      // for lines without a time; must not be zero
	Mandates mandate.Source // nil: there are none

	Publishers publisher.Registry // nil: no publishers or tools are declared
}

// OfflineResult is for reading a line that EvaluateLine returned.
type OfflineResult struct {
	Verdict events.Verdict `json:"verdict"`
	Reply   jsontext.Value `json:"reply"`
}

// EvaluateLine decides one request without a server and returns one line of JSON, {"verdict":
// …, "reply": …}, without a line end. The line is a bare request or {"request": …, "headers"?:
// {name: text or list of texts}, "now"?: RFC 3339}. Ids, salt and nonce are derived from the
// line and the time, so the same input gives the same bytes. Digests are plain: the reader has
// the request anyway. A line that cannot be read is a deny.
func EvaluateLine(line []byte, o Offline) []byte {
	w, err := parseLine(line)
	if err != nil {
		return offlineLine(events.Deny, Refusal(CodeMalformedLine))
	}
	if w.now.IsZero() {
		w.now = o.Now
	}
	config := o.Config
	if config == nil {
		config = EvaluatorsOnly()
	}
	req := Request{
		Tenant: cmp.Or(o.Tenant, OfflineTenant), Source: cmp.Or(o.Source, ClaimedSource(o.Protocol, w.request)),
		Protocol: o.Protocol, Header: w.headers, Body: w.request, ReceivedAt: w.now,
	}
	in := offlineInputs(line, w.now)
	in.Mandates.Mandates, in.Counters, in.Publishers = o.Mandates, policy.NoCounts{}, o.Publishers
	out := Decide(req, config, in)
	body, err := out.Reply()
	if err != nil {
		out.Fail(CodeInternal)
		body = Refusal(CodeInternal)
	}
	return offlineLine(out.Decision.Verdict, body)
}

func offlineLine(v events.Verdict, reply []byte) []byte {
	return fmt.Appendf(nil, `{"verdict":"%s","reply":%s}`, v, reply)
}

// EvaluatorsOnly is the configuration under which the protocol's own evaluator decides alone.
func EvaluatorsOnly() *Config {
	set, err := policy.EvaluatorsOnlySet()
	return &Config{Policies: set, PolicyErr: err}
}

// ClaimedSource is the source that a recorded request claims, OfflineSource if it claims none.
// It is no authority; only offline decisions use it.
func ClaimedSource(protocol string, body []byte) string {
	tree, err := strictjson.ParseObject(body, strictjson.DefaultLimits)
	if err != nil {
		return OfflineSource
	}
	return cmp.Or(call.TextAt(tree, protocols[protocol].source), OfflineSource)
}

// offlineInputs derives the inputs of an offline decision from the line and the time.
func offlineInputs(line []byte, now time.Time) Inputs {
	seed := func(use string) []byte {
		h := sha256.New()
		h.Write([]byte("countersign/offline/v1/" + use + "\x00" + now.UTC().Format(time.RFC3339Nano) + "\x00"))
		h.Write(line)
		return h.Sum(nil)
	}
	var id uuid.UUID
	copy(id[:], seed("decision"))
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return Inputs{
		Now: now, DecisionID: id.String(), Salt: seed("salt")[:receipt.SaltSize],
		Nonce: base64.RawURLEncoding.EncodeToString(seed("nonce")[:16]), KnownTenant: true, PlainDigests: true,
	}
}

// lineRequest is a parsed line. The request keeps the exact bytes of the line, so that a strict
// decoder still refuses what it must.
type lineRequest struct {
	request []byte
	headers map[string][]string
	now     time.Time
}

var errEnvelope = errors.New("the envelope of the line is not {request, headers?, now?}")

// parseLine treats a line as an envelope if it is an object with the key request: no protocol
// here has such a key.
func parseLine(line []byte) (lineRequest, error) {
	bare := lineRequest{request: line}
	members, err := topLevelMembers(line)
	if err != nil {
		return bare, nil // not JSON: the protocol reports it
	}
	if _, there := members["request"]; !there {
		return bare, nil
	}
	var w lineRequest
	for key, values := range members {
		read, known := envelopeFields[key]
		if !known || len(values) != 1 || read(&w, values[0]) != nil {
			return lineRequest{}, errEnvelope
		}
	}
	return w, nil
}

var envelopeFields = map[string]func(*lineRequest, []byte) error{
	"request": func(w *lineRequest, v []byte) error { w.request = v; return nil },
	"headers": func(w *lineRequest, v []byte) error {
		tree, err := strictjson.ParseObject(v, strictjson.DefaultLimits)
		if err != nil {
			return err
		}
		w.headers = map[string][]string{}
		for name, value := range tree {
			list, ok := stringList(value)
			if !ok {
				return errEnvelope
			}
			w.headers[name] = list
		}
		return nil
	},
	"now": func(w *lineRequest, v []byte) error {
		var t events.Time
		if err := t.UnmarshalJSON(v); err != nil || t.IsZero() {
			return errEnvelope
		}
		w.now = t.Time
		return nil
	},
}

func stringList(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var out []string
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// topLevelMembers returns the raw values of an object's members, all values of a duplicate
// name.
func topLevelMembers(line []byte) (map[string][][]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, errEnvelope
	}
	members := map[string][][]byte{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		members[key] = append(members[key], bytes.Clone(value))
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if dec.PeekKind() != 0 {
		return nil, errEnvelope
	}
	return members, nil
}
