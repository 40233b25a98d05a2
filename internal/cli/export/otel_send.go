package export

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
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/retry"
)

// otelSender sends signals over OTLP/HTTP. The exporters read the usual environment variables
// themselves.
type otelSender struct {
	resource *resource.Resource
	traces   otlptrace.Client
	logs     *otlploghttp.Exporter
	provider *sdklog.LoggerProvider // makes log records, sends nothing
	made     *madeRecords

	spans, records       int // sent so far
	rejected, unreadable int
}

func newOtelSender(ctx context.Context, tenant string) (*otelSender, error) {
	if err := otelEnvironment(os.Getenv); err != nil {
		return nil, err
	}
	// The environment's resource attributes take precedence, except the tenant.
	own := resource.NewSchemaless(attribute.String("service.name", "countersign"), attribute.String("service.version", buildinfo.Version()))
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

// deliver sends signals, spans first, and returns once the collector has accepted them. It removes from b
// what was sent.
func (s *otelSender) deliver(ctx context.Context, b *otlp.Signals) error {
	if len(b.Spans) > 0 {
		if err := s.settle(s.traces.UploadTraces(ctx, otlp.ResourceSpans(b.Spans, s.resource.SchemaURL(), s.resource.Attributes(), buildinfo.Version()))); err != nil {
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

// partial occurs in the exporters' error when the collector accepted a batch and dropped a part
// of it. OTLP says not to send it again.
const partial = "OTLP partial success"

func (s *otelSender) settle(err error) error {
	if err == nil || !strings.Contains(err.Error(), partial) {
		return err
	}
	s.rejected++
	fmt.Fprintf(os.Stderr, "countersign: the collector did not take all: %s\n", ui.CleanLines(err.Error()))
	return nil
}

// Pauses between attempts, beside those of the exporters themselves.
const (
	otelPause    = time.Second
	otelPauseMax = 30 * time.Second
)

// sendPatiently sends until it succeeds or ctx ends, and prints once that it waits.
func (s *otelSender) sendPatiently(ctx context.Context, io ui.Stdio, b otlp.Signals) error {
	waiting := false
	pauses := retry.New(otelPause, otelPauseMax)
	for {
		err := s.deliver(ctx, &b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			if waiting {
				fmt.Fprintln(io.Err, "countersign: the collector takes it again; nothing was missed")
			}
			return nil
		}
		if !waiting {
			fmt.Fprintf(io.Err, "countersign: waiting: %s\n", ui.CleanLines(err.Error()))
			waiting = true
		}
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

// recordsOf converts logs to log records.
func (s *otelSender) recordsOf(ctx context.Context, logs []otlp.Log) []sdklog.Record {
	s.made.list = make([]sdklog.Record, 0, len(logs))
	logger := s.provider.Logger(otlp.Scope, log.WithInstrumentationVersion(buildinfo.Version()), log.WithSchemaURL(otlp.SchemaURL))
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

// madeRecords collects the records that a logger makes.
type madeRecords struct{ list []sdklog.Record }

func (*madeRecords) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*madeRecords) Shutdown(context.Context) error                         { return nil }
func (*madeRecords) ForceFlush(context.Context) error                       { return nil }

// OnEmit implements sdklog.Processor.
func (m *madeRecords) OnEmit(_ context.Context, r *sdklog.Record) error {
	m.list = append(m.list, r.Clone())
	return nil
}

func (s *otelSender) report(io ui.Stdio) {
	fmt.Fprintf(io.Out, "%d spans and %d log records sent\n", s.spans, s.records)
	if s.unreadable > 0 {
		fmt.Fprintf(io.Err, "note: %d records did not read as what they should be, and were not sent\n", s.unreadable)
	}
	if s.rejected > 0 {
		fmt.Fprintf(io.Err, "note: of %d batches the collector did not take all, see above\n", s.rejected)
	}
}
