package admin

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
)

// The services' memory of session keys is measured by what --quiet is by default.
func TestDefaultOfQuietFlag(t *testing.T) {
	f, _ := reflect.TypeFor[retentionEraseCmd]().FieldByName("Quiet")
	if d, err := time.ParseDuration(f.Tag.Get("default")); err != nil || d != erasureplan.DefaultIdle {
		t.Errorf("--quiet is %v by default, erasureplan.DefaultIdle is %v", d, erasureplan.DefaultIdle)
	}
}

// TestEraseNamesOpenCalls: the list before an erasure says which calls will end without their beginning.
func TestEraseNamesOpenCalls(t *testing.T) {
	for open, want := range map[int]bool{0: false, 2: true} {
		var out bytes.Buffer
		(&erasure{OpenCalls: open}).print(ui.Stdio{Out: &out})
		if strings.Contains(out.String(), "2 calls still open") != want {
			t.Errorf("%d open calls:\n%s", open, out.String())
		}
	}
}
