package admin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/keys"
)

// The commands on a machine without an admitter say which files it must get, and in which order.
func TestKeyCommandsSayWhatToCopy(t *testing.T) {
	t.Setenv("COUNTERSIGN_READY_FILE", "")
	t.Setenv("NATS_URL", "")
	dir := t.TempDir()
	err := keys.Ensure(dir, keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile)
	if err == nil {
		_, err = keys.Vouch(dir, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	old, err := keys.Receipt(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := keyFiles{Keys: dir}
	var out bytes.Buffer
	io := ui.Stdio{Out: &out, Err: &out}
	if err := (&keysRotateCmd{files}).Run(io); err != nil {
		t.Fatal(err)
	}
	next, err := keys.Receipt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := "elsewhere copy receipt-" + next.ID + ".json, receipt.key and then receipt.json there"; !strings.Contains(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	retire := keysRetireCmd{keyFiles: files, KeyID: old.ID}
	retire.Wait = time.Second
	if err := retire.Run(t.Context(), io); err != nil {
		t.Fatal(err)
	}
	if want := "elsewhere copy retired-" + old.ID + ".json there"; !strings.Contains(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
