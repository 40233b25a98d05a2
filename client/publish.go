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
	msgs, err := Messages(c.opt.Space, c.opt.Tenant, c.opt.Publisher, protocol, events...)
	if err != nil {
		return err
	}
	return streams.PublishEvents(ctx, c.nc, msgs)
}

// PublishCloudEvents is Publish for events in CloudEvents of the SDK: the data of each is an
// event of the protocol. They are sent in binary mode, so that the data stays byte for byte.
func (c *Client) PublishCloudEvents(ctx context.Context, protocol string, list ...event.Event) error {
	msgs, err := CloudEventMessages(c.opt.Space, c.opt.Tenant, c.opt.Publisher, protocol, list...)
	if err != nil {
		return err
	}
	return streams.PublishEvents(ctx, c.nc, msgs)
}

// CloudEventMessages returns the messages that PublishCloudEvents sends. An error names the
// defective attributes and holds no value.
func CloudEventMessages(space subject.Space, tenant, publisher, token string, list ...event.Event) ([]streams.Msg, error) {
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
	msgs, err := Messages(space, tenant, publisher, token, bodies...)
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
func Messages(space subject.Space, tenant, publisher, token string, events ...[]byte) ([]streams.Msg, error) {
	read := protocol.Rows[token].Route
	if read == nil {
		return nil, fmt.Errorf("client: events of protocol %q cannot be published (known: %s)", token, strings.Join(protocol.Published(), ", "))
	}
	msgs := make([]streams.Msg, len(events))
	for i, raw := range events {
		session, typ, err := read(raw)
		if err != nil || typ == "" || typ == subject.TypeRequest || strings.Count(typ, ".") >= maxTypeTokens {
			typ = typeUnknown
		}
		msgs[i] = streams.Msg{
			Subject: space.Event(tenant, publisher, token, session, typ), Body: raw,
			Header: map[string][]string{"content-type": {"application/json"}},
		}
	}
	return msgs, nil
}
