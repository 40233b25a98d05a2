package call

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Companion evaluates the calls of other protocols by a document of its own protocol: one that
// a call carries, or one that the headers of the message name.
type Companion struct {
	// Name is the protocol of the document, and the name of its evaluator. The protocol's own
	// requests have been evaluated already.
	Name string
	// Member is the member of the carrier object that holds the document.
	Member string
	// Headers name a document that the call does not carry; nil if no header does.
	Headers []string
	// Requirement is the word with which a tool's catalogue entry requires the document.
	Requirement string
	// EvidenceCodes are the codes of the reasons to ask that the runtime itself can remove: the
	// protocol has it obtain better evidence and ask again. The evaluator gives them for the
	// protocol's own requests, too.
	EvidenceCodes map[string]bool
	// Judge evaluates the call. It returns the call with what the document adds to it.
	Judge func(Carried) (Call, Opinion)
}

// AppliesTo reports whether a call carries or names the companion's document. carrier is the
// carrier object, nil if the call has none.
func (c *Companion) AppliesTo(protocol string, header map[string][]string, carrier map[string]any) bool {
	if protocol == c.Name {
		return false
	}
	if _, there := carrier[c.Member]; there {
		return true
	}
	for _, h := range c.Headers {
		if len(header[h]) > 0 {
			return true
		}
	}
	return false
}

// Carried is a call with the document that it carries or names.
type Carried struct {
	Request     Request
	Call        Call
	Tool        publisher.Tool
	NoArguments bool // the protocol of the call names no arguments of the tool

	// Document is the member of the carrier object and Path its JSON pointer; Path is "" where
	// the call only names the document.
	Document any
	Path     string
}

// Read evaluates a document as a request of protocol p, of the same session and call. headers
// are those of the message that p reads beside those of the call.
func (c Carried) Read(p Protocol, document map[string]any, headers []string) (Call, Opinion) {
	body, err := strictjson.Canonical(document)
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	ask := c.Request
	ask.Body, ask.Header = body, map[string][]string{}
	for _, h := range headers {
		if v := HeaderValues(c.Request.Header, h); len(v) > 0 {
			ask.Header[h] = v
		}
	}
	for h, v := range map[string]string{
		events.HeaderSession: c.Call.Session, events.HeaderToolCallID: c.Call.ToolCallID, events.HeaderAgent: c.Call.Agent,
	} {
		if v != "" {
			ask.Header[h] = []string{v}
		}
	}
	return p.Read(ask)
}

// TextAt is the text at a JSON pointer without escapes, "" if there is none.
func TextAt(tree map[string]any, pointer string) string {
	path, name := "", strings.TrimPrefix(pointer, "/")
	for {
		var below bool
		if path, name, below = strings.Cut(name, "/"); !below {
			text, _ := tree[path].(string)
			return text
		}
		tree, _ = tree[path].(map[string]any)
	}
}
