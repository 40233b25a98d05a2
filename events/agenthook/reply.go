package agenthook

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Reply is a subscriber's answer to an admission-capable event. Its JSON form
// is what AgentHook clients expect (SPEC section 10, AHP-007); AgentHook has no
// other decision than allow, deny and ask.
type Reply struct {
	EventID  string        `json:"event_id"` // of the event that is answered
	Decision string        `json:"decision"` // allow deny ask
	Reason   string        `json:"reason"`
	AgentID  string        `json:"agent_id,omitempty"` // authoritative for the publisher
	Metadata ReplyMetadata `json:"metadata,omitzero"`
}

// ReplyMetadata is the metadata of a Reply.
type ReplyMetadata struct {
	// AdmissionVerdict is the verdict in the form in which the publisher stamps
	// it onto the evidence form of its event.
	AdmissionVerdict *AdmissionVerdict `json:"admission_verdict,omitempty"`
	// Approval tells the publisher about the workflow that an ask has opened.
	Approval *Approval `json:"approval,omitempty"`
}

// ParseReply reads a reply. Other subscribers' replies may say "verdict" where
// SPEC section 10 says "decision"; a reply that has both and contradicts itself
// is a *FieldError, and so is a known field of the wrong type. Members that the
// model does not know are skipped. Errors are those of Decode; the reply is
// zero with either. Whether the decision is one of the three is for the caller
// to check: anything else must be taken as deny.
func ParseReply(raw []byte) (Reply, error) {
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return Reply{}, err
	}
	var first *FieldError
	o := field.Root(tree, &first)
	r := Reply{
		EventID:  NormaliseID(o.Text("event_id")),
		Decision: o.Text("decision"),
		Reason:   o.Text("reason"),
		AgentID:  o.Text("agent_id"),
	}
	if alias := o.Text("verdict"); r.Decision == "" {
		r.Decision = alias
	} else if alias != "" && alias != r.Decision {
		o.Fail("verdict", "the same as /decision")
	}
	if meta, ok := o.Child("metadata"); ok {
		r.Metadata = ReplyMetadata{
			AdmissionVerdict: readBlock(meta, "admission_verdict", readVerdict),
			Approval:         readBlock(meta, "approval", readApproval),
		}
	}
	if first != nil {
		return Reply{}, first
	}
	return r, nil
}
