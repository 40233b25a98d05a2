// Package aump is the typed model of the documents of the Agentic User Mandate Protocol 0.1
// (AUMP): mandates, profiles, action evaluation requests and responses, and evidence events,
// with the hash that identifies a mandate and the signatures on it. It reads and does not
// judge: package schemas validates documents, and package admission/aump evaluates actions.
// Begin reading with DecodeMandate.
//
// A document is kept completely: Doc is the whole document and Raw its bytes. The models are typed
// views of the members that Countersign uses; the schemas state the type of every member.
package aump

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Version is the only version of the protocol that this program knows.
const Version = "0.1.0"

// Values of aump.type.
const (
	TypeMandate  = "mandate"
	TypeProfile  = "profile"
	TypeRequest  = "action_evaluation_request"
	TypeResponse = "action_evaluation_response"
)

// Decisions of an evaluation, in order of strictness.
const (
	Allowed            = "allowed"
	RequiresEscalation = "requires_escalation"
	Denied             = "denied"
)

// Headers in which a message may name a mandate in addition to its body. If both do, they must
// agree.
const (
	HeaderMandateID      = "Aump-Mandate-Id"
	HeaderMandateHash    = "Aump-Mandate-Hash"
	HeaderMandateVersion = "Aump-Mandate-Version"
)

// Headers lists them.
var Headers = []string{HeaderMandateID, HeaderMandateHash, HeaderMandateVersion}

// FieldError reports a known field of another JSON type than AUMP's. Path is its JSON pointer.
// It never holds the field's value.
type FieldError = field.Error

// Ref names a mandate.
type Ref struct {
	ID      string
	Hash    string // as sent; see NormaliseHash
	URL     string
	Version string
}

func readRef(o field.Object) Ref {
	return Ref{ID: o.Text("id"), Hash: o.Text("hash"), URL: o.Text("url"), Version: o.Text("version")}
}

// DownstreamRef identifies the result of an action in another protocol.
type DownstreamRef struct {
	Protocol string
	ID       string
	Hash     string
	URL      string
}

func readDownstream(o field.Object) []DownstreamRef {
	return readEach(o, "downstream_refs", func(r field.Object) DownstreamRef {
		return DownstreamRef{Protocol: r.Text("protocol"), ID: r.Text("id"), Hash: r.Text("hash"), URL: r.Text("url")}
	})
}

// TypeOf is the aump.type of a document, "" if it has none.
func TypeOf(tree map[string]any) string {
	header, _ := tree["aump"].(map[string]any)
	t, _ := header["type"].(string)
	return t
}

// envelope is the part that all documents share.
type envelope struct{ version, kind string }

// decodeDocument reads the document and fills a model from it. The error is a *strictjson.Error
// (not acceptable JSON; the document does not exist) or a *FieldError (a known field has the wrong JSON type,
// null included).
func decodeDocument(raw []byte, lim strictjson.Limits, fill func(field.Object)) (strictjson.Value, envelope, error) {
	v, err := strictjson.ReadObject(raw, lim)
	if err != nil {
		return strictjson.Value{}, envelope{}, err
	}
	var first *FieldError
	o := field.Root(v, &first)
	header, _ := o.Child("aump")
	env := envelope{version: header.Text("version"), kind: header.Text("type")}
	fill(o)
	if first != nil {
		return v, env, first
	}
	return v, env, nil
}

// readChild reads an object below o, which may be absent.
func readChild[T any](o field.Object, key string, read func(field.Object) T) T {
	c, _ := o.Child(key)
	return read(c)
}

// readOptional reads an object below o; nil if it is absent.
func readOptional[T any](o field.Object, key string, read func(field.Object) T) *T {
	c, ok := o.Child(key)
	if !ok {
		return nil
	}
	v := read(c)
	return &v
}

// readEach reads an array of objects; nil if it is absent.
func readEach[T any](o field.Object, key string, read func(field.Object) T) []T {
	list := o.Objects(key)
	if list == nil {
		return nil
	}
	out := make([]T, 0, len(list))
	for _, item := range list {
		out = append(out, read(item))
	}
	return out
}

func intOrZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
