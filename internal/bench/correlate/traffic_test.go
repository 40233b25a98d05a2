package correlate

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/traffic"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// TestTrafficOnASlowDisk: calls whose decisions are stored seconds after the request break no
// rule, unless they claim to have run before.
func TestTrafficOnASlowDisk(t *testing.T) {
	asked := time.Date(2026, 11, 23, 12, 54, 0, 0, time.UTC)
	stored := asked.Add(10 * time.Second)
	for name, tt := range map[string]struct {
		ran  time.Time
		want string
	}{
		"they ran then":   {ran: stored},
		"they ran before": {ran: asked, want: "AH-C-083"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := newCoreBench(0)
			servicetest.OK(t, err)
			msgs, err := c.traffic.Admitted(0, traffic.Group, asked)
			servicetest.OK(t, err)
			c.apply(append(msgs, c.traffic.Reported(0, traffic.Group, asked, tt.ran)...), stored)
			err = c.check()
			if tt.want == "" {
				servicetest.OK(t, err)
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("no %s: %v", tt.want, err)
			}
		})
	}
}
