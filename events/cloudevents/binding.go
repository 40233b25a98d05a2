package cloudevents

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/types"
)

// Message is a NATS message for the CloudEvents SDK. It can be read any number
// of times.
type Message struct {
	event Event
	body  []byte
}

var (
	_ binding.Message               = (*Message)(nil)
	_ binding.MessageMetadataReader = (*Message)(nil)
)

// NewMessage reads a NATS message as Decode does, with the same errors. A plain
// message has the encoding binding.EncodingUnknown.
func NewMessage(header map[string][]string, body []byte) (*Message, error) {
	e, err := Decode(header, body)
	if err != nil {
		return nil, err
	}
	return &Message{event: e, body: body}, nil
}

// ReadEncoding implements binding.MessageReader.
func (m *Message) ReadEncoding() binding.Encoding {
	switch m.event.Mode {
	case ModeBinary:
		return binding.EncodingBinary
	case ModeStructured:
		return binding.EncodingStructured
	}
	return binding.EncodingUnknown
}

// ReadStructured implements binding.MessageReader.
func (m *Message) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.event.Mode != ModeStructured {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, format.JSON, bytes.NewReader(m.body))
}

// ReadBinary implements binding.MessageReader.
func (m *Message) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	if m.event.Mode != ModeBinary {
		return binding.ErrNotBinary
	}
	attributes := m.event.Attributes.toMap()
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		var err error
		if a := spec.V1.Attribute(name); a != nil {
			err = w.SetAttribute(a, attributes[name])
		} else {
			err = w.SetExtension(name, attributes[name])
		}
		if err != nil {
			return err
		}
	}
	if len(m.event.Data) == 0 {
		return nil
	}
	return w.SetData(bytes.NewReader(m.event.Data))
}

// GetAttribute implements binding.MessageMetadataReader.
func (m *Message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	a := spec.V1.AttributeFromKind(kind)
	if a == nil {
		return nil, nil
	}
	if value, there := m.event.Attributes.toMap()[a.Name()]; there {
		return a, value
	}
	return a, nil
}

// GetExtension implements binding.MessageMetadataReader.
func (m *Message) GetExtension(name string) any {
	if value, there := m.event.Extra[name]; there {
		return value
	}
	return nil
}

// Finish implements binding.Message; there is nothing to give back.
func (m *Message) Finish(error) error { return nil }

// Write turns an SDK message into the header and body of a NATS message, in the
// mode that the message is in or that ctx asks for (binding.WithForceBinary,
// binding.WithForceStructured; binary if nobody does). What it returns can be
// read by Decode, or it is an error.
func Write(ctx context.Context, m binding.MessageReader) (header map[string][]string, body []byte, err error) {
	w := &writer{}
	if _, err := binding.Write(ctx, m, w, w); err != nil {
		return nil, nil, err
	}
	if _, err := Decode(w.header, w.body); err != nil {
		return nil, nil, err
	}
	return w.header, w.body, nil
}

// writer takes what the SDK reads out of a message.
type writer struct {
	header map[string][]string
	body   []byte
}

var (
	_ binding.BinaryWriter     = (*writer)(nil)
	_ binding.StructuredWriter = (*writer)(nil)
)

func (w *writer) SetStructuredEvent(_ context.Context, f format.Format, event io.Reader) (err error) {
	w.header = map[string][]string{headerContentType: {f.MediaType()}}
	w.body, err = io.ReadAll(event)
	return err
}

func (w *writer) Start(context.Context) error {
	w.header, w.body = map[string][]string{}, nil
	return nil
}

func (w *writer) SetAttribute(a spec.Attribute, value any) error { return w.setHeader(a.Name(), value) }

func (w *writer) SetExtension(name string, value any) error { return w.setHeader(name, value) }

func (w *writer) setHeader(name string, value any) error {
	if value == nil {
		delete(w.header, headerPrefix+name)
		return nil
	}
	text, err := types.Format(value)
	if err != nil {
		return attributeError(ErrValue, name) // the SDK's error quotes the value
	}
	w.header[headerPrefix+name] = []string{encodeValue(text)}
	return nil
}

func (w *writer) SetData(data io.Reader) (err error) {
	w.body, err = io.ReadAll(data)
	return err
}

func (w *writer) End(context.Context) error { return nil }
