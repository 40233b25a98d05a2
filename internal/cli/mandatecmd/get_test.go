package mandatecmd

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// The document of a revoked mandate is as active as before: `mandate get`, which saves it for a new log, warns.
func TestGetWarnsOfARevokedMandate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	n := servicetest.Start(t, streams.Shard{})
	f := target.Flags{Server: n.URL(), User: "operator", Password: "pw-operator", Prefix: "gov", Stream: streams.DefaultShard, Tenant: "acme"}
	b, err := OpenMandates(t.Context(), f)
	servicetest.OK(t, err)
	t.Cleanup(b.Conn.Close)
	raw, err := os.ReadFile("../../../examples/mandates/courier.json")
	servicetest.OK(t, err)
	m, err := mandate.Compile(raw, nil)
	servicetest.OK(t, err)
	servicetest.OK(t, b.put(t.Context(), raw, "a", &putReport{ID: m.ID, Hash: m.Hash}))
	get := func() (out, warning string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		servicetest.OK(t, (&mandateGetCmd{Flags: f, ID: m.ID}).Run(t.Context(), ui.Stdio{Out: &stdout, Err: &stderr}))
		return stdout.String(), stderr.String()
	}
	if out, warning := get(); out != string(raw) || warning != "" {
		t.Errorf("in force: %q, warning %q", out, warning)
	}
	r := mandate.Revocation{V: mandate.StoredVersion, ID: m.ID, Hash: m.Hash, Reason: "lost", Author: "a", RevokedAt: events.At(time.Now())}
	_, err = b.write(t.Context(), mandate.RevocationKey(b.Tenant, m.ID, m.Hash), r, 0)
	servicetest.OK(t, err)
	if out, warning := get(); out != string(raw) || !strings.Contains(warning, "revoked by operator: lost") {
		t.Errorf("revoked: %q, warning %q", out, warning)
	}
}
