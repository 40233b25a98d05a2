package admin

import (
	"reflect"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/service/erasureplan"
)

// The services' memory of session keys is measured by what --quiet is by default.
func TestDefaultOfQuietFlag(t *testing.T) {
	f, _ := reflect.TypeFor[retentionEraseCmd]().FieldByName("Quiet")
	if d, err := time.ParseDuration(f.Tag.Get("default")); err != nil || d != erasureplan.DefaultIdle {
		t.Errorf("--quiet is %v by default, erasureplan.DefaultIdle is %v", d, erasureplan.DefaultIdle)
	}
}
