package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// Publish stores events of one protocol in the log, in their order, and returns
// nil only once every one is durable. Many are in flight at a time. Each event is
// sent byte for byte; session and type are read from it for the subject. An
// event that cannot be read is sent too, under no session and type "unknown":
// what is wrong with it is for the correlator to say and for the evidence to
// keep.
func (c *Client) Publish(ctx context.Context, protocol string, events ...[]byte) error {
	msgs, err := Messages(c.opt.Space, c.opt.Tenant, c.opt.Publisher, protocol, events...)
	if err != nil {
		return err
	}
	return streams.PublishEvents(ctx, c.nc, msgs)
}

// typeUnknown is the subject's type for an event that cannot be read.
const typeUnknown = "unknown"

// maxTypeTokens bounds a type in a subject: the server ends the connection of
// who sends it a subject of more than 4 KB.
const maxTypeTokens = 8

// eventRoutes reads session and type of an event.
var eventRoutes = map[string]func(raw []byte) (session, typ string, err error){
	subject.ProtoAAEP: func(raw []byte) (string, string, error) {
		e, err := aaep.Decode(raw, strictjson.DefaultLimits)
		if e == nil {
			return "", "", err
		}
		return e.SessionID, e.SubjectType(), nil // what is wrong with a field is no reason to lose the session
	},
	subject.ProtoAgentHook: func(raw []byte) (string, string, error) {
		e, err := agenthook.Decode(raw, strictjson.DefaultLimits)
		if e == nil {
			return "", "", err
		}
		return e.SessionID, e.EventType, nil // what is wrong with a field is no reason to lose the session
	},
}

// Messages addresses events: what Publish sends.
func Messages(space subject.Space, tenant, publisher, protocol string, events ...[]byte) ([]streams.Msg, error) {
	read, known := eventRoutes[protocol]
	if !known {
		return nil, fmt.Errorf("client: events of protocol %q cannot be published (known: %s, %s)", protocol, subject.ProtoAAEP, subject.ProtoAgentHook)
	}
	msgs := make([]streams.Msg, len(events))
	for i, raw := range events {
		session, typ, err := read(raw)
		if err != nil || typ == "" || typ == subject.TypeRequest || strings.Count(typ, ".") >= maxTypeTokens {
			typ = typeUnknown
		}
		msgs[i] = streams.Msg{
			Subject: space.Event(tenant, publisher, protocol, session, typ), Body: raw,
			Header: map[string][]string{"content-type": {"application/json"}},
		}
	}
	return msgs, nil
}
