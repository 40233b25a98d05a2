package agenthook

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Reply is a subscriber's answer to an admission-capable event. Its JSON form is that of
// AgentHook clients (SPEC section 10, AHP-007); AgentHook's only decisions are allow, deny and
// ask.
type Reply struct {
	EventID  string        `json:"event_id"` // of the event that is answered
	Decision string        `json:"decision"` // allow deny ask
	Reason   string        `json:"reason"`
	AgentID  string        `json:"agent_id,omitempty"` // authoritative for the publisher
	Metadata ReplyMetadata `json:"metadata,omitzero"`
}

// ReplyMetadata is the metadata of a Reply.
type ReplyMetadata struct {
	// AdmissionVerdict is the verdict in the form that the publisher copies to the evidence
	// form of its event.
	AdmissionVerdict *AdmissionVerdict `json:"admission_verdict,omitempty"`
	// Approval describes the workflow that an ask has opened.
	Approval *Approval `json:"approval,omitempty"`
}

// ParseReply reads a reply. Other subscribers' replies may have "verdict" where SPEC section 10
// has "decision"; a reply with both that contradict each other is a *FieldError, and so is a
// known field of the wrong type. Unknown members are skipped. Errors are those of Decode; the
// reply is zero with either. The caller must treat any decision other than the three as deny.
func ParseReply(raw []byte) (Reply, error) {
	v, err := strictjson.ReadObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return Reply{}, err
	}
	var first *FieldError
	o := field.Root(v, &first)
	r := Reply{
		EventID:  events.NormaliseID(o.Text("event_id")),
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
