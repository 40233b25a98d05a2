package export

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// The supported protocol and exporter.
const (
	otelProtocol = "http/protobuf"
	otelExporter = "otlp"
)

// otelSignals are the infixes of the variable names: for both signals, and for one.
var otelSignals = []string{"", "TRACES_", "LOGS_"}

// otelVariables check the values of the exporter's variables. The exporters themselves ignore
// what they cannot read, and would send to another place, or with another trust, than was
// requested. No message quotes a value that may be a secret.
var otelVariables = []struct {
	name  string // after OTEL_EXPORTER_OTLP_ and the signal
	wrong func(value string) error
}{
	{"PROTOCOL", func(v string) error {
		if v == otelProtocol {
			return nil
		}
		return fmt.Errorf("is %q; only %s is spoken here: set it to that, and the endpoint to the collector's HTTP port (4318 by default)", ui.Clean(v, 40), otelProtocol)
	}},
	{"ENDPOINT", func(v string) error {
		if u, err := url.Parse(v); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
			return nil
		}
		return errors.New("is no address like http://collector:4318")
	}},
	{"TIMEOUT", func(v string) error {
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			return nil
		}
		return fmt.Errorf("is %q; want milliseconds, such as 10000", ui.Clean(v, 40))
	}},
	{"COMPRESSION", func(v string) error {
		if v == "gzip" || v == "none" {
			return nil
		}
		return fmt.Errorf("is %q; want gzip or none", ui.Clean(v, 40))
	}},
	{"HEADERS", func(v string) error {
		for _, pair := range strings.Split(v, ",") {
			name, value, ok := strings.Cut(pair, "=")
			if _, err := url.PathUnescape(value); !ok || strings.TrimSpace(name) == "" || err != nil {
				return errors.New("is not a list like name=value,name=value (values percent-encoded)")
			}
		}
		return nil
	}},
	{"CERTIFICATE", func(v string) error {
		b, err := os.ReadFile(v)
		if err != nil {
			return fmt.Errorf("cannot be read: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(b) {
			return fmt.Errorf("%s has no certificate (PEM)", ui.Clean(v, 200))
		}
		return nil
	}},
}

// otelEnvironment refuses an environment that requests something unsupported. Empty values count
// as unset, as OpenTelemetry specifies.
func otelEnvironment(getenv func(string) string) error {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return ui.UsageError{Err: errors.New("OTEL_SDK_DISABLED is true, so nothing would be sent: unset it for this command")}
	}
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_LOGS_EXPORTER"} {
		if v := get(name); v != "" && !slices.Contains(strings.Split(v, ","), otelExporter) {
			return ui.UsageError{Err: fmt.Errorf("%s is %q; this command sends by %s only: unset it", name, ui.Clean(v, 40), otelExporter)}
		}
	}
	for _, v := range otelVariables {
		for _, signal := range otelSignals {
			name := "OTEL_EXPORTER_OTLP_" + signal + v.name
			value := get(name)
			if value == "" {
				continue
			}
			if err := v.wrong(value); err != nil {
				return ui.UsageError{Err: fmt.Errorf("%s %w", name, err)}
			}
		}
	}
	return otelClientCertificates(get)
}

// otelClientCertificates checks the pairs of client certificate and key.
func otelClientCertificates(get func(string) string) error {
	for _, signal := range otelSignals {
		certificate, key := "OTEL_EXPORTER_OTLP_"+signal+"CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_"+signal+"CLIENT_KEY"
		switch c, k := get(certificate), get(key); {
		case c == "" && k == "":
		case c == "" || k == "":
			return ui.UsageError{Err: fmt.Errorf("%s and %s go together", certificate, key)}
		default:
			if _, err := tls.LoadX509KeyPair(c, k); err != nil {
				return ui.UsageError{Err: fmt.Errorf("%s and %s: %w", certificate, key, err)}
			}
		}
	}
	return nil
}
