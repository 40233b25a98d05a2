package run

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// Keys that were made are named although no stream could be.
func TestProvisionNamesTheKeysThatItMade(t *testing.T) {
	noServer := target.Flags{Server: "nats://127.0.0.1:1", User: "provisioner", Password: "pw", Tenant: servicetest.Tenant}
	var out bytes.Buffer
	c := &ProvisionCmd{Flags: noServer, Keys: t.TempDir(), Streams: true, JSON: true}
	err := c.Run(t.Context(), ui.Stdio{Out: &out, Err: &out})
	var made provisioned
	if err == nil || json.Unmarshal(out.Bytes(), &made) != nil || made.Keys != c.Keys || made.PublicKey == "" {
		t.Errorf("%v: %s", err, &out)
	}
	out.Reset()
	c.Keys = ""
	if err := c.Run(t.Context(), ui.Stdio{Out: &out, Err: &out}); err == nil || out.Len() > 0 {
		t.Errorf("nothing was made: %v: %s", err, &out)
	}
}
