package aump

import (
	"regexp"
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// Reason codes of bridges. AUMP has none for them.
const (
	CodeBridgeInvalid    = "bridge_invalid"              // not the message that the binding describes
	CodeBridgeReference  = "bridge_reference_missing"    // id, hash or version of the mandate is not there
	CodeBridgeEmbedded   = "bridge_mandate_embedded"     // a mandate is private; only references travel
	CodeBridgeKey        = "bridge_metadata_key"         // a key breaks the grammar of MCP, or is reserved
	CodeBridgeActivation = "bridge_extension_undeclared" // the extension is not declared where it must be
)

// Where the bindings put a reference.
const (
	metaPrefix   = "org.agentic-user-mandate-protocol/"
	extensionURI = "https://agentic-user-mandate-protocol.github.io/spec/bindings/a2a/v0.1"
	toolName     = "aump.evaluate_action"
)

// Bridge is what was found about a message of another protocol that carries a
// reference to a mandate.
type Bridge struct {
	Ref      wire.Ref // what it refers to, as far as it could be read
	Findings []BridgeFinding
}

// BridgeFinding is one thing that is wrong with it. Text is for people and holds
// keys of the message, no values.
type BridgeFinding struct{ Code, Text string }

func (b *Bridge) fail(code, text string) {
	b.Findings = append(b.Findings, BridgeFinding{code, text})
}

// want reports that something must be so.
func (b *Bridge) want(ok bool, code, text string) {
	if !ok {
		b.fail(code, text)
	}
}

// reference reads the three members of a reference; each must be a text that is
// not empty.
func (b *Bridge) reference(from map[string]any, where string, id, hash, version string) {
	b.Ref = wire.Ref{ID: text(from, id), Hash: text(from, hash), Version: text(from, version)}
	for _, member := range []string{id, hash, version} {
		b.want(text(from, member) != "", CodeBridgeReference, where+" must have "+member)
	}
}

// embedded looks for a mandate in what must only refer to one, under the name
// mandate or any other.
func (b *Bridge) embedded(part any, where string) {
	b.want(!holdsMandate(part), CodeBridgeEmbedded, where+" must not hold a mandate")
}

func holdsMandate(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, holdsMandate)
	case map[string]any:
		if wire.TypeOf(v) == wire.TypeMandate {
			return true
		}
		_, authority := v["authority"]
		_, preferences := v["preferences"]
		if authority && preferences {
			return true
		}
		for _, member := range v {
			if holdsMandate(member) {
				return true
			}
		}
	}
	return false
}

// MCPMeta judges the metadata of an MCP request: the reference stands in
// params._meta, or in _meta.
func MCPMeta(message map[string]any) Bridge {
	var b Bridge
	meta := object(object(message, "params"), "_meta")
	if meta == nil {
		meta = object(message, "_meta")
	}
	if meta == nil {
		b.fail(CodeBridgeReference, "there is no _meta object")
		return b
	}
	for _, key := range sortedKeys(meta) {
		prefix, _, prefixed := strings.Cut(key, "/")
		labels := strings.Split(prefix, ".")
		b.want(metaKey.MatchString(key), CodeBridgeKey, "the key "+quoted(key)+" breaks the grammar of MCP metadata")
		b.want(!prefixed || len(labels) < 2 || !slices.Contains(reservedLabels, strings.ToLower(labels[1])), CodeBridgeKey,
			"the prefix of "+quoted(key)+" is reserved by MCP")
		name, ours := strings.CutPrefix(key, metaPrefix)
		b.want(!ours || name != "mandate" && name != "aump_mandate", CodeBridgeEmbedded, "_meta must not hold a mandate")
	}
	b.embedded(meta, "_meta")
	b.reference(meta, "_meta", metaPrefix+"aump_mandate_id", metaPrefix+"aump_mandate_hash", metaPrefix+"aump_version")
	return b
}

// metaKey is the grammar of keys: an optional prefix of labels that start with a
// letter and end with a letter or digit, and a name.
var metaKey = regexp.MustCompile(`^([A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

var reservedLabels = []string{"mcp", "modelcontextprotocol"}

// MCPTool judges how an MCP server describes its evaluation tool.
func MCPTool(tool map[string]any) Bridge {
	var b Bridge
	b.want(text(tool, "name") == toolName, CodeBridgeInvalid, "the tool's name must be "+toolName)
	for _, schema := range []string{"inputSchema", "outputSchema"} {
		b.want(object(tool, schema) != nil, CodeBridgeInvalid, schema+" must be an object")
	}
	hints := object(tool, "annotations")
	for _, h := range []struct {
		name string
		want bool
	}{{"readOnlyHint", true}, {"destructiveHint", false}, {"idempotentHint", true}} {
		got, ok := hints[h.name].(bool)
		b.want(ok && got == h.want, CodeBridgeInvalid, "annotations."+h.name+" must be "+map[bool]string{true: "true", false: "false"}[h.want])
	}
	return b
}

// A2AExtension judges the agent card of an agent that declares AUMP.
func A2AExtension(card map[string]any) Bridge {
	var b Bridge
	for _, name := range []string{"name", "version", "url"} {
		b.want(text(card, name) != "", CodeBridgeInvalid, "the agent card must have "+name)
	}
	skills, _ := card["skills"].([]any)
	b.want(len(skills) > 0, CodeBridgeInvalid, "the agent card must have a skill")
	for _, name := range []string{"defaultInputModes", "defaultOutputModes"} {
		b.want(len(texts(card, name)) > 0, CodeBridgeInvalid, "the agent card must have "+name)
	}
	extensions, _ := object(card, "capabilities")["extensions"].([]any)
	i := slices.IndexFunc(extensions, func(e any) bool {
		m, _ := e.(map[string]any)
		return text(m, "uri") == extensionURI
	})
	if i < 0 {
		b.fail(CodeBridgeActivation, "capabilities.extensions must declare "+extensionURI)
		return b
	}
	extension := extensions[i].(map[string]any)
	required, ok := extension["required"].(bool)
	b.want(ok && !required, CodeBridgeInvalid, "the extension's required must be false")
	b.want(slices.Contains(texts(object(extension, "params"), "versions"), wire.Version), CodeBridgeInvalid,
		"the extension's params.versions must have "+wire.Version)
	return b
}

// A2AMessage judges a message between agents, with its HTTP headers under
// headers.
func A2AMessage(envelope map[string]any) Bridge {
	var b Bridge
	message := object(envelope, "message")
	if message == nil {
		message = envelope
	}
	b.want(text(message, "messageId") != "", CodeBridgeInvalid, "the message must have messageId")
	b.want(slices.Contains(header(object(envelope, "headers"), "A2A-Extensions"), extensionURI), CodeBridgeActivation,
		"the header A2A-Extensions must name "+extensionURI)
	b.want(slices.Contains(texts(message, "extensions"), extensionURI), CodeBridgeActivation, "message.extensions must have "+extensionURI)
	metadata := object(message, "metadata")
	own := object(metadata, extensionURI)
	_, named := own["mandate"]
	b.want(!named, CodeBridgeEmbedded, "the extension's metadata must not have mandate")
	b.embedded(metadata, "message.metadata")
	b.reference(own, "message.metadata of the extension", "mandate_id", "mandate_hash", "version")
	return b
}

// UCPReference judges a UCP payload.
func UCPReference(payload map[string]any) Bridge {
	var b Bridge
	meta := object(payload, "meta")
	b.want(text(object(meta, "ucp-agent"), "profile") != "", CodeBridgeInvalid, `meta["ucp-agent"].profile must be there`)
	_, misplaced := object(payload, "ap2")["aump"]
	b.want(!misplaced, CodeBridgeInvalid, "ap2.aump must not be there: AP2 has its own mandates")
	own := object(meta, "aump")
	_, named := own["mandate"]
	b.want(!named, CodeBridgeEmbedded, "meta.aump must not have mandate")
	b.embedded(payload, "the payload")
	b.reference(own, "meta.aump", "mandate_id", "mandate_hash", "version")
	return b
}
