package aaep

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// handshake is a message by which a subscriber and a producer agree on a
// subscription (AAEP chapter 5). It has neither envelope nor id.
type handshake struct {
	kind         string // request, accepted, rejected, renegotiate or close
	content      uint64 // hash of its bytes
	subscription string // "" in a request and a rejection
	version      string
	reason       string       // code of a rejection
	capabilities capabilities // asked for, or granted

	signed, manifestLinked bool   // an acceptance brings a signed manifest, or says where one is
	manifestProblem        string // what is wrong with that, "" if nothing
}

const handshakePrefix = "subscription."

var handshakeKinds = []string{"request", "accepted", "rejected", "renegotiate", "close"}

// newHandshake reads one, nil if the event is something else.
func newHandshake(e *aaep.Event) *handshake {
	kind, ok := strings.CutPrefix(e.Type, handshakePrefix)
	if !ok || !slices.Contains(handshakeKinds, kind) || e.Tree == nil {
		return nil
	}
	sum := fnv.New64a()
	_, _ = sum.Write(e.Raw)
	h := &handshake{kind: kind, content: sum.Sum64(), subscription: fact.BoundID(stringOf(e.Tree["subscription_id"])),
		version: stringOf(e.Tree["aaep_version"]), reason: fact.BoundID(stringOf(e.Tree["reason_code"]))}
	switch kind {
	case "request", "renegotiate":
		h.capabilities = newCapabilities(e.Tree["capabilities"])
	case "accepted":
		h.capabilities = newCapabilities(e.Tree["honored_capabilities"])
		h.readManifest(e)
	}
	return h
}

func (h *handshake) readManifest(e *aaep.Event) {
	producer, _ := e.Tree["producer"].(map[string]any)
	token := stringOf(e.Tree["signed_manifest"])
	h.signed = token != ""
	h.manifestLinked = stringOf(e.Tree["manifest_uri"]) != "" || stringOf(producer["manifest_uri"]) != ""
	if h.signed {
		h.manifestProblem = manifestProblem(token, stringOf(producer["agent_id"]), h.version)
	}
}

// manifestProblem says what is wrong with a signed manifest, as far as can be told
// without its producer's key (10.4.2).
func manifestProblem(token, agent, version string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "it is no signed document"
	}
	header, payload := decodePart(parts[0]), decodePart(parts[1])
	alg := stringOf(header["alg"])
	versions, listed := payload["aaep_versions_supported"].([]any)
	switch {
	case header == nil || payload == nil:
		return "it is no signed document"
	case alg == "" || strings.EqualFold(alg, "none") || parts[2] == "":
		return "it is not signed"
	case stringOf(payload["agent_id"]) != agent:
		return "it is another agent's"
	case listed && version != "" && !slices.Contains(versions, any(version)):
		return "it does not name the version that was agreed on"
	}
	return ""
}

// decodePart is a part of a signed document, nil if it cannot be read.
func decodePart(part string) map[string]any {
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil || !json.Valid(b) {
		return nil
	}
	tree, err := strictjson.ParseObject(b, strictjson.DefaultLimits)
	if err != nil {
		return nil
	}
	return tree
}

// IsHandshake tells whether the event is a message about a subscription. It
// belongs to no session.
func (e *Event) IsHandshake() bool { return e.handshake != nil }
