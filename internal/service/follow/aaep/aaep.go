// Package aaep reads the events of the kind aaep for followers.
package aaep

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Read returns an AAEP event, or a reply to one, as it was published; a page leaves out blanks
// between its tokens. A publisher chooses its subjects, so the document itself must be what its
// subject says. ok is false for everything else: admission requests, documents of other protocols,
// and messages of subscriptions.
func Read(p subject.Parsed, m events.LogMessage) (raw []byte, ok bool) {
	if p.Protocol != subject.ProtoAAEP || p.Type == subject.TypeRequest {
		return nil, false
	}
	ce, err := cloudevents.Decode(m.Header, m.Body)
	if err != nil || ce.Data == nil {
		return nil, false
	}
	e, err := aaep.Decode(ce.Data, strictjson.DefaultLimits)
	if err != nil || e.SubjectType() != p.Type {
		return nil, false
	}
	inSession := e.EventID != "" && (e.SessionID == p.Session || subject.Escape(e.SessionID) == p.Session)
	return ce.Data, inSession || e.IsReply()
}
