package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// Publish stores events of one protocol in the log, in order, and returns nil only once all are
// durable. Many are in flight at a time. Each event is sent byte for byte; session and type are
// read from it for the subject. An unreadable event is sent too, without session and with type
// "unknown": the correlator reports the defect, and the evidence keeps the event.
func (c *Client) Publish(ctx context.Context, protocol string, events ...[]byte) error {
	return c.PublishIn(ctx, "", protocol, events...)
}

// PublishIn is Publish for events of a protocol that has no field for the session, such as AUMP's
// evidence events. Of other protocols the events name it, and session is ignored.
func (c *Client) PublishIn(ctx context.Context, session, protocol string, events ...[]byte) error {
	msgs, err := c.sender(session).Messages(protocol, events...)
	if err != nil {
		return err
	}
	return streams.PublishEvents(ctx, c.nc, msgs)
}

func (c *Client) sender(session string) Sender {
	return Sender{Space: c.opt.Space, Tenant: c.opt.Tenant, Publisher: c.opt.Publisher, Session: session}
}

// PublishCloudEvents is Publish for events in CloudEvents of the SDK: the data of each is an
// event of the protocol. They are sent in binary mode, so that the data stays byte for byte.
func (c *Client) PublishCloudEvents(ctx context.Context, protocol string, list ...event.Event) error {
	msgs, err := c.sender("").CloudEventMessages(protocol, list...)
	if err != nil {
		return err
	}
	return streams.PublishEvents(ctx, c.nc, msgs)
}

// Sender is what the messages of events say of their sender.
type Sender struct {
	Space             subject.Space
	Tenant, Publisher string
	Session           string // of events that have no field for it
}

// CloudEventMessages returns the messages that PublishCloudEvents sends. An error names the
// defective attributes and holds no value.
func (s Sender) CloudEventMessages(token string, list ...event.Event) ([]streams.Msg, error) {
	bodies, headers := make([][]byte, len(list)), make([]map[string][]string, len(list))
	for i := range list {
		var invalid event.ValidationError
		if err := list[i].Validate(); errors.As(err, &invalid) {
			return nil, fmt.Errorf("client: CloudEvent %d is not valid: %s", i+1, strings.Join(slices.Sorted(maps.Keys(invalid)), ", "))
		}
		var err error
		if headers[i], bodies[i], err = cloudevents.Write(binding.WithForceBinary(context.Background()), binding.ToMessage(&list[i])); err != nil {
			return nil, fmt.Errorf("client: CloudEvent %d: %w", i+1, err)
		}
	}
	msgs, err := s.Messages(token, bodies...)
	for i := range msgs {
		msgs[i].Header = headers[i]
	}
	return msgs, err
}

// typeUnknown is the subject's type for an unreadable event.
const typeUnknown = "unknown"

// maxTypeTokens bounds a type in a subject: the server closes the connection of a client that
// sends a subject of more than 4 KB.
const maxTypeTokens = 8

// Messages returns the messages that Publish sends. token names the protocol.
func (s Sender) Messages(token string, events ...[]byte) ([]streams.Msg, error) {
	row := protocol.Rows[token]
	if row.Route == nil {
		return nil, fmt.Errorf("client: events of protocol %q cannot be published (known: %s)", token, strings.Join(protocol.Published(), ", "))
	}
	msgs := make([]streams.Msg, len(events))
	for i, raw := range events {
		session, typ, err := row.Route(raw)
		if row.NamesNoSession {
			session = s.Session
		}
		if err != nil || typ == "" || typ == subject.TypeRequest || strings.Count(typ, ".") >= maxTypeTokens {
			typ = typeUnknown
		}
		msgs[i] = streams.Msg{
			Subject: s.Space.Event(s.Tenant, s.Publisher, token, session, typ), Body: raw,
			Header: map[string][]string{"content-type": {"application/json"}},
		}
	}
	return msgs, nil
}
