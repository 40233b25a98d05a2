package otlp

import (
	"go.opentelemetry.io/otel/attribute"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

// ResourceSpans are spans as OTLP sends them. Resource is what the sender says of
// itself.
func ResourceSpans(spans []Span, schemaURL string, of []attribute.KeyValue, version string) []*trace.ResourceSpans {
	if len(spans) == 0 {
		return nil
	}
	list := make([]*trace.Span, len(spans))
	for i, s := range spans {
		list[i] = s.toProto()
	}
	return []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: keyValues(of)}, SchemaUrl: schemaURL,
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: Scope, Version: version}, Spans: list, SchemaUrl: SchemaURL}},
	}}
}

func (s Span) toProto() *trace.Span {
	out := &trace.Span{
		TraceId: s.Context.Trace[:], SpanId: s.Context.Span[:], Flags: uint32(s.Context.Flags), Name: s.Name, Kind: trace.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(s.End.UnixNano()), Attributes: keyValues(s.Attributes), Status: &trace.Status{},
	}
	if s.Parent != [8]byte{} {
		out.ParentSpanId = s.Parent[:]
	}
	if s.ErrorType != "" {
		out.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: s.ErrorType}
	}
	return out
}

func keyValues(list []attribute.KeyValue) []*common.KeyValue {
	out := make([]*common.KeyValue, len(list))
	for i, kv := range list {
		out[i] = &common.KeyValue{Key: string(kv.Key), Value: protoValue(kv.Value)}
	}
	return out
}

// protoValue is one value of the kinds that are used here.
func protoValue(v attribute.Value) *common.AnyValue {
	switch v.Type() {
	case attribute.BOOL:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v.AsBool()}}
	case attribute.INT64:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: v.AsInt64()}}
	case attribute.STRINGSLICE:
		list := &common.ArrayValue{}
		for _, s := range v.AsStringSlice() {
			list.Values = append(list.Values, &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}})
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
	}
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v.String()}}
}
