package system

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/cli/target"
)

// A key of the environment that is not the ready file's is refused: one of the two is another system's. One on the command
// line is meant.
func TestCheckpointKey(t *testing.T) {
	key := map[string]string{"": ""}
	for i, name := range []string{"ready", "environment", "flag"} {
		_, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{byte(i)}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		key[name] = public
	}
	system := target.FromReady(target.Ready{PublicKey: key["ready"]})
	for _, tt := range []struct {
		t                       *target.Target
		flag, environment, want string
	}{
		{system, "", "", "ready"}, {system, "flag", "", "flag"}, {system, "flag", "environment", "flag"}, {system, "environment", "environment", ""}, {system, "ready", "ready", "ready"},
		{target.FromReady(target.Ready{}), "environment", "environment", "environment"}, {&target.Target{}, "environment", "environment", "environment"},
		{nil, "environment", "environment", "environment"}, {nil, "", "", ""}, {&target.Target{}, "", "", ""},
	} {
		t.Setenv("COUNTERSIGN_PUBLIC_KEY", key[tt.environment])
		if got, err := CheckpointKey(key[tt.flag], tt.t); got != key[tt.want] || (err == nil) != (tt.want != "") {
			t.Errorf("--key %s, environment %s: %q (%v), want %s", tt.flag, tt.environment, got, err, tt.want)
		} else if err != nil && tt.t == system && (!strings.Contains(err.Error(), key["ready"]) || !strings.Contains(err.Error(), key["environment"])) {
			t.Errorf("the refusal does not name both keys: %v", err)
		}
	}
}
