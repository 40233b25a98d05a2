package run

import (
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
)

func TestCheckDisk(t *testing.T) {
	for free, want := range map[uint64]string{0: levelUnsafe, 19: levelUnsafe, 20: levelWarn, 99: levelWarn, 100: levelOK, 1000: levelOK} {
		if got := checkDisk("/data", free<<20, 1000<<20); got[0].Level != want {
			t.Errorf("%d of 1000 MiB free: %+v, want %s", free, got, want)
		}
	}
}

// The disk of `up` is looked at; where the servers of one's own have theirs, no ready file says.
func TestDoctorLooksAtTheDiskOfUp(t *testing.T) {
	for name, tc := range map[string]struct {
		target *target.Target
		want   int
	}{
		"up":                   {target.FromReady(target.Ready{DataDir: t.TempDir()}), 1},
		"servers of one's own": {&target.Target{}, 0},
	} {
		got := doctor{Operator: system.Operator{Target: tc.target}}.disk(t.Context())
		if len(got) != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
