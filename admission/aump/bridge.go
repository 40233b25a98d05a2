package aump

import (
	"regexp"
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// Reason codes of bridges. AUMP has no codes for them.
const (
	CodeBridgeInvalid    = "bridge_invalid"              // the request is not the message that the binding describes
	CodeBridgeReference  = "bridge_reference_missing"    // id, hash or version of the mandate is not there
	CodeBridgeEmbedded   = "bridge_mandate_embedded"     // the message holds the mandate itself; only references may travel
	CodeBridgeKey        = "bridge_metadata_key"         // a key of the metadata breaks the grammar of MCP, or is reserved
	CodeBridgeActivation = "bridge_extension_undeclared" // the extension is not declared where it must be
)

// Where the bindings put a reference.
const (
	metaPrefix   = "org.agentic-user-mandate-protocol/"
	extensionURI = "https://agentic-user-mandate-protocol.github.io/spec/bindings/a2a/v0.1"
	toolName     = "aump.evaluate_action"
)

// bridge is the check result of another protocol's message that carries a reference to a
// mandate.
type bridge struct {
	Ref      wire.Ref // the reference, as far as it could be read
	Findings []bridgeFinding
}

// bridgeFinding is one defect. Text is for people and holds keys of the message, no values.
type bridgeFinding struct{ Code, Text string }

func (b *bridge) addFinding(code, text string) {
	b.Findings = append(b.Findings, bridgeFinding{code, text})
}

// require adds a finding unless ok.
func (b *bridge) require(ok bool, code, text string) {
	if !ok {
		b.addFinding(code, text)
	}
}

// readReference reads the three members of a reference; each must be a non-empty text.
func (b *bridge) readReference(from map[string]any, where string, id, hash, version string) {
	b.Ref = wire.Ref{ID: textMember(from, id), Hash: textMember(from, hash), Version: textMember(from, version)}
	for _, member := range []string{id, hash, version} {
		b.require(textMember(from, member) != "", CodeBridgeReference, where+" must have "+member)
	}
}

// rejectEmbedded looks for a mandate, under any name, in what must only refer to one.
func (b *bridge) rejectEmbedded(part any, where string) {
	b.require(!holdsMandate(part), CodeBridgeEmbedded, where+" must not hold a mandate")
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

// mcpMeta checks the metadata of an MCP request: the reference is in params._meta, or in _meta.
func mcpMeta(message map[string]any) bridge {
	var b bridge
	meta := objectMember(objectMember(message, "params"), "_meta")
	if meta == nil {
		meta = objectMember(message, "_meta")
	}
	if meta == nil {
		b.addFinding(CodeBridgeReference, "there is no _meta object")
		return b
	}
	for _, key := range sortedKeys(meta) {
		prefix, _, prefixed := strings.Cut(key, "/")
		labels := strings.Split(prefix, ".")
		b.require(metaKey.MatchString(key), CodeBridgeKey, "the key "+quotedKey(key)+" breaks the grammar of MCP metadata")
		b.require(!prefixed || len(labels) < 2 || !slices.Contains(reservedLabels, strings.ToLower(labels[1])), CodeBridgeKey,
			"the prefix of "+quotedKey(key)+" is reserved by MCP")
		name, ours := strings.CutPrefix(key, metaPrefix)
		b.require(!ours || name != "mandate" && name != "aump_mandate", CodeBridgeEmbedded, "_meta must not hold a mandate")
	}
	b.rejectEmbedded(meta, "_meta")
	b.readReference(meta, "_meta", metaPrefix+"aump_mandate_id", metaPrefix+"aump_mandate_hash", metaPrefix+"aump_version")
	return b
}

// metaKey is the grammar of keys: an optional prefix of labels that start with a
// letter and end with a letter or digit, and a name.
var metaKey = regexp.MustCompile(`^([A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

var reservedLabels = []string{"mcp", "modelcontextprotocol"}

// mcpTool checks how an MCP server describes its evaluation tool.
func mcpTool(tool map[string]any) bridge {
	var b bridge
	b.require(textMember(tool, "name") == toolName, CodeBridgeInvalid, "the tool's name must be "+toolName)
	for _, schema := range []string{"inputSchema", "outputSchema"} {
		b.require(objectMember(tool, schema) != nil, CodeBridgeInvalid, schema+" must be an object")
	}
	hints := objectMember(tool, "annotations")
	for _, h := range []struct {
		name string
		want bool
	}{{"readOnlyHint", true}, {"destructiveHint", false}, {"idempotentHint", true}} {
		got, ok := hints[h.name].(bool)
		b.require(ok && got == h.want, CodeBridgeInvalid, "annotations."+h.name+" must be "+map[bool]string{true: "true", false: "false"}[h.want])
	}
	return b
}

// a2aExtension checks the agent card of an agent that declares AUMP.
func a2aExtension(card map[string]any) bridge {
	var b bridge
	for _, name := range []string{"name", "version", "url"} {
		b.require(textMember(card, name) != "", CodeBridgeInvalid, "the agent card must have "+name)
	}
	skills, _ := card["skills"].([]any)
	b.require(len(skills) > 0, CodeBridgeInvalid, "the agent card must have a skill")
	for _, name := range []string{"defaultInputModes", "defaultOutputModes"} {
		b.require(len(textListMember(card, name)) > 0, CodeBridgeInvalid, "the agent card must have "+name)
	}
	extensions, _ := objectMember(card, "capabilities")["extensions"].([]any)
	i := slices.IndexFunc(extensions, func(e any) bool {
		m, _ := e.(map[string]any)
		return textMember(m, "uri") == extensionURI
	})
	if i < 0 {
		b.addFinding(CodeBridgeActivation, "capabilities.extensions must declare "+extensionURI)
		return b
	}
	extension := extensions[i].(map[string]any)
	required, ok := extension["required"].(bool)
	b.require(ok && !required, CodeBridgeInvalid, "the extension's required must be false")
	b.require(slices.Contains(textListMember(objectMember(extension, "params"), "versions"), wire.Version), CodeBridgeInvalid,
		"the extension's params.versions must have "+wire.Version)
	return b
}

// a2aMessage checks a message between agents, with its HTTP headers under headers.
func a2aMessage(envelope map[string]any) bridge {
	var b bridge
	message := objectMember(envelope, "message")
	if message == nil {
		message = envelope
	}
	b.require(textMember(message, "messageId") != "", CodeBridgeInvalid, "the message must have messageId")
	b.require(slices.Contains(headerList(objectMember(envelope, "headers"), "A2A-Extensions"), extensionURI), CodeBridgeActivation,
		"the header A2A-Extensions must name "+extensionURI)
	b.require(slices.Contains(textListMember(message, "extensions"), extensionURI), CodeBridgeActivation, "message.extensions must have "+extensionURI)
	metadata := objectMember(message, "metadata")
	own := objectMember(metadata, extensionURI)
	_, named := own["mandate"]
	b.require(!named, CodeBridgeEmbedded, "the extension's metadata must not have mandate")
	b.rejectEmbedded(metadata, "message.metadata")
	b.readReference(own, "message.metadata of the extension", "mandate_id", "mandate_hash", "version")
	return b
}

// ucpReference checks a UCP payload.
func ucpReference(payload map[string]any) bridge {
	var b bridge
	meta := objectMember(payload, "meta")
	b.require(textMember(objectMember(meta, "ucp-agent"), "profile") != "", CodeBridgeInvalid, `meta["ucp-agent"].profile must be there`)
	_, misplaced := objectMember(payload, "ap2")["aump"]
	b.require(!misplaced, CodeBridgeInvalid, "ap2.aump must not be there: AP2 has its own mandates")
	own := objectMember(meta, "aump")
	_, named := own["mandate"]
	b.require(!named, CodeBridgeEmbedded, "meta.aump must not have mandate")
	b.rejectEmbedded(payload, "the payload")
	b.readReference(own, "meta.aump", "mandate_id", "mandate_hash", "version")
	return b
}
