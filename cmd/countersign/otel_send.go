package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign-dev/countersign/compliance/otlp"
)

// otelSender sends signals over OTLP/HTTP. The exporters read the usual
// environment variables themselves.
type otelSender struct {
	resource *resource.Resource
	traces   otlptrace.Client
	logs     *otlploghttp.Exporter
	provider *sdklog.LoggerProvider // makes log records, sends nothing
	made     *madeRecords

	spans, records       int // that were sent
	rejected, unreadable int
}

func newOtelSender(ctx context.Context, tenant string) (*otelSender, error) {
	if err := otelEnvironment(os.Getenv); err != nil {
		return nil, err
	}
	// What the environment says of the resource wins, tenant excepted.
	own := resource.NewSchemaless(attribute.String("service.name", "countersign"), attribute.String("service.version", programVersion()))
	whole, err := resource.Merge(own, resource.Environment())
	if err == nil {
		whole, err = resource.Merge(whole, resource.NewSchemaless(attribute.String("countersign.tenant", tenant)))
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	s := &otelSender{resource: whole, traces: otlptracehttp.NewClient(), made: &madeRecords{}}
	if err := s.traces.Start(ctx); err != nil {
		return nil, fmt.Errorf("preparing to send traces: %w", err)
	}
	if s.logs, err = otlploghttp.New(ctx); err != nil {
		return nil, fmt.Errorf("preparing to send logs: %w", err)
	}
	s.provider = sdklog.NewLoggerProvider(sdklog.WithResource(whole), sdklog.WithProcessor(s.made))
	return s, nil
}

// close frees connections; everything was sent before.
func (s *otelSender) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = errors.Join(s.traces.Stop(ctx), s.logs.Shutdown(ctx), s.provider.Shutdown(ctx))
}

// send sends signals, spans first, and returns once the other side has them.
func (s *otelSender) send(ctx context.Context, b otlp.Signals) error {
	return s.deliver(ctx, &b)
}

// deliver sends what is left of b and takes out of it what was sent.
func (s *otelSender) deliver(ctx context.Context, b *otlp.Signals) error {
	if len(b.Spans) > 0 {
		if err := s.settle(s.traces.UploadTraces(ctx, otlp.ResourceSpans(b.Spans, s.resource.SchemaURL(), s.resource.Attributes(), programVersion()))); err != nil {
			return fmt.Errorf("sending traces: %w", err)
		}
		s.spans += len(b.Spans)
		b.Spans = nil
	}
	if len(b.Logs) > 0 {
		if err := s.settle(s.logs.Export(ctx, s.recordsOf(ctx, b.Logs))); err != nil {
			return fmt.Errorf("sending logs: %w", err)
		}
		s.records += len(b.Logs)
		b.Logs = nil
	}
	return nil
}

// partial is how the exporters say that the other side took a batch and threw
// some of it away. Sending it again would not help (OTLP says not to).
const partial = "OTLP partial success"

func (s *otelSender) settle(err error) error {
	if err == nil || !strings.Contains(err.Error(), partial) {
		return err
	}
	s.rejected++
	fmt.Fprintf(os.Stderr, "countersign: the collector did not take all: %s\n", cleanLines(err.Error()))
	return nil
}

// Pauses between attempts, beside those of the exporters themselves.
const (
	otelPause    = time.Second
	otelPauseMax = 30 * time.Second
)

// sendPatiently is send that tries until it succeeds or ctx ends, and says once
// that it waits.
func (s *otelSender) sendPatiently(ctx context.Context, io stdio, b otlp.Signals) error {
	waiting := false
	for pause := otelPause; ; pause = min(2*pause, otelPauseMax) {
		err := s.deliver(ctx, &b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			if waiting {
				fmt.Fprintln(io.err, "countersign: the collector takes it again; nothing was missed")
			}
			return nil
		}
		if !waiting {
			fmt.Fprintf(io.err, "countersign: waiting: %s\n", cleanLines(err.Error()))
			waiting = true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recordsOf makes log records of logs.
func (s *otelSender) recordsOf(ctx context.Context, logs []otlp.Log) []sdklog.Record {
	s.made.list = make([]sdklog.Record, 0, len(logs))
	logger := s.provider.Logger(otlp.Scope, log.WithInstrumentationVersion(programVersion()), log.WithSchemaURL(otlp.SchemaURL))
	for _, l := range logs {
		var r log.Record
		r.SetEventName(l.Event)
		r.SetTimestamp(l.At)
		r.SetObservedTimestamp(l.Observed)
		r.SetSeverity(log.Severity(l.Severity))
		r.SetSeverityText(log.Severity(l.Severity).String())
		r.SetBody(attribute.StringValue(l.Body))
		r.AddAttributes(l.Attributes...)
		at := trace.NewSpanContext(trace.SpanContextConfig{TraceID: l.Context.Trace, SpanID: l.Context.Span, TraceFlags: trace.TraceFlags(l.Context.Flags)})
		logger.Emit(trace.ContextWithSpanContext(ctx, at), r)
	}
	return s.made.list
}

// madeRecords keeps the records that a logger makes.
type madeRecords struct{ list []sdklog.Record }

func (*madeRecords) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*madeRecords) Shutdown(context.Context) error                         { return nil }
func (*madeRecords) ForceFlush(context.Context) error                       { return nil }

// OnEmit implements sdklog.Processor.
func (m *madeRecords) OnEmit(_ context.Context, r *sdklog.Record) error {
	m.list = append(m.list, r.Clone())
	return nil
}

func (s *otelSender) report(io stdio) {
	fmt.Fprintf(io.out, "%d spans and %d log records sent\n", s.spans, s.records)
	if s.unreadable > 0 {
		fmt.Fprintf(io.err, "note: %d records did not read as what they should be, and were not sent\n", s.unreadable)
	}
	if s.rejected > 0 {
		fmt.Fprintf(io.err, "note: of %d batches the collector did not take all, see above\n", s.rejected)
	}
}
