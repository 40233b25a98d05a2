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

// handshake is a message about a subscription between a subscriber and a producer (AAEP
// chapter 5). It has no envelope and no id.
type handshake struct {
	kind         string // request, accepted, rejected, renegotiate or close
	content      uint64 // a hash of its bytes
	subscription string // "" in a request and a rejection
	version      string
	reason       string       // code of a rejection
	capabilities capabilities // requested or granted

	signed, manifestLinked bool   // an acceptance has a signed manifest, or a link to one
	manifestProblem        string // what is wrong with that, "" if nothing
}

const handshakePrefix = "subscription."

var handshakeKinds = []string{"request", "accepted", "rejected", "renegotiate", "close"}

// newHandshake returns the handshake in an event; nil for other events.
func newHandshake(e *aaep.Event) *handshake {
	kind, ok := strings.CutPrefix(e.Type, handshakePrefix)
	if !ok || !slices.Contains(handshakeKinds, kind) {
		return nil
	}
	sum := fnv.New64a()
	_, _ = sum.Write(e.Raw)
	h := &handshake{kind: kind, content: sum.Sum64(), subscription: fact.BoundID(e.Doc.MemberText("subscription_id")),
		version: e.Doc.MemberText("aaep_version"), reason: fact.BoundID(e.Doc.MemberText("reason_code"))}
	switch kind {
	case "request", "renegotiate":
		h.capabilities = newCapabilities(e.Doc.Get("capabilities"))
	case "accepted":
		h.capabilities = newCapabilities(e.Doc.Get("honored_capabilities"))
		h.readManifest(e)
	}
	return h
}

func (h *handshake) readManifest(e *aaep.Event) {
	producer := e.Doc.Get("producer")
	token := e.Doc.MemberText("signed_manifest")
	h.signed = token != ""
	h.manifestLinked = e.Doc.MemberText("manifest_uri") != "" || producer.MemberText("manifest_uri") != ""
	if h.signed {
		h.manifestProblem = manifestProblem(token, producer.MemberText("agent_id"), h.version)
	}
}

// manifestProblem describes what is wrong with a signed manifest, as far as that can be seen
// without the producer's key (AAEP 10.4.2).
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

// decodePart decodes a part of a signed document; nil if it is invalid.
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
