package cloudevents

import (
	"context"
	"io"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/types"
)

// Write converts an SDK message to the header and body of a NATS message, in the mode of the
// message or the one that ctx demands (binding.WithForceBinary, binding.WithForceStructured;
// binary by default). Decode can read the result, or Write returns an error.
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

// writer collects what the SDK reads from a message.
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
