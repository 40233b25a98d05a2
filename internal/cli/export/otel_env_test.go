package export

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// An environment that the exporters would read otherwise than it was meant is
// refused, with the name of the variable and without a secret in it.
func TestOtelEnvironment(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const prefix = "OTEL_EXPORTER_OTLP_"
	for name, tc := range map[string]struct {
		env   map[string]string
		names string // "": nothing is wrong
	}{
		"nothing set": {nil, ""},
		"all as it should be": {map[string]string{prefix + "ENDPOINT": "http://collector:4318", prefix + "TRACES_ENDPOINT": "https://c.example/v1/traces", prefix + "PROTOCOL": "http/protobuf",
			prefix + "TIMEOUT": "500", prefix + "LOGS_COMPRESSION": "gzip", prefix + "HEADERS": "x-token=a%20b, y=1", "OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "otlp"}, ""},
		"empty is unset":      {map[string]string{prefix + "PROTOCOL": " ", prefix + "ENDPOINT": ""}, ""},
		"gRPC":                {map[string]string{prefix + "PROTOCOL": "grpc"}, prefix + "PROTOCOL"},
		"JSON, for logs":      {map[string]string{prefix + "LOGS_PROTOCOL": "http/json"}, prefix + "LOGS_PROTOCOL"},
		"disabled":            {map[string]string{"OTEL_SDK_DISABLED": "TRUE"}, "OTEL_SDK_DISABLED"},
		"another exporter":    {map[string]string{"OTEL_LOGS_EXPORTER": "none"}, "OTEL_LOGS_EXPORTER"},
		"no scheme":           {map[string]string{prefix + "ENDPOINT": "collector:4318"}, prefix + "ENDPOINT"},
		"no address":          {map[string]string{prefix + "LOGS_ENDPOINT": "http://"}, prefix + "LOGS_ENDPOINT"},
		"timeout as duration": {map[string]string{prefix + "TIMEOUT": "10s"}, prefix + "TIMEOUT"},
		"compression":         {map[string]string{prefix + "TRACES_COMPRESSION": "zstd"}, prefix + "TRACES_COMPRESSION"},
		"headers":             {map[string]string{prefix + "HEADERS": "Bearer s3cret"}, prefix + "HEADERS"},
		"headers, escape":     {map[string]string{prefix + "HEADERS": "a=s3cret%zz"}, prefix + "HEADERS"},
		"no such certificate": {map[string]string{prefix + "CERTIFICATE": "/no/such.pem"}, prefix + "CERTIFICATE"},
		"empty certificate":   {map[string]string{prefix + "TRACES_CERTIFICATE": empty}, prefix + "TRACES_CERTIFICATE"},
		"half a pair":         {map[string]string{prefix + "CLIENT_KEY": empty}, prefix + "CLIENT_CERTIFICATE"},
		"no pair":             {map[string]string{prefix + "CLIENT_KEY": empty, prefix + "CLIENT_CERTIFICATE": empty}, prefix + "CLIENT_CERTIFICATE"},
	} {
		err := otelEnvironment(func(key string) string { return tc.env[key] })
		var usage ui.UsageError
		switch {
		case tc.names == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.names != "" && (!errors.As(err, &usage) || !strings.HasPrefix(err.Error(), tc.names) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v", name, err)
		}
	}
}
