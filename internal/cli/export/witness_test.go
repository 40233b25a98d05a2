package export

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// An export that is not proved, or that is given the witnessed checkpoint, needs no NATS server.
func TestExportWithoutNATS(t *testing.T) {
	_, public, err := signing.NewCheckpointKey(bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "checkpoint.pub")
	if err := atomicfile.Write(key, []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	unreachable := target.Flags{Server: "nats://127.0.0.1:1"}
	for name, tc := range map[string]struct {
		to        *target.Target
		witnessed []string
		restsOn   proof.Basis
		note, err string
	}{
		"none named":                   {to: &target.Target{}, restsOn: proof.Basis{Proved: true}, note: "no server named"},
		"unreachable, proved":          {to: &target.Target{Flags: unreachable}, restsOn: proof.Basis{Proved: true}, err: "127.0.0.1:1"},
		"unreachable, not proved":      {to: &target.Target{Flags: unreachable}, restsOn: proof.OnRecordsShown, note: "127.0.0.1:1"},
		"an auditor's file":            {to: target.FromReady(target.Ready{NATSURL: "nats://127.0.0.1:1"}), restsOn: proof.OnRecordsShown, note: "no credentials of role operator"},
		"unreachable, with checkpoint": {to: &target.Target{Flags: unreachable}, witnessed: []string{"cp"}, restsOn: proof.Basis{Proved: true}},
	} {
		var notes bytes.Buffer
		c := Cmd{Key: key, Witnessed: tc.witnessed}
		by, err := c.signers(t.Context(), ui.Stdio{Out: io.Discard, Err: &notes}, tc.to, tc.restsOn)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || len(by.log) != 1 || len(by.witnesses) != 0:
			t.Errorf("%s: %+v, %v", name, by, err)
		case !strings.Contains(notes.String(), tc.note) || (tc.note == "") != (notes.Len() == 0):
			t.Errorf("%s: notes %q, want %q", name, notes.String(), tc.note)
		}
	}
}
